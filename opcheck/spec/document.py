"""A TOML file: its text, its data, and where each value is in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli

from opcheck.spec.extremes import DEEPEST, LARGE, NESTED, extremes
from opcheck.spec.files import decoded, read_bytes, shown
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.positions import Positions, Span
from opcheck.spec.problems import Problem, SpecError

ENDLESS = re.compile(r"[+-]?[0-9_]{1000,}")
"""An integer so long that Python may refuse to parse it."""


@dataclass(frozen=True)
class Document:
    """A parsed TOML file. `file` is the name shown to people, relative if possible."""

    file: str
    text: str
    data: dict[str, Any]

    @classmethod
    def read(cls, path: Path, within: KeyPath = ()) -> Document:
        """Read a file. Raises SpecError if it cannot be read, is not valid TOML, or exceeds the bounds of a spec.

        within: the path of the only table that belongs to opcheck, if the rest of the file does not.
        """
        return cls.parse(shown(path), decoded(read_bytes(path), path), within)

    @classmethod
    def parse(cls, file: str, text: str, within: KeyPath = ()) -> Document:
        """Parse the text of a file. Raises SpecError as `read` does."""
        try:
            document = cls(file, text, tomli.loads(text))
        except tomli.TOMLDecodeError as error:
            raise SpecError([Problem(file, error.lineno, error.colno, f"invalid TOML: {error.msg}")]) from None
        except (ValueError, RecursionError) as error:
            raise SpecError([_too_much(file, text, str(error))]) from None
        problems = [
            document.problem((*within, *path), what, expected, key=key)
            for path, key, what, expected in extremes(document.at(within))
        ]
        if problems:
            raise SpecError(problems)
        return document

    def at(self, path: KeyPath) -> dict[str, Any]:
        """Return the table at a path, or an empty table if there is none."""
        table: Any = self.data
        for part in path:
            table = table.get(part) if isinstance(table, dict) else None
        return table if isinstance(table, dict) else {}

    @cached_property
    def positions(self) -> Positions:
        """The positions of keys and values. Computed on demand, since a document without mistakes seldom needs them."""
        return Positions(self.text)

    def span(self, path: KeyPath, *, key: bool = False) -> Span:
        """Return the position of a value (or key), or of the innermost table around it that appears in the text."""
        while path:
            span = self.positions.key(path) if key else self.positions.value(path)
            if span:
                return span
            path = path[:-1]
        return Span(0, len(self.text), 1, 1)

    def line(self, path: KeyPath) -> int:
        """Return the line on which a value begins."""
        return self.span(path).line

    def problem(self, path: KeyPath, what: str, expected: str = "", nearest: str = "", *, key: bool = False) -> Problem:
        """Return a problem at the position of a value (or key)."""
        span = self.span(path, key=key)
        return Problem(self.file, span.line, span.column, what, expected, nearest)


def _too_much(file: str, text: str, why: str) -> Problem:
    """Return the problem that made the parser give up: an overlong integer, or tables nested too deeply."""
    for depth, span in Positions(text).values():
        if depth > DEEPEST:
            return Problem(file, span.line, span.column, *NESTED)
        if ENDLESS.fullmatch(text, span.start, span.end):
            return Problem(file, span.line, span.column, *LARGE)
    return Problem(file, 1, 1, f"TOML that cannot be read: {why}")


def holds(data: Any, path: KeyPath) -> bool:
    """Return whether a path exists in parsed TOML."""
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def merge(base: Any, top: Any) -> Any:
    """Merge parsed TOML. Tables are merged key by key; any other value of `top` replaces that of `base`."""
    if isinstance(base, dict) and isinstance(top, dict):
        return base | {key: merge(base[key], value) if key in base else value for key, value in top.items()}
    return top
