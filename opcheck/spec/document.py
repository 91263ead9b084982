"""A TOML file by an untrusted author: its text, its data, and the position of each value in the text.

Only regular files of bounded size are read. Control characters, integers beyond 64 bits and very deep nesting, which
TOML allows but no spec needs, are rejected here, so that later code need not handle them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli

from opcheck.spec.positions import KeyPath, Positions, Span
from opcheck.spec.problems import Mistake, Problem, SpecError, worded

PROJECT = "pyproject.toml"
OTHERS = (PROJECT, ".taplo.toml", "taplo.toml")
"""Names of TOML files that are never specs, in any folder."""
MOST_BYTES = 4 * 2**20
MOST_VALUES = 200_000
"""The maximum number of values in one file. The largest shipped specs have a few thousand."""
DEEPEST = 50
NESTED = ("this is nested too deeply", f"at most {DEEPEST} levels of tables and arrays")
LARGE = ("an integer beyond 64 bits", "-2^63 to 2^63 - 1")
INTEGERS = range(-(2**63), 2**63)
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters except tab and line ends, and characters that change the direction of text."""


IN_TOML = {"None": "{ none = true }", "True": "true", "False": "false"}
"""Constants of Python, as a spec writes them."""


@dataclass(frozen=True)
class Document:
    """A parsed TOML file. `file` is the name shown in messages, relative if possible."""

    file: str
    text: str
    data: dict[str, Any]

    @classmethod
    def read(cls, path: Path, within: KeyPath = ()) -> Document:
        """Read a file. Raises SpecError if it cannot be read, is not valid TOML, or exceeds the bounds of a spec.

        within: the path of the only table to validate, if the rest of the file does not belong to opcheck.
        """
        return cls.parse(shown(path), decoded(read_bytes(path), path), within)

    @classmethod
    def parse(cls, file: str, text: str, within: KeyPath = ()) -> Document:
        """Parse the text of a file. Raises SpecError as `read` does."""
        try:
            document = cls(file, text, tomli.loads(text))
        except tomli.TOMLDecodeError as error:
            again = Positions(text[: error.pos]).repeated()
            if again is not None and again.start < error.pos:  # else it comes after the mistake
                what = f"the key {text[again.start : again.end]} is assigned a second time"
                raise SpecError([Problem(file, again.line, again.column, what, "each key once")]) from None
            meant = next((IN_TOML[word] for word in IN_TOML if text.startswith(word, error.pos)), "")
            what = worded(f"invalid TOML: {error.msg}", nearest=meant)
            raise SpecError([Problem(file, error.lineno, error.colno, what)]) from None
        except (ValueError, RecursionError) as error:  # an integer of thousands of digits, hundreds of levels
            raise SpecError([Problem(file, 1, 1, f"TOML that cannot be read: {error}")]) from None
        problems = [document.problem(*mistake) for mistake in _extremes(document.at(within), within)]
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

    def problem(self, path: KeyPath, what: str, expected: str = "", nearest: str = "", key: bool = False) -> Problem:
        """Return a problem at the position of a value (or key)."""
        span = self.span(path, key=key)
        return Problem(self.file, span.line, span.column, what, expected, nearest)


def shown(path: Path) -> str:
    """Return a path as text for messages: relative to the current folder if it is inside."""
    here = os.getcwd() + os.sep
    for full in (os.path.abspath(path), os.path.realpath(path)):  # much faster than pathlib
        if full.startswith(here):
            return full.removeprefix(here)
    return str(path)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises SpecError if it cannot be read or is too large.

    Only regular files are opened: a pipe would wait for its writer, and a device may never end.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SpecError([Problem(shown(path), 1, 1, "is not a regular file", "a TOML file")])
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SpecError([Problem(shown(path), 1, 1, f"cannot be read: {error.strerror}")]) from None
    if len(content) > MOST_BYTES:
        raise SpecError([Problem(shown(path), 1, 1, "is too large", f"at most {MOST_BYTES // 2**20} MiB")])
    return content


def decoded(content: bytes, path: Path) -> str:
    """Return the text of a file. Raises SpecError if it is not UTF-8."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        *lines, last = content[: error.start].decode("utf-8").split("\n")
        problem = Problem(shown(path), len(lines) + 1, len(last) + 1, "is not UTF-8 text", "a TOML file")
        raise SpecError([problem]) from None
    if text.startswith("\ufeff"):
        raise SpecError([Problem(shown(path), 1, 1, "begins with a byte order mark", "UTF-8 without one")])
    return text


def _extremes(table: dict[str, Any], place: KeyPath) -> Iterator[Mistake]:
    """Yield a mistake for each control character, long integer and deep nesting, and for too many values."""
    count, level = 0, list[tuple[KeyPath, Any]]([(place, table)])
    for _ in range(DEEPEST):
        within: list[tuple[KeyPath, Any]] = []
        for path, node in level:
            count += len(node)
            for key, item in node.items() if isinstance(node, dict) else enumerate(node):
                kind = type(item)
                if isinstance(key, str) and not key.isprintable() and UNSEEN.search(key):
                    yield Mistake((*path, key), *_unseen(f'the key "{key}"', key), key=True)
                if kind is str and not item.isprintable() and UNSEEN.search(item):
                    yield Mistake((*path, key), *_unseen("the text", item))
                elif kind is int and item not in INTEGERS:
                    yield Mistake((*path, key), *LARGE)
                elif kind is dict or kind is list:
                    within.append(((*path, key), item))
        level = within
    yield from (Mistake(path, *NESTED) for path, _ in level)
    if count > MOST_VALUES:
        yield Mistake(place, f"{count} values are too many for one file", f"at most {MOST_VALUES}")


def _unseen(what: str, text: str) -> tuple[str, str]:
    character = ascii(UNSEEN.findall(text)[0])[1:-1]
    return f"{what} contains a control character ({character})", "printable text"


def written(data: Any, path: KeyPath) -> KeyPath:
    """Return the components of a path that exist in parsed TOML, each inside the previous one. Skip the rest."""
    parts: list[int | str] = []
    for part in path:
        if isinstance(data, dict):
            inside = part in data
        else:
            inside = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if inside:
            parts.append(part)
            data = data[part]
    return tuple(parts)


def merge(base: Any, top: Any) -> Any:
    """Merge parsed TOML. Tables are merged key by key; any other value of `top` replaces that of `base`."""
    if isinstance(base, dict) and isinstance(top, dict):
        return base | {key: merge(base[key], value) if key in base else value for key, value in top.items()}
    return top
