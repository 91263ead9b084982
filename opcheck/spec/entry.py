"""One `[[operator]]` as written: its keys merged over the defaults of its file, and the position of each key.

The `per_torch` tables of the defaults and of the operator, for versions of torch, are merged directly over the table
that contains them if the installed torch meets the condition. Finally each `per_device` table is merged over the
result. Tables are merged as parsed TOML, and validated once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from opcheck.spec.claims import in_full
from opcheck.spec.document import Document, merge, written
from opcheck.spec.operator import Defaults, PerDevice
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Problem
from opcheck.spec.versions import torch_meets


@dataclass(frozen=True, eq=False)
class Entry:
    """The operator at one index of a document."""

    document: Document
    index: int
    meeting: Collection[str] | None = None
    """The conditions of `per_torch` to treat as met; None: those that the installed torch meets."""

    @property
    def _written(self) -> list[tuple[KeyPath, dict[str, Any]]]:
        """The defaults of the file, without keys that are not allowed there, and the operator itself."""
        table = self.document.at(("defaults",))
        defaults = {key: table[key] for key in table if key in Defaults.model_fields}
        return [(("defaults",), defaults), (("operator", self.index), self.document.data["operator"][self.index])]

    @cached_property
    def layers(self) -> list[tuple[KeyPath, dict[str, Any]]]:
        """The tables to merge, with their paths: the defaults and the operator, each before its `per_torch` tables.

        `dtypes` is expanded to a table in each, so that it can be merged.
        """
        layers = []
        for path, table in self._written:
            layers.append((path, table))
            layers += [((*path, "per_torch", one), keys) for one, keys in _per_torch(table) if self._is_met(one)]
        return [(path, _spelled_out(table)) for path, table in layers]

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The operator as parsed TOML: its layers merged in order, and each `per_device` table merged over that."""
        whole: dict[str, Any] = reduce(merge, (table for _, table in self.layers))
        if isinstance(whole.get("per_device"), dict):
            base = {key: whole[key] for key in PerDevice.model_fields if key in whole}
            whole["per_device"] = {name: merge(base, keys) for name, keys in whole["per_device"].items()}
        return whole

    def under_others(self) -> Iterator[Entry]:
        """Yield the operator without `per_torch`, and under each of its conditions alone; nothing if it has none."""
        conditions = dict.fromkeys(condition for _, table in self._written for condition, _ in _per_torch(table))
        if conditions:
            yield from (Entry(self.document, self.index, met) for met in ((), *((one,) for one in conditions)))

    def _is_met(self, condition: str) -> bool:
        if self.meeting is not None:
            return condition in self.meeting
        try:
            return torch_meets(condition, without=False)
        except ValueError:  # a mistake, which the model reports
            return False

    def place(self, path: KeyPath) -> KeyPath:
        """Return the path in the document of a merged value. The last layer that has the value provides it.

        A value under `per_device` may come from the operator. If no layer has the value, the last one with its first
        key is used.
        """
        inherited = path[2:] if path[:1] == ("per_device",) else ()
        for wanted, place in ((path, path), (inherited, inherited), (path[:1], path)):
            for prefix, table in reversed(self.layers):
                if wanted and written(table, wanted) == wanted:
                    return written(self.document.data, (*prefix, *place))
        return ("operator", self.index, *path)

    def problem(self, path: KeyPath, what: str, expected: str = "", nearest: str = "", key: bool = False) -> Problem:
        """Return a problem at the position of a merged value (or key)."""
        return self.document.problem(self.place(path), what, expected, nearest, key)


def _per_torch(table: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the conditions in `per_torch` of a table, and the keys that apply under each, without invalid entries."""
    listed = table.get("per_torch")
    return [(key, keys) for key, keys in listed.items() if isinstance(keys, dict)] if isinstance(listed, dict) else []


def _spelled_out(keys: Any) -> Any:
    """Return a table of an operator with each `dtypes`, also under `per_device`, expanded to a table."""
    if not isinstance(keys, dict):
        return keys
    spelled, dtypes = keys, keys.get("dtypes")
    if isinstance(dtypes, str) or (isinstance(dtypes, list) and all(isinstance(one, str) for one in dtypes)):
        spelled = keys | {"dtypes": in_full(dtypes)}  # the model reports elements that are not strings
    if isinstance(keys.get("per_device"), dict):
        spelled = spelled | {"per_device": {name: _spelled_out(one) for name, one in keys["per_device"].items()}}
    return spelled
