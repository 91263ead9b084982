"""Allows a module in the settings of a project: `[tool.opcheck]` in its pyproject.toml, whose comments stay."""

from __future__ import annotations

import tomlkit
from tomlkit.items import Array

from opcheck.settings import FOLDER, Settings
from opcheck.spec.document import PROJECT


def allow(module: str, settings: Settings) -> list[str]:
    """Add a module, and a folder of specs if there is none, to the settings. Return what was added, in words.

    A pyproject.toml is made in the current folder if the project has none.
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
