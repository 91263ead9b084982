"""The state that the cases of one process share: the engine, the settings, the initial process state, the devices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from opcheck.checks.subject import Context, no_note
from opcheck.checks.truth import referred
from opcheck.devices.device import Device, availability
from opcheck.devices.presence import Availability, ask, own_modules
from opcheck.planning.case import Case
from opcheck.running import process_state
from opcheck.running.outcome import rerun_of
from opcheck.samples.arguments import signature_of
from opcheck.samples.cache import Cache
from opcheck.samples.resolve import Unresolved, import_module, resolve_module, resolve_operator
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.library import Operator
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Problem


class RunSession:
    """The state that cases need to run, and share within a process."""

    def __init__(
        self,
        settings: Settings,
        engine: str | None = None,
        *,
        own_process: bool = False,
        reproduces: bool = False,
        number: int | None = None,
        absent: Mapping[str, str] | None = None,
        note: Callable[[str], None] = no_note,
        **overrides: Any,
    ) -> None:
        """Start a session.

        engine: what computes the evidence about derivatives: "batched" (opcheck itself) or "torch" (gradcheck and
        gradgradcheck). Default: the engine in the settings.
        own_process: whether the process only runs cases. If so, the process settings for cases are applied for good.
        reproduces: whether to reproduce failures in plain torch.
        number: the index of this process among those that run cases in parallel, which selects one of several devices
        of a kind; None if it is the only process.
        absent: why devices cannot be used, by name, as another process has found; an empty text for usable devices.
        Devices that are not in it are probed on first use.
        note: records the current step of a case, to report it if the process dies.
        overrides: tolerances and settings that take precedence over the specs: eps, atol, rtol, nondeterminism,
        fast_mode, raise_exception, jacobian, derive.
        """
        if own_process:
            process_state.write(process_state.for_cases(process_state.read()))
        self.settings, self.engine, self.overrides = settings, engine or settings.engine, overrides
        self.reproduces = reproduces
        self.callables = dict[str, Callable[..., Any]]()
        """Operators passed in from Python, by path."""
        self.imports = dict[str, list[str]]()
        """Descriptions of the process settings that importing an operator's modules changed, by operator id."""
        self.cache = Cache()
        """The inputs and results that the checks of one operator share."""
        self.cause: BaseException | None = None
        """The exception behind the failure of the last case, for debuggers."""
        self.broken_by = ""
        """The id of the case that left a transform of torch.func open, for good; empty if there is none."""
        self.unusable = dict[str, str]()
        """The id of the case after which a kind of device no longer works, by the kind."""
        self._number, self._absent, self._note = number, absent or {}, note
        self.start = process_state.read()
        """The settings of the process before the first case."""
        self._devices = dict[str, Device]()

    def prepare(self, operators: Iterable[Operator], devices: Iterable[DeviceProfile] = ()) -> list[Problem]:
        """Import the modules that operators, their variants and aliases are defined in, before any case runs.

        The modules of devices come first: autograd starts its threads at the first backward pass, and has none for a
        device that is registered later.

        Settings that an import changes are restored and recorded; otherwise, verdicts would depend on which operators
        are tested together. Returns a problem for each name that cannot be found.
        """
        self.settings.put_on_path()
        for device in devices:
            self.device(device)
        problems = []
        for operator in operators:
            before = process_state.read()
            problems += unresolved(operator, self.settings)
            changes = process_state.changes(before, process_state.read())
            if changes:
                self.imports[operator.id] = changes
                process_state.write(before)
        return problems

    def device(self, profile: DeviceProfile) -> Device:
        """Return the device of a profile, as this process uses it. The first call tests whether the device is present.

        Modules of a device are first imported in another process, since an import that crashes would end this one.
        """
        if profile.name not in self._devices:
            self._devices[profile.name] = self._begin(profile)
        return self._devices[profile.name]

    def _begin(self, profile: DeviceProfile) -> Device:
        why, string = self._absent.get(profile.name), profile.device_string
        if why is None and not all(module in sys.modules for module in own_modules(profile)):
            why = ask([profile], self.settings)[profile.name].reason
        answer = Availability(False, why) if why else availability(profile)
        device = Device(profile, string, answer)
        if not answer.present:
            return device
        own = torch.device(string)
        if self._number is not None and answer.count > 1 and own.type != "cpu" and own.index is None:
            device = replace(device, string=f"{string}:{self._number % answer.count}")
            device.make_current()  # operators may make tensors, or launch kernels, on the current device
        free = device.free_memory()
        room = None if free is None else max(free // 4, 1)
        is_plain = profile.synchronize is None and own.type == "cpu"  # the CPU reports each error synchronously
        return replace(device, room=room, is_probed=not is_plain and not device.fault())

    def context(self, case: Case) -> Context:
        """Return the context for the check of a case."""
        supports = case.claims.supports
        return Context(
            case, self.settings, self.device(case.device), self.overrides, self.cache,
            requires_grad=supports.backward is not False or supports.forward_ad,
            callables=self.callables, by_torch=self.engine == "torch", note=self._note,
        )  # fmt: skip

    def rerun(self, case: Case) -> str:
        """Return the command that runs a case alone, or the call of `opcheck.check` if the operator is from Python."""
        if case.operator.id in self.callables:
            name = "function" if case.operator.id.endswith("<lambda>") else case.operator.id
            seed = f", seed={case.base_seed}" if case.base_seed else ""
            return f'opcheck.check({name}, ..., checks="{case.check}"{seed})'
        return rerun_of(case, self.settings, self.engine, self.overrides.get("derive"))

    @property
    def lost_to(self) -> str:
        """The id of the case that this process cannot recover from; empty if there is none."""
        return self.broken_by or next(iter(self.unusable.values()), "")


def unresolved(operator: Operator, settings: Settings) -> list[Problem]:
    """Import the callables of an operator. Return a problem for each name that cannot be found, or is no argument.

    Return no problems if the spec declares that the installed torch lacks the operator.
    """
    if not operator.is_in_this_torch:
        return []
    own = "target" if operator.spec.target else "name"
    named: list[tuple[KeyPath, str]] = [((own,), operator.variants[0].path)]
    named += [(("variants", i), variant.path) for i, variant in enumerate(operator.variants[1:])]
    named += [(("aliases", i), path) for i, path in enumerate(operator.spec.aliases)]
    named += [(("surrogate",), operator.spec.surrogate_path)] if operator.spec.surrogate_path else []
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
            found = find(path, settings.modules)
            if keys == (own,) and operator.spec.module is None:  # else parameters of the module have names, too
                mistakes = operator.unknown_arguments(signature_of(found, path).names)
                problems += [operator.problem(*mistake) for mistake in mistakes]
        except Unresolved as error:
            problems.append(operator.problem(keys, str(error), nearest=error.hint))
            if keys == (own,):
                break  # the method and the in-place variant are missing for the same reason
    return problems


def unknown_reference(operator: Operator, settings: Settings) -> list[Problem]:
    """Import the reference of an operator. Return a problem if it cannot be found.

    A run imports it only for the cases that need it, since libraries of references take long to import.
    """
    reference = operator.spec.reference_in_full
    if reference is None or not operator.is_in_this_torch:
        return []
    try:
        referred(reference, settings.modules)
    except Unresolved as error:
        return [operator.problem(("reference",), str(error), nearest=error.hint)]
    return []
