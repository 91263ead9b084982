"""`opcheck.load` and `opcheck.plan`: from spec files to cases, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opcheck.api.caller import caller, folder_of, settings_of
from opcheck.plan.audited import load_audited
from opcheck.plan.case import Case
from opcheck.plan.planner import default_devices
from opcheck.plan.planner import plan as planned
from opcheck.plan.selection import Selection, unknown_devices
from opcheck.spec.device import profiles
from opcheck.spec.library import Library

Names = str | Sequence[str] | None
"""A name, several, or None: all."""


def load(*specs: str | Path, project: str | Path | None = None) -> Library:
    """Load specs, and find every mistake in them that can be seen without torch.

    Args:
        specs: Files and folders, relative to the folder of the calling file (or the current one), or `"builtin"` for
            the shipped library. Default: those that the project names.
        project: A folder of the project whose `[tool.opcheck]` counts. Default: the one of the calling file.

    Returns:
        A `Library`: the operators, in the order of files and lines. `len(library)`, `for operator in library`, and
        `library.find(name)` work.

    Raises:
        SpecError: Specs or `[tool.opcheck]` have mistakes. The message has one line for each.

    Example:
        >>> import opcheck
        >>> library = opcheck.load("builtin")
        >>> [operator.id for operator in library.find("torch.div")]
        ['torch.div', 'torch.div[floor]', 'torch.div[trunc]', 'torch.div[sparse]']
    """
    settings = settings_of(project)
    base = folder_of(caller()[0])
    return load_audited([_found(spec, base) for spec in specs] or settings.spec_paths(), settings)


def plan(
    library: Library,
    *,
    operator: Names = None,
    check: Names = None,
    device: Names = None,
    dtype: Names = None,
    tag: Names = None,
    seed: int | None = None,
    project: str | Path | None = None,
) -> list[Case]:
    """Return the cases of a library: operators x variants x devices x dtypes x checks, as far as specs claim them.

    Args:
        library: What `opcheck.load` returned.
        operator: Ids, names or glob patterns of operators.
        check: Names of checks.
        device: Names of devices. Default: all that may be present.
        dtype: Names of dtypes or groups of them, such as `"floating"`.
        tag: Tags of operators.
        seed: Another number draws other values for the same samples. Default: the project's, else 0.
        project: As for `load`.

    Returns:
        The selected cases. None of them has imported torch or an operator yet.

    Raises:
        ValueError: A name does not exist, or the names together select no case.
        SpecError: `[tool.opcheck]` or a device profile has a mistake.

    Example:
        >>> import opcheck
        >>> library = opcheck.load("builtin")
        >>> for case in opcheck.plan(library, operator="torch.sin", check="backward", device="cpu"):
        ...     print(case.id)
        torch.sin::backward[cpu-float64]
        torch.sin::backward[cpu-complex128]
        torch.sin[method]::backward[cpu-float64]
        torch.sin[method]::backward[cpu-complex128]
        torch.sin[inplace]::backward[cpu-float64]
        torch.sin[inplace]::backward[cpu-complex128]
    """
    settings = settings_of(project)
    selection = Selection(_names(operator), _names(check), _names(dtype), _names(tag))
    known = profiles(settings.device_folders())
    mistakes = selection.mistakes(library) + unknown_devices(_names(device), known)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    devices = [known[name] for name in _names(device)] or default_devices(known.values())
    cases = planned(library, devices, selection, settings.seed if seed is None else seed)
    if not cases:
        raise ValueError("no case is selected")
    return cases


def _names(given: Names) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _found(spec: str | Path, base: Path) -> Path:
    beside = base / spec
    return beside if beside.exists() else Path(spec)
