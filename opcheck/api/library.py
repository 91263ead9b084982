"""`opcheck.load` and `opcheck.plan`: from spec files to cases, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opcheck.api.caller import seed_of, settings_of, spec_paths
from opcheck.devices.presence import chosen_devices
from opcheck.planning import loading
from opcheck.planning.case import Case
from opcheck.planning.planner import plan as planned
from opcheck.planning.selection import Selection
from opcheck.spec.library import Library

Names = str | Sequence[str] | None
"""A name, several names, or None for all."""


def load(*specs: str | Path, project: str | Path | None = None) -> Library:
    """Load specs. This does not import torch.

    Args:
        specs: Files and folders, relative to the folder of the calling file (in a notebook, to the current folder);
            `"builtin"` is the library that comes with opcheck. Default: the specs that the project lists.
        project: A folder of the project whose `[tool.opcheck]` to use. Default: the project of the calling file.

    Returns:
        A `Library` of operators, in the order of files and lines. It has a length, can be iterated over, and
        `library.find(name)` returns the operators with a given name.

    Raises:
        SpecError: A path does not exist, or the specs or `[tool.opcheck]` have mistakes. The message lists all of them.

    Example:
        >>> import opcheck
        >>> library = opcheck.load("builtin")
        >>> [operator.id for operator in library.find("torch.div")]
        ['torch.div', 'torch.div[floor]', 'torch.div[trunc]', 'torch.div[sparse]']
    """
    settings = settings_of(project)
    return loading.load(spec_paths(specs, settings) or settings.spec_paths(), settings)


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
    """Return the cases of a library: one for each operator, variant, device, dtype and check. Does not import torch.

    Each of the keywords takes a name or several, and selects everything if it is None.

    Args:
        library: The specs, from `opcheck.load`.
        operator: Ids, names or glob patterns of operators.
        check: Names of checks.
        device: Names of devices. Default: all that may be present.
        dtype: Names of dtypes, or of groups such as `"floating"`.
        tag: Tags of operators.
        seed: Seed of the sample values. Default: the one in `[tool.opcheck]`, else 0.
        project: A folder of the project whose `[tool.opcheck]` to use. Default: the project of the calling file.

    Returns:
        The selected cases.

    Raises:
        ValueError: A name does not exist, no case is selected, or the seed is no whole number of at least 0.
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
    selection = Selection(_names(operator), _names(check), _names(dtype), _names(tag), settings.derive)
    mistakes = selection.mistakes(library)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    cases = planned(library, chosen_devices(_names(device), settings), selection, seed_of(seed, settings))
    if not cases:
        raise ValueError("no case is selected")
    return cases


def _names(names: Names) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)
