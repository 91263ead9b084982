"""`@opcheck.cases`: one's own tests, parametrized over the cases of specs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from opcheck.checks import Context
    from opcheck.plan import Case
    from opcheck.samples import Inputs
    from opcheck.spec import Sample, Settings
    from opcheck.spec.library import DeviceClaims

Names = str | Sequence[str] | None


@dataclass(frozen=True, eq=False)
class BoundCase:
    """A case, ready for use in a test: the callable, its inputs, and what the spec claims."""

    case: Case
    settings: Settings

    @property
    def id(self) -> str:
        """`torch.sin::backward[cpu-float64]`."""
        return self.case.id

    @property
    def claims(self) -> DeviceClaims:
        """What the operator claims on the device: `supports`, dtypes `forward` and `backward`, `tolerance(...)`."""
        return self.case.claims

    @property
    def callable(self) -> Callable[..., Any]:
        """The operator, in the variant of the case. Raises Unresolved where the spec names nothing.

        Skips the test where the device of the case is absent.
        """
        return self._context().operator

    def samples(self) -> tuple[Sample, ...]:
        """Return the samples that go with the dtype."""
        return self.case.samples

    def inputs(self) -> list[Inputs]:
        """Return the samples made real: `args, kwargs = inputs.fill()`; `inputs.leaves` require grad.

        Skips the test where the device of the case is absent.
        """
        context = self._context()
        return [context.realize(sample) for sample in self.case.samples]

    def _context(self) -> Context:
        from opcheck.checks import Context
        from opcheck.derivatives import TorchEngine
        from opcheck.devices import availability

        case = self.case
        present = availability(case.device)
        if not present.present:
            pytest.skip(f"the device {case.device.name} is not present: {present.reason}")
        return Context(case, TorchEngine(), self.settings, case.samples, case.device.device_string)


def cases(
    *specs: str | Path,
    operator: Names = None,
    check: Names = None,
    device: Names = "cpu",
    dtype: Names = None,
    tag: Names = None,
    seed: int | None = None,
) -> Callable[[Callable[..., Any]], Any]:
    """Parametrize a test function of pytest over the cases of specs. It gets each one as its argument `case`.

    `case.callable` is the operator, `case.inputs()` are its samples made real, `case.claims` is what the spec claims,
    and `case.case` is the `Case` itself. A test whose device is absent is skipped.

    Args:
        specs: Files and folders, relative to the folder of the test file (or the current one), or `"builtin"` for the
            shipped library. Default: those that the project names.
        operator: Ids, names or glob patterns of operators.
        check: Names of checks.
        device: Names of devices.
        dtype: Names of dtypes or groups of them.
        tag: Tags of operators.
        seed: Another number draws other values for the same samples. Default: the project's, else 0.

    Returns:
        A decorator: `pytest.mark.parametrize`, with the ids of the cases.

    Raises:
        SpecError: Specs or `[tool.opcheck]` have mistakes.
        ValueError: A name does not exist, or the names together select no case.

    Example:
        >>> import opcheck, torch
        >>> @opcheck.cases("builtin", operator="torch.sin", check="backward", dtype="float64")
        ... def test_values_are_bounded(case):
        ...     for inputs in case.inputs():
        ...         args, kwargs = inputs.fill()
        ...         assert (case.callable(*args, **kwargs).abs() <= 1).all()
    """
    from opcheck.api.caller import settings_of
    from opcheck.api.library import load, plan

    settings = settings_of(None)
    settings.put_on_path()
    chosen = plan(load(*specs), operator=operator, check=check, device=device, dtype=dtype, tag=tag, seed=seed)
    found = [BoundCase(case, settings) for case in chosen]
    return pytest.mark.parametrize("case", found, ids=[case.id for case in found])
