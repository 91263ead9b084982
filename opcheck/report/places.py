"""Says where files are in words that mean the same on another machine."""

from __future__ import annotations

from pathlib import Path

from opcheck.spec.load import BUILTIN, builtin_folder


def within(root: Path, path: Path) -> str:
    """Return a path relative to the root of a project, or to the shipped library (`builtin/...`), if it is inside."""
    path = path.resolve()
    for folder, prefix in ((root.resolve(), Path()), (builtin_folder().resolve(), Path(BUILTIN))):
        if folder in (path, *path.parents):
            return (prefix / path.relative_to(folder)).as_posix()
    return path.as_posix()
