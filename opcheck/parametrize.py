"""`@opcheck.cases`: parametrizes your own tests over the cases of specs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from opcheck.checks import Context
    from opcheck.plan import Case
    from opcheck.samples import Inputs
    from opcheck.settings import Settings
    from opcheck.spec import Sample
    from opcheck.spec.library import DeviceClaims

Names = str | Sequence[str] | None


@dataclass(frozen=True, eq=False)
class BoundCase:
    """A case for use in a test: the callable, its inputs, and what the spec claims."""

    case: Case
    settings: Settings

    @property
    def id(self) -> str:
        """`torch.sin::backward[cpu-float64]`."""
        return self.case.id

    @property
    def claims(self) -> DeviceClaims:
        """What the operator claims on the device: `supports`, the dtypes `forward` and `backward`, `tolerance(...)`."""
        return self.case.claims

    @property
    def callable(self) -> Callable[..., Any]:
        """The operator, in the variant of the case. Raises Unresolved if its name cannot be found.

        Skips the test if the device of the case is absent.
        """
        return self._context().operator

    def samples(self) -> tuple[Sample, ...]:
        """Return the samples meant for the dtype."""
        return self.case.samples

    def inputs(self) -> list[Inputs]:
        """Return the inputs of each sample. `inputs.fill()` gives args and kwargs; `inputs.leaves` require grad.

        Skips the test if the device of the case is absent.
        """
        context = self._context()
        return [context.realize(sample) for sample in self.case.samples]

    def _context(self) -> Context:
        from opcheck.checks import Context
        from opcheck.derivatives import TorchEngine
        from opcheck.devices.availability import availability

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
) -> Callable[[Callable[..., Any]], Any]:
    """Parametrize a test function over the cases of specs. Its argument `case` is a BoundCase.

    specs: files and folders, relative to the folder of the test file or to the current folder, or "builtin"; default:
    those of [tool.opcheck].
    operator, check, device, dtype, tag: one name or several; default: all, but for device: cpu.
    Raises SpecError if a spec has mistakes, ValueError if a name is unknown or no case is selected.
    """
    from opcheck.plan import Selection, load, plan
    from opcheck.plan.selection import unknown_devices
    from opcheck.settings import Settings
    from opcheck.spec.device import profiles

    folder = Path(sys._getframe(1).f_code.co_filename).parent
    settings = Settings.find(folder)
    settings.put_on_path()
    library = load([_found(spec, folder) for spec in specs] or settings.spec_paths(), settings)
    selection = Selection(_names(operator), _names(check), _names(dtype), _names(tag))
    known = profiles(settings.device_folders())
    mistakes = selection.mistakes(library) + unknown_devices(_names(device), known)
    if mistakes:
        raise ValueError("; ".join(mistakes))
    devices = [known[name] for name in _names(device)]
    found = [BoundCase(case, settings) for case in plan(library, devices, selection)]
    if not found:
        raise ValueError("no case is selected")
    return pytest.mark.parametrize("case", found, ids=[case.id for case in found])


def _names(given: Names) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _found(spec: str | Path, folder: Path) -> Path:
    beside = folder / spec
    return beside if beside.exists() else Path(spec)
