"""A TOML file: its text, its data, and the places of both in each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli

from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.positions import Positions, Span
from opcheck.spec.problems import Problem, SpecError


@dataclass(frozen=True)
class Document:
    """A TOML file that has been read. `file` is the name that people see: relative where possible."""

    file: str
    text: str
    data: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a file. Raises SpecError where it cannot be read or is no TOML."""
        name = shown(path)
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise SpecError([Problem(name, 1, 1, f"cannot be read: {error.strerror}")]) from None
        except UnicodeDecodeError as error:
            *lines, last = error.object[: error.start].decode("utf-8").split("\n")
            problem = Problem(name, len(lines) + 1, len(last) + 1, "is not text in UTF-8", "a TOML file")
            raise SpecError([problem]) from None
        if text.startswith("\ufeff"):
            raise SpecError([Problem(name, 1, 1, "begins with a byte order mark", "UTF-8 without one")])
        try:
            return cls(name, text, tomli.loads(text))
        except tomli.TOMLDecodeError as error:
            raise SpecError([Problem(name, error.lineno, error.colno, f"broken TOML: {error.msg}")]) from None
        except (ValueError, RecursionError) as error:
            raise SpecError([Problem(name, 1, 1, f"TOML beyond what can be read: {error}")]) from None

    @cached_property
    def positions(self) -> Positions:
        """Where keys and values stand. Computed on demand: a document without mistakes seldom needs it."""
        return Positions(self.text)

    def span(self, path: KeyPath, *, key: bool = False) -> Span:
        """Return the place of a value (or key), or of the nearest table around it that is written down."""
        while path:
            found = self.positions.key(path) if key else self.positions.value(path)
            if found:
                return found
            path = path[:-1]
        return Span(0, len(self.text), 1, 1)

    def line(self, path: KeyPath) -> int:
        """Return the line on which a value begins."""
        return self.span(path).line

    def problem(self, path: KeyPath, what: str, expected: str = "", nearest: str = "", *, key: bool = False) -> Problem:
        """Return a mistake at the place of a value (or key)."""
        span = self.span(path, key=key)
        return Problem(self.file, span.line, span.column, what, expected, nearest)


def shown(path: Path) -> str:
    """Return a path as a person would type it: relative to the current folder where it lies below."""
    full, here = os.path.realpath(path), os.getcwd() + os.sep  # much faster than pathlib's own way
    return full.removeprefix(here) if full.startswith(here) else str(path)


def holds(data: Any, path: KeyPath) -> bool:
    """Tell whether a path exists in parsed TOML."""
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True
