"""One `[[operator]]` as written: its keys merged over the defaults of its file, and the position of each key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opcheck.spec.claims import in_full
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
        """The keys written in the operator itself."""
        entry: dict[str, Any] = self.document.data["operator"][self.index]
        return entry

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the file, without keys that are not allowed there."""
        table = self.document.data.get("defaults")
        return {key: table[key] for key in table if key in Defaults.model_fields} if isinstance(table, dict) else {}

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The operator as parsed TOML, merged over the defaults."""
        merged: dict[str, Any] = merge(_spelled_out(self.defaults), _spelled_out(self.own))
        return merged

    def place(self, path: Path) -> Path:
        """Return the path in the document of a merged value, which is in the operator or in the defaults."""
        if path[:1] == ("dtypes",) and isinstance(self.own.get("dtypes"), (str, list)):
            path = ("dtypes", *(path[2:] if isinstance(self.own["dtypes"], list) else ()))
        inherited = bool(path) and not holds(self.own, path) and holds(self.defaults, path)
        inherited = inherited or (bool(path) and path[0] not in self.own and path[0] in self.defaults)
        return (*(("defaults",) if inherited else ("operator", self.index)), *path)

    def problem(self, path: Path, what: str, expected: str = "", nearest: str = "", *, key: bool = False) -> Problem:
        """Return a problem at the position of a merged value (or key)."""
        return self.document.problem(self.place(path), what, expected, nearest, key=key)


def _spelled_out(keys: dict[str, Any]) -> dict[str, Any]:
    """Return the keys with `dtypes` as a table, which can be merged with another one."""
    return keys | {"dtypes": in_full(keys["dtypes"])} if "dtypes" in keys else keys


def merge(base: Any, top: Any) -> Any:
    """Merge parsed TOML. Tables are merged key by key; any other value of `top` replaces that of `base`."""
    if isinstance(base, dict) and isinstance(top, dict):
        return base | {key: merge(base[key], value) if key in base else value for key, value in top.items()}
    return top
