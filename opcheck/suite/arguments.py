"""Ids and paths on the command line, which pytest would split at `::` and `[`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from opcheck.suite.project import Plugin


def take_apart(plugin: Plugin) -> None:
    """Keep ids apart from files, and let pytest see of paths what it does not split: at :: and [, which occur in both.

    Where that is a folder around what was asked for, the rest of it is ignored: see `was_asked_for`.
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
        asked = path if path.exists() else base / arg.split("::")[0]
        plugin.requested.append(asked.resolve())


def was_asked_for(plugin: Plugin, path: Path) -> bool:
    """Tell whether a path is one that was asked for, or around or below one."""
    here = path.resolve()
    return any(path in (here, *here.parents) or here in path.parents for path in plugin.requested)


def split_id(text: str, base: Path = Path()) -> tuple[str, str]:
    """Take `FILE::ID` apart. The id is empty where a file or a folder is named alone.

    A folder may have `::` in its name, too: the file is the first one that exists.
    """
    if not (base / text).exists():
        files = [text[: found.end() - 2] for found in re.finditer(r"\.toml::", text)]
        for file in [file for file in files if (base / file).is_file()] or files[:1]:
            return file, text[len(file) + 2 :]
    return text, ""


def unsplit(path: str, base: Path) -> str:
    """Return the path, as seen from a folder, that pytest takes as a whole: it splits arguments at `[` and `::`.

    Where there is none, it is that of the nearest folder around it.
    """
    if not any(sign in str(base / path) for sign in SPLIT_AT):
        return path
    relative = os.path.relpath(base / path, base)
    while any(sign in relative for sign in SPLIT_AT):
        relative = os.path.dirname(relative) or os.curdir
    return relative


SPLIT_AT = ("[", "::")
