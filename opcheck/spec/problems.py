"""A mistake in a spec, told in one line: where it is, what is wrong, what was expected, the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake. `str()` gives `file:line:column: what; expected ...; did you mean "..."?`."""

    file: str
    line: int
    column: int
    what: str
    expected: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.what}"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.nearest:
            text += f'; did you mean "{self.nearest}"?'
        return " ".join(text.split())


class SpecError(Exception):
    """All mistakes of a request at once, in the order of files and lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        super().__init__("\n".join(map(str, self.problems)))


def nearest(word: object, choices: Iterable[str]) -> str:
    """Return the choice that `word` was probably meant to be, or an empty string."""
    found = difflib.get_close_matches(str(word), list(choices), n=1, cutoff=0.6)
    return found[0] if found else ""


def listing(choices: Iterable[str], most: int = 12) -> str:
    """Return the choices as text, cut where a person would stop reading."""
    names = list(choices)
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:most])
    return f"one of {shown}" + (f", ... ({len(names)} in all)" if len(names) > most else "")
