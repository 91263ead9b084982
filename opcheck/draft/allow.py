"""Adds a module to `[tool.opcheck]` in the pyproject.toml of a project. Comments in the file are kept."""

from __future__ import annotations

import tomlkit
from tomlkit.items import Array

from opcheck.settings import FOLDER, Settings
from opcheck.spec.document import PROJECT


def allow(module: str, settings: Settings) -> list[str]:
    """Add a module, and a folder of specs if none is set, to the settings. Return what was added, in words.

    If the project has no pyproject.toml, create one in the current folder.
    """
    path = settings.root / PROJECT
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    document = tomlkit.parse(text)
    tool = document.setdefault("tool", tomlkit.table(is_super_table=True))
    table = tool.setdefault("opcheck", tomlkit.table())
    said = []
    if not settings.specs:
        table["specs"] = [FOLDER]
        said.append(f'specs = ["{FOLDER}"]')
    if module not in settings.modules:
        listed = table.get("modules")
        if isinstance(listed, Array):
            listed.append(module)
        else:
            table["modules"] = [*settings.modules, module]
        said.append(f'"{module}" among its modules')
    if said:
        path.write_text(tomlkit.dumps(document), encoding="utf-8")
    return said
