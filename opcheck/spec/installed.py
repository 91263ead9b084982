"""Folders of device profiles that installed packages bring. Nothing of these packages is imported."""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from opcheck.spec.problems import Problem

GROUP = "opcheck.devices"
"""The group of entry points. The value of each names a folder as a package: `torch_npu.opcheck`."""


def installed_folders() -> tuple[list[Path], list[Problem]]:
    """Return the folders, and a mistake for each entry point whose folder does not exist."""
    folders: list[Path] = []
    problems: list[Problem] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        own = _folders(entry.value)
        folders += own
        problems += [] if own else [_problem(entry)]
    return list(dict.fromkeys(folders)), problems


def _folders(package: str) -> list[Path]:
    """Return the folders that the name of a package stands for.

    Only its first part is looked up, since to look up a subpackage imports what is around it.
    """
    first, *rest = package.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return []
    places = spec.submodule_search_locations if spec is not None else None
    return [folder for folder in (Path(place, *rest) for place in places or ()) if folder.is_dir()]


def _problem(entry: EntryPoint) -> Problem:
    brought = f" of {entry.dist.name}" if entry.dist is not None else ""
    where = f"entry point {entry.name}{brought}"
    return Problem(
        where, 1, 1, f'{GROUP}: "{entry.value}" is no folder of an installed package', "such as mypackage.devices"
    )
