"""A mistake in a spec, on one line: where it is, what is wrong, what was expected, the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from opcheck.spec.positions import KeyPath
from opcheck.text import printable, shortened

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LONGEST = 300
"""The maximum length of `what` in a message, in characters. `expected` may be three times as long."""


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake. `str()` is one printable line: `file:line:column: what; expected ...; did you mean "..."?`."""

    file: str
    line: int
    column: int
    what: str
    expected: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        text = worded(
            shortened(self.what, LONGEST, end=LONGEST // 3),
            shortened(self.expected, 3 * LONGEST, end=LONGEST),
            shortened(self.nearest, LONGEST),
        )
        return printable(" ".join(f"{self.file}:{self.line}:{self.column}: {text}".split()), most=None)


class Mistake(NamedTuple):
    """A mistake at a place in a table. Unlike a Problem, it does not include where the table is written."""

    place: KeyPath
    what: str
    expected: str = ""
    nearest: str = ""
    key: bool = False
    """Whether the key is wrong, rather than the value."""


def place_of(entry: EntryPoint) -> str:
    """Return what stands for the file in a problem with an entry point of an installed package."""
    return f"entry point {entry.name}" + (f" of {entry.dist.name}" if entry.dist is not None else "")


class SpecError(Exception):
    """Raised for mistakes in specs or settings. The message has a line for each; `error.problems` lists them.

    Example:
        >>> import opcheck
        >>> try:
        ...     opcheck.load("no_such_folder")
        ... except opcheck.SpecError as error:
        ...     print(error)
        no_such_folder:1:1: no such file or folder; expected a TOML file, a folder of them, or builtin
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        super().__init__("\n".join(map(str, self.problems)))


class RequestError(SpecError):
    """A request that fails for reasons without a position in a spec, such as a report that cannot be read.

    lines: the reasons, one for each line of the message. prefix: the beginning of each line.
    """

    def __init__(self, lines: Iterable[str], prefix: str = "opcheck: ") -> None:
        super().__init__([])
        self.args = ("\n".join(printable(f"{prefix}{line}", lines=True, most=100_000) for line in lines),)


def nearest(word: object, choices: Iterable[str]) -> str:
    """Return the choice that was probably meant by `word`, or an empty string."""
    text = str(word)
    close = difflib.get_close_matches(text, list(choices), n=1) if len(text) <= LONGEST else []
    return close[0] if close else ""


def unknown(what: str, name: object, choices: Iterable[object], most: int = 12) -> tuple[str, str, str]:
    """Return what is wrong with a name that is not among the choices, what was expected, and the nearest choice.

    A position has no nearest choice.
    """
    known = tuple(dict.fromkeys(map(str, choices)))
    return f'unknown {what} "{name}"', listing(known, most), nearest(name, known) if isinstance(name, str) else ""


def worded(what: str, expected: str = "", nearest: str = "") -> str:
    """Return the text of a mistake: what is wrong, and, if known, what was expected and the nearest valid name."""
    text = f"{what}; expected {expected}" if expected else what
    return f'{text}; did you mean "{nearest}"?' if nearest else text


def listing(choices: Iterable[str], most: int = 12) -> str:
    """Return the choices as text. If there are more than `most`, return the first ones and the total number."""
    names = list(choices)
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:most])
    return f"one of {shown}" + (f", ... ({len(names)} in all)" if len(names) > most else "")
