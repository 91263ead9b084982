"""What the cases of one process share: the engine, the settings, the initial process state, the devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opcheck.checks.base import Context
from opcheck.devices.hooks import free_caches
from opcheck.devices.presence import Availability
from opcheck.planning.case import Case
from opcheck.running.device_use import DeviceUse
from opcheck.running.outcome import rerun_command
from opcheck.running.process_state import ProcessState
from opcheck.samples import Unresolved
from opcheck.samples.cache import Cache
from opcheck.samples.resolve import import_module, resolve_module, resolve_operator
from opcheck.settings import Settings
from opcheck.spec.device import DeviceProfile
from opcheck.spec.library import Operator, Sample
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem


@dataclass
class RunSession:
    """What is needed to run cases."""

    settings: Settings
    engine: str
    """Who is asked about derivatives: "batched" is evidence of our own, "torch" gradcheck and gradgradcheck."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Tolerances and settings that take precedence over the specs: eps, atol, rtol, nondeterminism, fast_mode,
    raise_exception, jacobian."""
    neutral: ProcessState = field(default_factory=lambda: ProcessState.read().for_cases())
    """The process state that every case starts from."""
    imports: dict[str, list[str]] = field(default_factory=dict)
    """What the import of an operator's modules has changed in the process, by id of the operator."""
    cache: Cache = field(default_factory=Cache)
    """What the checks of one operator share."""
    cause: BaseException | None = None
    """The exception behind the failure of the last case, for debuggers."""
    broken_by: str = ""
    """The id of a case that has changed something that cannot be restored; empty if there is none."""
    callables: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """Operators passed in from Python, by path."""
    devices: DeviceUse = field(default_factory=DeviceUse)
    """The devices that cases run on."""

    @classmethod
    def start(
        cls,
        settings: Settings,
        engine: str | None = None,
        *,
        own_process: bool = False,
        number: int | None = None,
        absent: Mapping[str, str] | None = None,
        **overrides: Any,
    ) -> RunSession:
        """Start a session.

        engine: the name of the engine; default: that of the settings.
        own_process: whether the process only runs cases, so that its settings can be changed for good.
        number: which of several processes this is; None if it is the only one.
        absent: why devices cannot be used, by name, as other processes have found. Others are asked about the rest.
        """
        if own_process:
            ProcessState.read().for_cases().restore(ProcessState.read())
        settings.put_on_path()
        devices = DeviceUse(number, absent=absent or {}, settings=settings)
        return cls(settings, engine or settings.engine, overrides, devices=devices)

    def prepare(self, operators: Iterable[Operator], devices: Iterable[DeviceProfile] = ()) -> list[Problem]:
        """Import the modules that operators, their variants and aliases are defined in, before any case runs.

        The modules of devices come first: autograd starts its threads at the first backward pass, and has none for a
        device that is registered later.

        Settings that an import changes are restored and recorded: otherwise, verdicts would depend on which operators
        are tested together. Returns a mistake for each name that cannot be found.
        """
        for device in devices:
            self.availability(device)
        problems = []
        for operator in operators:
            before = ProcessState.read()
            problems += unresolved(operator, self.settings)
            now = ProcessState.read()
            if now != before:
                self.imports[operator.id] = before.changes(now)
                before.restore(now)
        return problems

    def context(self, case: Case, samples: tuple[Sample, ...]) -> Context:
        """Return the context that the check of a case runs in."""
        device = self.devices.string(case.device)
        return Context(
            case, self.settings, samples, device, self.overrides, self.cache, callables=self.callables,
            room=self.devices.room(case.device), by_torch=self.engine == "torch",
        )  # fmt: skip

    def rerun(self, case: Case) -> str:
        """Return the command that runs a case alone."""
        engine = "" if self.engine == self.settings.engine else self.engine
        seed = case.base_seed if case.base_seed or self.settings.seed else None
        options = self.settings.option_for(case.device)
        derive = self.overrides.get("derive")
        options = f"--derive {derive} {options}".strip() if derive and case.kind.derives else options
        return rerun_command(case.operator.document.file, case.id, engine, seed, options)

    def availability(self, device: DeviceProfile) -> Availability:
        """Return whether a device is present. Asks torch once per device."""
        return self.devices.availability(device)

    def make_room(self, case: Case) -> None:
        """Free what torch, and this session, keep in the memory of the device of a case. It may be full."""
        self.cache = Cache()
        free_caches(self.devices.string(case.device))

    @property
    def lost_to(self) -> str:
        """The id of the case that this process cannot recover from; empty if there is none."""
        return self.broken_by or next(iter(self.devices.unusable.values()), "")


def unresolved(operator: Operator, settings: Settings) -> list[Problem]:
    """Import the callables of an operator. Return a mistake for each one that cannot be found."""
    own = "target" if operator.spec.target else "name"
    named: list[tuple[KeyPath, str]] = [((own,), operator.variants[0].path)]
    named += [(("variants", i), variant.path) for i, variant in enumerate(operator.variants[1:])]
    named += [(("aliases", i), path) for i, path in enumerate(operator.spec.aliases)]
    problems = []
    for index, module in enumerate(operator.spec.imports):
        try:
            import_module(module)
        except Unresolved as error:
            problems.append(operator.problem(("imports", index), str(error)))
    if problems:
        return problems
    find = resolve_operator if operator.spec.module is None else resolve_module
    for keys, path in named:
        try:
            find(path, settings.modules)
        except Unresolved as error:
            at = ("operator", operator.index, *keys)
            problems.append(operator.document.problem(at, str(error), nearest=error.hint))
            if keys == (own,):
                break  # the method and the in-place variant are missing for the same reason
    return problems
