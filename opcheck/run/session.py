"""What the cases of one process share: the engine, the settings, the state they start from, which devices are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from opcheck.checks.context import Context
from opcheck.derivatives import BatchedEngine, Engine, TorchEngine
from opcheck.devices import Availability, availability
from opcheck.plan.case import Case
from opcheck.run.outcome import rerun_command
from opcheck.run.process_state import ProcessState
from opcheck.samples import Unresolved
from opcheck.samples.kept import Kept
from opcheck.samples.operator import resolve_operator
from opcheck.spec.device import DeviceProfile
from opcheck.spec.library import Operator, Sample
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem
from opcheck.spec.settings import Settings

ENGINES: dict[str, type[Engine]] = {"batched": BatchedEngine, "torch": TorchEngine}


@dataclass
class RunSession:
    """The surroundings of running cases."""

    settings: Settings
    engine: Engine
    overrides: dict[str, Any] = field(default_factory=dict)
    """Tolerances and settings that win over the specs: eps, atol, rtol, nondeterminism, fast_mode, raise_exception,
    jacobian."""
    neutral: ProcessState = field(default_factory=lambda: ProcessState.read().for_cases())
    """What every case starts from."""
    imports: dict[str, list[str]] = field(default_factory=dict)
    """What the import of an operator's module left changed in the process, in words, by id of the operator."""
    cause: BaseException | None = None
    """The exception behind the failure of the last case, where there is one: for debuggers."""
    spoilt_by: str = ""
    """The case that left behind what cannot be put back; empty: none did."""
    callables: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """Operators passed in from Python, by path."""
    kept: Kept = field(default_factory=Kept)
    """What the checks of one operator share."""
    _devices: dict[str, Availability] = field(default_factory=dict)

    @classmethod
    def start(
        cls, settings: Settings, engine: str | None = None, *, own_process: bool = False, **overrides: Any
    ) -> RunSession:
        """Return a session with the engine of a name (default: that of the settings).

        own_process: whether the process is there for cases alone, so that what all of them need can be set for good.
        """
        if own_process:
            ProcessState.read().for_cases().restore(ProcessState.read())
        settings.put_on_path()
        return cls(settings, ENGINES[engine or settings.engine](), overrides)

    def prepare(self, operators: Iterable[Operator]) -> list[Problem]:
        """Import what operators, their variants and aliases are defined in, before any case runs.

        What an import changes in the process is put back, and remembered: it would make verdicts depend on which
        operators are tested together. Returns a mistake for each name that names nothing.
        """
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
        device = case.device.device_string
        return Context(case, self.engine, self.settings, samples, device, self.overrides, self.kept, self.callables)

    def rerun(self, case: Case) -> str:
        """Return the command that runs a case alone."""
        engine = "" if self.engine.name == self.settings.engine else self.engine.name
        seed = case.base_seed if case.base_seed or self.settings.seed else None
        return rerun_command(case.operator.document.file, case.id, engine, seed)

    def availability(self, device: DeviceProfile) -> Availability:
        """Return whether a device is there, asked once."""
        if device.name not in self._devices:
            self._devices[device.name] = availability(device)
        return self._devices[device.name]


def unresolved(operator: Operator, settings: Settings) -> list[Problem]:
    """Return a mistake for each callable of an operator that does not exist. Imports what they are defined in."""
    own = "target" if operator.spec.target else "name"
    places: list[tuple[KeyPath, str]] = [((own,), operator.variants[0].path)]
    places += [(("variants", i), variant.path) for i, variant in enumerate(operator.variants[1:])]
    places += [(("aliases", i), path) for i, path in enumerate(operator.spec.aliases)]
    problems = []
    for place, path in places:
        try:
            resolve_operator(path, settings.modules)
        except Unresolved as error:
            at = ("operator", operator.index, *place)
            problems.append(operator.document.problem(at, str(error), nearest=error.hint))
            if place == (own,):
                break  # its method and in-place variant would be missing for the same reason
    return problems
