"""The position of each key and value of a TOML document in its text.

tomli returns the data without positions, but an error message needs the line and the column. The scanner below reads
the text a second time, after tomli has accepted it. So it need not detect invalid documents: it treats a comma as a
blank and any word as a number, and skips a line that it cannot parse.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

import tomli

KeyPath = tuple[str | int, ...]
"""The keys and array indices that lead to a value: `("operator", 3, "samples", 0, "args", 1, "shape")`."""

LONGEST = 100
"""The maximum length of a path. Values below are not told apart: a spec with half as many levels is rejected."""

_Extent = tuple[int, int]  # start and end (exclusive), in characters of the text


@dataclass(frozen=True)
class Span:
    """A stretch of the text: two offsets, and the line and column of its first character."""

    start: int
    end: int  # exclusive
    line: int  # counted from 1
    column: int  # counted from 1, in characters


# In """...""", one or two quotes are text and three end it, but up to two quotes of the text may come right before
# those three: hence {3,5}, here and for '''...'''.
_LONG_BASIC = r'"""[^"\\]*(?:(?:\\.|""?(?!"))[^"\\]*)*"{3,5}'
_LONG_LITERAL = r"'''.*?'{3,5}"
_BASIC = r'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"'
_LITERAL = r"'[^'\n]*'"
_WORD = r"""[^\s,\[\]{}#="']+"""  # numbers, booleans, dates: up to a character that can follow a value
_SPACED_DATE = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:{_WORD}"  # the only word that contains a blank

# A value starts with a bracket, or is a whole scalar.
_VALUE = re.compile("|".join([r"[\[{]", _LONG_BASIC, _LONG_LITERAL, _BASIC, _LITERAL, _SPACED_DATE, _WORD]), re.DOTALL)
_KEY = re.compile(rf"[ \t]*([A-Za-z0-9_-]+|{_BASIC}|{_LITERAL})[ \t]*(\.?)")
_EQUALS = re.compile(r"=[ \t]*")
_HEADER_OPEN = re.compile(r"\[\[?")
_HEADER_CLOSE = re.compile(r"\]\]?")
# Between statements, and between the elements of an array or inline table. Nothing may follow the last *: the pattern
# could then backtrack, even into the middle of a comment.
_GAP = re.compile(r"(?:[ \t\r\n,]+|#[^\n]*)*")
_REST_OF_LINE = re.compile(r"[^\n]*")


class _Lost(Exception):
    """Raised where the text is not valid TOML."""


class Positions:
    """The positions of all keys and values of one document.

    `key` and `value` return None for a path that the document does not contain.
    """

    def __init__(self, text: str) -> None:
        """Scan `text`, a document that tomli has accepted. In any other text, scan as much as possible."""
        self._line_starts = [0, *(newline.end() for newline in re.finditer("\n", text))]
        self._keys: dict[KeyPath, _Extent] = {}  # nothing for elements of arrays
        self._values: dict[KeyPath, _Extent] = {(): (0, len(text))}  # nothing for tables that are only mentioned
        self._lengths: dict[KeyPath, int] = {}  # of arrays
        self._repeated: _Extent | None = None
        self._text = text
        self._pos = 0
        self._end = 0  # of the last statement; blanks and comments after it do not belong to a table
        self._table: KeyPath = ()  # the table that `key = value` lines belong to
        self._open: list[tuple[KeyPath, int]] = []  # tables whose text continues, and where their headers start
        self._scan()

    def key(self, path: KeyPath) -> Span | None:
        """Return the position of the last component of `path`, as a key.

        For `a.b.c = 1` and `[a.b.c]` this is the component alone; for entry i of an array of tables, the name in the
        i-th header. For something without a key (an array's element, the document) it is the position of the value.
        """
        extent = self._keys.get(path) or self._values.get(path)
        return extent and self._span(extent)

    def value(self, path: KeyPath) -> Span | None:
        """Return the position of the value at `path`.

        A value after `=` or in an array spans its whole text. A `[table]`, or an entry of an array of tables, spans
        from its header to the end of its last non-empty line, including the sub-tables that follow it directly. A
        table without a header of its own, or an array of tables as a whole, is the name where it is first mentioned.
        The document, path `()`, is the whole text.
        """
        extent = self._values.get(path) or self._keys.get(path)
        return extent and self._span(extent)

    def repeated(self) -> Span | None:
        """Return the position of the first key that is assigned a second time, which TOML forbids; None without one."""
        return self._repeated and self._span(self._repeated)

    def _span(self, extent: _Extent) -> Span:
        start, end = extent
        line = bisect_right(self._line_starts, start)
        # Nothing follows the \r of a line end, so it never shifts a column.
        return Span(start, end, line, start - self._line_starts[line - 1] + 1)

    def _scan(self) -> None:
        self._take(_GAP)
        while self._pos < len(self._text):
            try:
                if self._text[self._pos] == "[":
                    self._header()
                else:
                    self._value(self._assigned(self._table))
                self._end = self._pos
            except _Lost:
                pass  # the next line may be valid again
            self._take(_REST_OF_LINE)
            self._take(_GAP)
        self._close_tables(inside=None)

    def _take(self, token: re.Pattern[str]) -> re.Match[str]:
        """Match a token and move past it. Raises _Lost if it is not there."""
        match = token.match(self._text, self._pos)
        if match is None:
            raise _Lost
        self._pos = match.end()
        return match

    def _header(self) -> None:
        """Read `[a.b]` or `[[a.b]]`, and make it the current table."""
        start = self._pos
        is_entry = self._take(_HEADER_OPEN)[0] == "[["
        *above, (name, written) = self._names()
        self._take(_HEADER_CLOSE)
        path: KeyPath = ()
        for one, extent in above:
            path = _below(path, one)
            self._keys.setdefault(path, extent)
            if path in self._lengths:  # the name of an array of tables refers to its last entry
                path = _below(path, self._lengths[path] - 1)
        self._close_tables(inside=path)
        path = _below(path, name)
        if is_entry:
            self._keys.setdefault(path, written)
            path = self._appended(path)
        self._keys[path] = written  # takes precedence over an earlier mention, as the `a` of [a.b]
        self._table = path
        self._open.append((path, start))

    def _close_tables(self, inside: KeyPath | None) -> None:
        """End all tables, except those around a path, at the end of the last statement."""
        while self._open and (inside is None or inside[: len(self._open[-1][0])] != self._open[-1][0]):
            table, start = self._open.pop()
            self._values[table] = (start, self._end)

    def _appended(self, array: KeyPath) -> KeyPath:
        """Return the path of a further element of an array."""
        index = self._lengths.get(array, 0)
        self._lengths[array] = index + 1
        return _below(array, index)

    def _names(self) -> list[tuple[str, _Extent]]:
        """Read a key, including dots and the blanks around them. Return each component, and where it is written."""
        names: list[tuple[str, _Extent]] = []
        while True:
            match = self._take(_KEY)
            names.append((_decoded(match[1]), match.span(1)))
            if not match[2]:
                return names

    def _assigned(self, table: KeyPath) -> KeyPath:
        """Read `a.b.c =` and return the path of that name below `table`."""
        names = self._names()
        self._take(_EQUALS)
        path = table
        for name, extent in names:
            path = _below(path, name)
            self._keys.setdefault(path, extent)
        if path in self._values and self._repeated is None:
            self._repeated = names[-1][1]
        return path

    def _value(self, path: KeyPath) -> None:
        """Read the value of a path.

        Open brackets are kept in a list. tomli allows 400 levels of nesting, so a recursive function could exceed
        Python's recursion limit.
        """
        brackets: list[tuple[KeyPath, int]] = []
        while True:
            start = self._pos
            if self._take(_VALUE)[0] in ("[", "{"):
                brackets.append((path, start))
            else:
                self._values[path] = (start, self._pos)
            while brackets:
                self._take(_GAP)
                if not self._text.startswith(("]", "}"), self._pos):
                    break
                self._pos += 1
                container, start = brackets.pop()
                self._values[container] = (start, self._pos)
            if not brackets:
                return
            container, start = brackets[-1]
            path = self._assigned(container) if self._text[start] == "{" else self._appended(container)


def _below(path: KeyPath, part: str | int) -> KeyPath:
    return (*path, part) if len(path) < LONGEST else path


def _decoded(token: str) -> str:
    """Return the name that a bare or quoted key stands for."""
    if token[0] not in "\"'":
        return token
    if token[0] == '"' and "\\" in token:
        try:
            return str(tomli.loads("k = " + token)["k"])
        except tomli.TOMLDecodeError:
            pass  # not a valid escape in TOML
    return token[1:-1]
