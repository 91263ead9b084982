"""Paths and case ids on the command line. pytest would split them at `::` and `[`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from opcheck.pytest_plugin.project import Plugin


def take_apart(plugin: Plugin) -> None:
    """Split `FILE::ID` arguments into files and case ids, and leave pytest only paths that it does not split.

    Such a path may be a folder around the requested one. The rest of it is then ignored: see `is_requested`.
    """
    config, base = plugin.config, plugin.config.invocation_params.dir
    for index, arg in enumerate(map(str, config.args)):
        path = base / arg
        if "::" in str(path) or "[" in str(path):
            file, wanted = split_id(arg, base)
            path = (base / file).resolve()
            if wanted:
                plugin.selected.setdefault(path, set()).add(wanted)
            if wanted or path.exists():
                config.args[index] = seen = unsplit(file, base)
                plugin.is_partial |= (base / seen).resolve() != path
        place = path if path.exists() else base / arg.split("::")[0]
        plugin.requested.append(place.resolve())


def is_requested(plugin: Plugin, path: Path) -> bool:
    """Tell whether a path was requested, or lies above or below one that was."""
    here = path.resolve()
    return any(path in (here, *here.parents) or here in path.parents for path in plugin.requested)


def split_id(text: str, base: Path = Path()) -> tuple[str, str]:
    """Split `FILE::ID` into the file and the id. The id is empty if `text` is only a path.

    Folders may have `::` in their names: the file is the first one that exists.
    """
    if not (base / text).exists():
        files = [text[: match.end() - 2] for match in re.finditer(r"\.toml::", text)]
        for file in [file for file in files if (base / file).is_file()] or files[:1]:
            return file, text[len(file) + 2 :]
    return text, ""


def unsplit(path: str, base: Path) -> str:
    """Return a path, relative to `base`, that pytest does not split: it splits arguments at `[` and `::`.

    It is the given path if possible, else the nearest folder around it.
    """
    if not any(sign in str(base / path) for sign in SPLIT_AT):
        return path
    relative = os.path.relpath(base / path, base)
    while any(sign in relative for sign in SPLIT_AT):
        relative = os.path.dirname(relative) or os.curdir
    return relative


SPLIT_AT = ("[", "::")
