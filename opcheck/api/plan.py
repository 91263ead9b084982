"""`opcheck.load` and `opcheck.plan`: load spec files and plan their cases, without importing torch.

Paths are relative to the calling file, and the settings are those of its project.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcheck.devices.presence import chosen_devices
from opcheck.planning import loading
from opcheck.planning.case import Case
from opcheck.planning.kinds import load_plugins
from opcheck.planning.planner import plan as planned
from opcheck.planning.selection import Selection
from opcheck.settings import Settings
from opcheck.spec.document import shown
from opcheck.spec.library import Library
from opcheck.spec.load import BUILTIN
from opcheck.spec.problems import Problem, SpecError, nearest

if TYPE_CHECKING:
    import torch

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
        TypeError: One of `specs` is not a path, such as a list of paths.

    Example:
        >>> import opcheck
        >>> library = opcheck.load("builtin")
        >>> [operator.id for operator in library.find("torch.div")]
        ['torch.div', 'torch.div[floor]', 'torch.div[trunc]', 'torch.div[sparse]']
    """
    settings = settings_of(project)
    return loading.load(_spec_paths(specs, settings) or settings.required_specs(), settings)


def plan(
    library: Library,
    *,
    operator: Names = None,
    check: Names = None,
    device: Names = None,
    dtype: str | torch.dtype | Sequence[str | torch.dtype] | None = None,
    tag: Names = None,
    seed: int | None = None,
    project: str | Path | None = None,
) -> list[Case]:
    """Return the cases of a library: one for each operator, variant, device, dtype and check. Does not import torch.

    Each keyword that selects cases takes one name or several. None selects everything.

    Args:
        library: The specs, from `opcheck.load`.
        operator: Ids, names or glob patterns of operators.
        check: Names of checks.
        device: Names of devices. Default: all that may be present.
        dtype: Names of dtypes, or of groups such as `"floating"`, or `torch.dtype` objects.
        tag: Tags of operators.
        seed: Seed of the sample values. Default: the one in `[tool.opcheck]`, else 0.
        project: A folder of the project whose `[tool.opcheck]` to use. Default: the project of the calling file.

    Returns:
        The selected cases.

    Raises:
        ValueError: A name does not exist, no case is selected, or the seed is not a whole number of at least 0.
        TypeError: `library` is not a `Library`, or a name is not a string.
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
    if not isinstance(library, Library):
        raise TypeError(f"opcheck.plan expects a Library, as opcheck.load returns it, not {type(library).__name__}")
    settings = settings_of(project)
    dtypes = None if dtype is None else [_name_of_dtype(one) for one in several(dtype)]
    selection = Selection(
        _names("operator", operator), _names("check", check), _names("dtype", dtypes), _names("tag", tag),
        settings.derive, settings.engine,
    )  # fmt: skip
    mistakes = selection.mistakes(library)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    cases = planned(library, chosen_devices(_names("device", device), settings), selection, seed_of(seed, settings))
    if not cases:
        raise ValueError("no case is selected")
    return cases


def _names(key: str, value: Names) -> tuple[str, ...]:
    """Return the names that a keyword selects. Raises TypeError for other values, ValueError if there are none."""
    names = several(value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{key} expects a name or several, not {type(name).__name__}")
    if value is not None and not names:
        raise ValueError(f"{key} has no names: nothing would be selected; expected at least one, or None for all")
    return names


def _name_of_dtype(dtype: Any) -> Any:
    """Return the name of a `torch.dtype`, without importing torch. Anything else is returned unchanged."""
    return str(dtype).removeprefix("torch.") if type(dtype).__name__ == "dtype" else dtype


def several(value: Any) -> tuple[Any, ...]:
    """Return the items of an argument as a tuple. A single name or dtype is one item, None is no item."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(value)
    return () if value is None else (value,)


PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


def caller() -> tuple[str, int]:
    """Return the file and line of the innermost stack frame outside opcheck."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def folder_of(file: str) -> Path:
    """Return the folder of a source file, or the current folder for code that has no file, as in a notebook."""
    return Path(file).resolve().parent if Path(file).is_file() else Path.cwd()


def settings_of(project: str | Path | None) -> Settings:
    """Return the settings of a project, and import its plugins. The default is the project of the calling file.

    Raises SpecError if there is no such folder, `[tool.opcheck]` has a mistake, or a plugin cannot be imported.
    """
    if project is not None and not Path(project).is_dir():
        file, line = caller()
        raise SpecError([Problem(shown(Path(file)), line, 1, f'no such folder: "{project}"', "a folder of a project")])
    settings = Settings.find(folder_of(caller()[0]) if project is None else Path(project))
    load_plugins(settings)
    return settings


def _spec_paths(specs: Iterable[str | Path], settings: Settings) -> list[Path]:
    """Return the paths of specs that the calling file names. Raises SpecError at the line of the call, or TypeError."""
    file, line = caller()
    folder, paths, problems = folder_of(file), [], []
    for spec in specs:
        if not isinstance(spec, (str, os.PathLike)):
            raise TypeError(f"specs are paths, each an argument of its own, not {type(spec).__name__}")
        path = folder / spec
        if not path.exists() and Path(spec).parts[:1] == (BUILTIN,):
            path = Path(spec)
        elif not path.exists() and Path(file).is_file():
            problems.append(_missing(Path(file), line, spec, path, settings))
        paths.append(path)
    if problems:
        raise SpecError(problems)
    return paths


def _missing(file: Path, line: int, spec: str | Path, path: Path, settings: Settings) -> Problem:
    """Return the problem of a path that does not exist, with what it probably means: another base or another word."""
    near = next((base / spec for base in (Path.cwd(), settings.root) if (base / spec).exists()), None)
    if near is None and path.parent.is_dir():
        siblings = [each.name for each in path.parent.iterdir() if each.is_dir() or each.suffix == ".toml"]
        likely = nearest(path.name, siblings)
        near = path.parent / likely if likely else None
    where = shown(path)
    what = f'no such file or folder: "{spec}"' + (f", which means {where}" if where != str(spec) else "")
    expected = "a path relative to the folder of this file, or builtin"
    return Problem(shown(file), line, 1, what, expected, os.path.relpath(near, file.parent) if near else "")


def seed_of(seed: int | None, settings: Settings) -> int:
    """Return the given seed, or the seed of the project for None. Raises ValueError unless it is an integer >= 0."""
    if seed is None:
        return settings.seed
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed = {seed!r} is not a seed; expected a whole number of at least 0")
    return seed
