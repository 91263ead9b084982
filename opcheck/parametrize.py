"""`@opcheck.cases`: one's own tests, parametrized over the cases of specs."""

from __future__ import annotations

import inspect
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
        """The operator, in the variant of the case. Raises Unresolved where the spec names nothing."""
        return self._context().operator

    def samples(self) -> tuple[Sample, ...]:
        """Return the samples that go with the dtype."""
        return self.case.samples

    def inputs(self) -> list[Inputs]:
        """Return the samples made real: `args, kwargs = inputs.fill()`; `inputs.leaves` require grad."""
        context = self._context()
        return [context.realize(sample) for sample in self.case.samples]

    def _context(self) -> Context:
        from opcheck.checks import Context
        from opcheck.derivatives import TorchEngine

        case = self.case
        return Context(case, TorchEngine(), self.settings, case.samples, case.device.device_string)


def cases(
    *specs: str | Path,
    operator: Names = None,
    check: Names = None,
    device: Names = "cpu",
    dtype: Names = None,
    tag: Names = None,
) -> Callable[[Callable[..., Any]], Any]:
    """Parametrize a test function over the cases of specs. It gets each as its argument `case`, a BoundCase.

    specs: files and folders, relative to the folder of the test file (or the current one), or "builtin".
    operator, check, device, dtype, tag: a name, or several; default: all (of devices: cpu).
    Raises SpecError where a spec is wrong, ValueError where a name does not exist.
    """
    from opcheck.plan import Selection, plan
    from opcheck.spec import Settings, load
    from opcheck.spec.device import profiles

    caller = inspect.stack()[1].filename
    settings = Settings.find(Path(caller).parent)
    settings.put_on_path()
    library = load([_found(spec, Path(caller).parent) for spec in specs], settings)
    selection = Selection(_names(operator), _names(check), _names(dtype), _names(tag))
    known = profiles(settings.device_folders())
    mistakes = selection.mistakes(library) + [
        f'unknown device "{name}"' for name in _names(device) if name not in known
    ]
    if mistakes:
        raise ValueError("; ".join(mistakes))
    devices = [known[name] for name in _names(device)]
    found = [BoundCase(case, settings) for case in plan(library, devices, selection)]
    return pytest.mark.parametrize("case", found, ids=[case.id for case in found])


def _names(given: Names) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _found(spec: str | Path, folder: Path) -> Path:
    beside = folder / spec
    return beside if beside.exists() else Path(spec)
