"""Finds the caller of a public function: its file and line, its project, and the specs that it names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from opcheck.planning.kinds import load_plugins
from opcheck.settings import Settings
from opcheck.spec.document import shown
from opcheck.spec.load import BUILTIN
from opcheck.spec.problems import Problem, SpecError, nearest

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

    Raises SpecError if `[tool.opcheck]` has a mistake, or a plugin cannot be imported.
    """
    settings = Settings.find(folder_of(caller()[0]) if project is None else Path(project))
    load_plugins(settings)
    return settings


def spec_paths(specs: Iterable[str | Path], settings: Settings) -> list[Path]:
    """Return where specs are that the calling file names, relative to its folder.

    Raises SpecError, at the line of the call, if one is not there.
    """
    file, line = caller()
    folder = folder_of(file)
    paths = [_path(spec, folder) for spec in specs]
    if Path(file).is_file():
        missing = [(spec, path) for spec, path in zip(specs, paths, strict=True) if not _is_there(path)]
        if missing:
            raise SpecError(_missing(Path(file), line, spec, path, settings) for spec, path in missing)
    return paths


def _path(spec: str | Path, folder: Path) -> Path:
    beside = folder / spec
    return Path(spec) if Path(spec).parts[:1] == (BUILTIN,) and not beside.exists() else beside


def _is_there(path: Path) -> bool:
    return path.exists() or path.parts[0] == BUILTIN


def _missing(file: Path, line: int, spec: str | Path, path: Path, settings: Settings) -> Problem:
    """Return the mistake. For a path relative to the current folder or to the project, it names the right one."""
    near = next((base / spec for base in (Path.cwd(), settings.root) if (base / spec).exists()), None)
    if near is None and path.parent.is_dir():
        siblings = [each.name for each in path.parent.iterdir() if each.is_dir() or each.suffix == ".toml"]
        likely = nearest(path.name, siblings)
        near = path.parent / likely if likely else None
    what = f'no such file or folder: "{spec}", which means {shown(path)}'
    expected = "a path relative to the folder of this file, or builtin"
    return Problem(shown(file), line, 1, what, expected, os.path.relpath(near, file.parent) if near else "")


def seed_of(seed: int | None, settings: Settings) -> int:
    """Return the given seed, or that of the project for None. Raises ValueError unless it is an integer >= 0."""
    if seed is None:
        return settings.seed
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed = {seed!r} is no seed; expected a whole number of at least 0")
    return seed
