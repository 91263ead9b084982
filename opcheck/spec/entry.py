"""One `[[operator]]` as it is written: its own keys over the defaults of its file, and the place of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opcheck.spec.document import Document, holds
from opcheck.spec.operator import Defaults
from opcheck.spec.positions import Path
from opcheck.spec.problems import Problem


@dataclass(frozen=True, eq=False)
class Entry:
    """The operator at one index of a document."""

    document: Document
    index: int

    @property
    def own(self) -> dict[str, Any]:
        """The keys that the operator writes itself."""
        entry: dict[str, Any] = self.document.data["operator"][self.index]
        return entry

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the file, less keys that cannot stand there."""
        table = self.document.data.get("defaults")
        return {key: table[key] for key in table if key in Defaults.model_fields} if isinstance(table, dict) else {}

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The operator as parsed TOML, with the defaults merged under it."""
        merged: dict[str, Any] = merge(self.defaults, self.own)
        return merged

    def place(self, path: Path) -> Path:
        """Return where in the document a merged value is written: in the operator, or in the defaults of its file."""
        inherited = bool(path) and not holds(self.own, path) and holds(self.defaults, path)
        inherited = inherited or (bool(path) and path[0] not in self.own and path[0] in self.defaults)
        return (*(("defaults",) if inherited else ("operator", self.index)), *path)

    def problem(self, path: Path, what: str, expected: str = "", nearest: str = "", *, key: bool = False) -> Problem:
        """Return a mistake at the place of a merged value (or key)."""
        return self.document.problem(self.place(path), what, expected, nearest, key=key)


def merge(base: Any, top: Any) -> Any:
    """Merge parsed TOML: tables key by key, everything else is replaced."""
    if isinstance(base, dict) and isinstance(top, dict):
        return base | {key: merge(base[key], value) if key in base else value for key, value in top.items()}
    return top
