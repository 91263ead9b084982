"""Ids and paths on the command line, which pytest would split at `::` and `[`."""

from __future__ import annotations

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
            from opcheck.cli.paths import split_id, unsplit

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
