"""Refuses what TOML allows and no spec needs: control characters, integers beyond 64 bits, very deep nesting.

This runs before anything else looks at the data, so later code need not handle such values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from opcheck.spec.positions import Path

DEEPEST = 50
MOST = 200_000
"""The most values in one file. The largest shipped specs have a few thousand."""
NESTED = ("this is nested too deeply", f"at most {DEEPEST} levels of tables and arrays")
LARGE = ("an integer beyond 64 bits", "-2^63 to 2^63 - 1")
INTEGERS = range(-(2**63), 2**63)
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters except tab and line ends, and characters that change the direction of text."""

Found = tuple[Path, bool, str, str]
"""The path, whether the key is wrong rather than the value, what is wrong, what was expected."""


def extremes(data: dict[str, Any]) -> Iterator[Found]:
    """Yield everything in parsed TOML that is refused."""
    count = _plain(data)
    if count is None:
        yield from _searched(data)
    elif count > MOST:
        yield (), False, f"{count} values are too many for one file", f"at most {MOST}"


def _plain(data: dict[str, Any]) -> int | None:
    """Return the number of values, or None if any must be refused. Fast, since every file passes through it."""
    count, level = 0, list[Any]([data])
    for _ in range(DEEPEST):
        within: list[Any] = []
        for node in level:
            count += len(node)
            if isinstance(node, dict):
                if not all(map(str.isprintable, node)) and any(map(UNSEEN.search, node)):
                    return None
                node = node.values()
            for item in node:
                kind = type(item)
                if kind is str:
                    if not item.isprintable() and UNSEEN.search(item):
                        return None
                elif kind is dict or kind is list:
                    within.append(item)
                elif kind is int and item not in INTEGERS:
                    return None
        if not within:
            return count
        level = within
    return None


def _searched(data: dict[str, Any]) -> Iterator[Found]:
    level: list[tuple[Path, Any]] = [((), data)]
    for depth in range(DEEPEST + 1):
        within: list[tuple[Path, Any]] = []
        for path, node in level:
            if depth == DEEPEST:
                yield path, False, *NESTED
                continue
            for key, item in node.items() if isinstance(node, dict) else enumerate(node):
                here = (*path, key)
                if isinstance(key, str) and UNSEEN.search(key):
                    yield here, True, *_unseen(f'the key "{key}"', key)
                if isinstance(item, str) and UNSEEN.search(item):
                    yield here, False, *_unseen("the text", item)
                elif isinstance(item, int) and item not in INTEGERS:
                    yield here, False, *LARGE
                elif isinstance(item, (dict, list)):
                    within.append((here, item))
        level = within


def _unseen(what: str, text: str) -> tuple[str, str]:
    match = UNSEEN.search(text)
    assert match is not None
    return f"{what} contains a control character ({ascii(match[0])[1:-1]})", "printable text"
