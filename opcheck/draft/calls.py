"""Calls that were recorded, as samples: small ones, one of each kind; large ones made smaller."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from itertools import chain, islice
from math import prod
from typing import Any

MOST_ELEMENTS = 36
"""The most elements of a tensor in a sample. A call with larger ones is made smaller."""
LARGE, SMALL = 4, 8
"""The largest size, or number, that stays as it is; and the largest one that those above it become."""
MOST_SMALLER = 12
"""How many ways to make a call smaller are tried."""
MOST_SAMPLES = 6
"""The most samples of one operator to take from calls."""

Group = list[dict[str, Any]]
"""A call as samples, of which one is enough: with shapes only, and with the values; or made smaller in several ways.

For a class of modules, each says under `module` how the module is constructed."""


def chosen(groups: Sequence[Group]) -> list[Group]:
    """Return one small call of each kind: of numbers of dimensions, and of values of all other arguments."""
    kinds: dict[str, Group] = {}
    for group in sorted(groups, key=lambda group: size(group[0])):
        kinds.setdefault(json.dumps(kind(group[0])), group)
    return list(kinds.values())[:MOST_SAMPLES]


def size(value: Any) -> int:
    """Return the number of elements of all tensors in TOML data."""
    if isinstance(value, dict):
        return prod(value["shape"]) if "shape" in value else sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list) else 1


def is_small(value: Any) -> bool:
    """Tell whether no tensor in TOML data has too many elements for a sample."""
    if isinstance(value, dict):
        return size(value) <= MOST_ELEMENTS if "shape" in value else all(map(is_small, value.values()))
    return not isinstance(value, list) or all(map(is_small, value))


def smaller(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield calls like one with large tensors, in the proportions of their sizes: all are divided by one number.

    Other numbers may be sizes, too. They are divided if they are large; or if they equal a size; or not at all.
    """
    sizes = set(_sizes(call))
    ways = (
        divided(call, divisor, numbers)
        for divisor in range(max(-(-max(sizes) // SMALL), 2), max(sizes) + 1)
        for numbers in (range(LARGE + 1, max(sizes) + 1), sizes, ())
    )
    distinct = {json.dumps(way): way for way in ways if is_small(way)}
    yield from islice(distinct.values(), MOST_SMALLER)


def _sizes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        yield from value["shape"] if "shape" in value else chain.from_iterable(map(_sizes, value.values()))
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_sizes, value))


def divided(value: Any, divisor: int, numbers: Container[int]) -> Any:
    """Return TOML data with sizes, and some other numbers, divided and rounded up. Small ones stay."""
    if isinstance(value, dict) and "shape" in value:
        own = {"shape": [_part(size, divisor) for size in value["shape"]]}
        return {**value, **own, **({"high": _part(value["high"], divisor)} if value.get("dtype") == "int64" else {})}
    if isinstance(value, dict):
        return {key: divided(part, divisor, numbers) for key, part in value.items()}
    if isinstance(value, list):
        return [divided(part, divisor, numbers) for part in value]
    return _part(value, divisor) if type(value) is int and value in numbers else value


def _part(size: int, divisor: int) -> int:
    return size if size <= LARGE else max(-(-size // divisor), 2)


def kind(value: Any) -> Any:
    """Return TOML data with the number of its dimensions in the place of each tensor."""
    if isinstance(value, dict):
        if "shape" in value:
            return len(value["shape"])
        if "values" in value:
            return value.get("dtype", "")
        return {key: kind(part) for key, part in value.items()}
    return [kind(part) for part in value] if isinstance(value, list) else value
