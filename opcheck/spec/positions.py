"""The position of each key and value of a TOML document in its text.

tomli returns the data without positions, but an error message needs the line and the column. The scanner below reads
the text a second time, after tomli has accepted it. So it need not detect invalid documents: it treats a comma as a
blank and any word as a number, and skips a line that it cannot parse.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import tomli

Path = tuple[str | int, ...]
"""The keys and array indices that lead to a value: `("operator", 3, "samples", 0, "args", 1, "shape")`."""

_Extent = tuple[int, int]  # start and end (exclusive), in characters of the text
_Key = tuple[str, _Extent]  # one component of a dotted key: its decoded name and where it is written


@dataclass(frozen=True)
class Span:
    """A stretch of the text: two offsets, and the line and column of its first character."""

    start: int
    end: int  # exclusive
    line: int  # counted from 1
    column: int  # counted from 1, in characters


class Positions:
    """The positions of all keys and values of one document.

    `key` and `value` return None for a path that the document does not contain.
    """

    def __init__(self, text: str) -> None:
        """Scan `text`, a document that tomli has accepted. In any other text, scan as much as possible."""
        scanner = _Scanner(text)
        self._root = scanner.scan()
        self._repeated = scanner.repeated
        self._line_starts = [0, *(newline.end() for newline in re.finditer("\n", text))]

    def key(self, path: Path) -> Span | None:
        """Return the position of the last component of `path`, as a key.

        For `a.b.c = 1` and `[a.b.c]` this is the component alone; for entry i of an array of tables, the name in the
        i-th header. For something without a key (an array's element, the document) it is the position of the value.
        """
        node = self._find(path)
        return self._span(node.key or node.value) if node else None

    def value(self, path: Path) -> Span | None:
        """Return the position of the value at `path`.

        A value after `=` or in an array spans its whole text. A `[table]`, or an entry of an array of tables, spans
        from its header to the end of its last non-empty line, including the sub-tables that follow it directly. A
        table without a header of its own, or an array of tables as a whole, is the name where it is first mentioned.
        The document, path `()`, is the whole text.
        """
        node = self._find(path)
        return self._span(node.value or node.key) if node else None

    def values(self) -> Iterator[tuple[int, Span]]:
        """Yield the nesting depth and the position of every value, outer ones first."""
        level, depth = [self._root], 0
        while level:
            for node in level:
                span = self._span(node.value or node.key)
                if span:
                    yield depth, span
            level, depth = [child for node in level for child in node.children.values()], depth + 1

    def repeated(self) -> Span | None:
        """Return the position of the first key that is assigned a second time, which TOML forbids; None without one."""
        return self._span(self._repeated)

    def _find(self, path: Path) -> _Node | None:
        node: _Node | None = self._root
        for component in path:
            node = node.children.get(component) if node else None
        return node

    def _span(self, extent: _Extent | None) -> Span | None:
        if extent is None:
            return None
        start, end = extent
        line = bisect_right(self._line_starts, start)
        # Nothing follows the \r of a line end, so it never shifts a column.
        return Span(start, end, line, start - self._line_starts[line - 1] + 1)


@dataclass(eq=False, slots=True)
class _Node:
    """A table, array or scalar; its children are keyed as in tomli's data, those of an array by 0, 1, 2, ..."""

    key: _Extent | None = None  # None for an array's element
    value: _Extent | None = None  # None for a table that is only mentioned, and for an array of tables
    children: dict[str | int, _Node] = field(default_factory=dict)

    def child(self, name: str, written: _Extent) -> _Node:
        """Return the child with that name, created on first mention."""
        child = self.children.get(name)
        if child is None:
            child = self.children[name] = _Node(key=written)
        return child

    def append(self, key: _Extent | None = None) -> _Node:
        """Add a child at the end of an array."""
        added = self.children[len(self.children)] = _Node(key)
        return added

    def latest(self) -> _Node:
        """Return the last entry of an array of tables, to which its name refers in a header; else the node itself."""
        return self.children.get(len(self.children) - 1, self)


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


class _Scanner:
    """One pass over a document, which builds the tree of its nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._end = 0  # of the last statement; blanks and comments after it do not belong to a table
        self._root = _Node(value=(0, len(text)))
        self._table = self._root  # the table that `key = value` lines belong to
        self.repeated: _Extent | None = None  # the first key that is assigned a second time
        self._open: list[tuple[_Node, int]] = []  # tables whose text continues, and where their headers start

    def scan(self) -> _Node:
        """Read the whole text and return the document's node."""
        while True:
            self._take(_GAP)
            if self._pos >= len(self._text):
                break
            try:
                if self._text[self._pos] == "[":
                    self._header()
                else:
                    self._value(self._assigned(self._table))
                self._end = self._pos
            except _Lost:
                pass  # the next line may be valid again
            self._take(_REST_OF_LINE)
        self._close_tables(still_open=[])
        return self._root

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
        *above, (name, written) = self._keys()
        self._take(_HEADER_CLOSE)

        ancestors = [self._root]
        for key in above:
            ancestors.append(ancestors[-1].child(*key).latest())
        self._close_tables(still_open=ancestors)

        table = ancestors[-1].child(name, written)
        if is_entry:
            table = table.append(written)
        else:
            table.key = written  # its own header takes precedence over an earlier mention, as the `a` of [a.b]
        self._table = table
        self._open.append((table, start))

    def _close_tables(self, still_open: list[_Node]) -> None:
        """End all tables other than `still_open` at the end of the last statement."""
        while self._open and self._open[-1][0] not in still_open:
            table, start = self._open.pop()
            table.value = (start, self._end)

    def _keys(self) -> list[_Key]:
        """Read a key, including dots and the blanks around them."""
        keys: list[_Key] = []
        while True:
            match = self._take(_KEY)
            keys.append((_decoded(match[1]), match.span(1)))
            if not match[2]:
                return keys

    def _assigned(self, table: _Node) -> _Node:
        """Read `a.b.c =` and return the node of that name below `table`."""
        keys = self._keys()
        self._take(_EQUALS)
        node = table
        for key in keys:
            node = node.child(*key)
        if node.value is not None and self.repeated is None:
            self.repeated = keys[-1][1]
        return node

    def _value(self, node: _Node) -> None:
        """Read a value into `node`.

        Open brackets are kept in a list. tomli allows 400 levels of nesting, so a recursive function could exceed
        Python's recursion limit.
        """
        brackets: list[tuple[_Node, int]] = []
        while True:
            start = self._pos
            if self._take(_VALUE)[0] in ("[", "{"):
                brackets.append((node, start))
            else:
                node.value = (start, self._pos)
            while brackets:
                self._take(_GAP)
                if not self._text.startswith(("]", "}"), self._pos):
                    break
                self._pos += 1
                container, start = brackets.pop()
                container.value = (start, self._pos)
            if not brackets:
                return
            container, start = brackets[-1]
            node = self._assigned(container) if self._text[start] == "{" else container.append()


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
