"""`@opcheck.cases`: parametrizes your own tests over the cases of specs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from opcheck.api.plan import Names
    from opcheck.checks import Context
    from opcheck.planning import Case
    from opcheck.running.session import RunSession
    from opcheck.samples.inputs import Inputs
    from opcheck.settings import Settings
    from opcheck.spec import Sample
    from opcheck.spec.library import DeviceClaims


@dataclass(frozen=True, eq=False)
class BoundCase:
    """A case for use in a test: the callable, its inputs, and the claims of the spec."""

    case: Case
    settings: Settings

    @property
    def id(self) -> str:
        """The id of the case, such as `torch.sin::backward[cpu-float64]`."""
        return self.case.id

    @property
    def claims(self) -> DeviceClaims:
        """The operator's claims on the device: `supports`, the dtypes `forward` and `backward`, `tolerance(...)`."""
        return self.case.claims

    @property
    def callable(self) -> Callable[..., Any]:
        """The operator, in the variant of the case. Raises Unresolved if its name cannot be found.

        Skips the test if the device of the case is absent.
        """
        return self._context().operator

    def samples(self) -> tuple[Sample, ...]:
        """Return the samples meant for the dtype, except those that the spec skips."""
        return self.case.samples

    def inputs(self) -> list[Inputs]:
        """Return the inputs of each sample. `inputs.fill()` gives args and kwargs.

        `inputs.leaves` require grad, unless the spec disclaims both backward and forward mode.
        Skips the test if the device of the case is absent.
        """
        context = self._context()
        return [context.realize(sample) for sample in context.case.samples]

    @cached_property
    def _session(self) -> RunSession:
        """A session, with the modules imported that register the operator. Other mistakes raise when it is called."""
        from opcheck.running.session import RunSession

        session = RunSession(self.settings)
        session.prepare([self.case.operator])
        return session

    def _context(self) -> Context:
        from opcheck.devices.presence import not_present

        context = self._session.context(self.case)
        present = context.device.availability
        if not present.present:
            pytest.skip(not_present(self.case.device.name, present.reason))
        return context


def cases(
    *specs: str | Path,
    operator: Names = None,
    check: Names = None,
    device: Names = "cpu",
    dtype: Names = None,
    tag: Names = None,
    seed: int | None = None,
) -> Callable[[Callable[..., Any]], Any]:
    """Parametrize a pytest test over the cases of specs. The test takes an argument `case`.

    `case.callable` is the operator, `case.inputs()` returns the arguments for each sample, `case.claims` are the claims
    of the spec, and `case.case` is the `Case`. A case or sample that the spec skips (`outcome = "skip"`) is skipped
    here, too, with the reason. A case whose device is absent is also skipped.

    Args:
        specs: Files and folders, relative to the folder of the test file; `"builtin"` is the library that comes with
            opcheck. Default: the specs that the project lists.
        operator: Ids, names or glob patterns of operators.
        check: Names of checks.
        device: Names of devices.
        dtype: Names of dtypes, or of groups such as `"floating"`.
        tag: Tags of operators.
        seed: Seed of the sample values. Default: the one in `[tool.opcheck]`, else 0.

    Returns:
        A decorator, made by `pytest.mark.parametrize`.

    Raises:
        SpecError: A path does not exist, or the specs or `[tool.opcheck]` have mistakes.
        ValueError: A name does not exist, or no case is selected.

    Example:
        >>> import opcheck, torch
        >>> @opcheck.cases("builtin", operator="torch.sin", check="backward", dtype="float64")
        ... def test_values_are_bounded(case):
        ...     for inputs in case.inputs():
        ...         args, kwargs = inputs.fill()
        ...         assert (case.callable(*args, **kwargs).abs() <= 1).all()
    """
    from opcheck.api.plan import load, plan, settings_of

    settings = settings_of(None)
    settings.put_on_path()
    chosen = plan(load(*specs), operator=operator, check=check, device=device, dtype=dtype, tag=tag, seed=seed)
    parameters = [_parameter(BoundCase(case, settings)) for case in chosen]
    return pytest.mark.parametrize("case", parameters, ids=[case.id for case in chosen])


def _parameter(bound: BoundCase) -> Any:
    reason = bound.case.reason_to_skip
    return pytest.param(bound, marks=pytest.mark.skip(reason=reason)) if reason else bound
