"""Finds the caller of a public function: its file and line, and its project."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from opcheck.plan.plugins import load_plugins
from opcheck.settings import Settings

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


def seed_of(given: int | None, settings: Settings) -> int:
    """Return the given seed, or that of the project for None. Raises ValueError unless it is an integer >= 0."""
    if given is None:
        return settings.seed
    if not isinstance(given, int) or given < 0:
        raise ValueError(f"seed = {given!r} is no seed; expected a whole number of at least 0")
    return given
