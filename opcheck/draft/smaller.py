"""Calls that were recorded, as samples: small ones, one of each kind; large ones made smaller."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from math import prod
from typing import Any

import torch

from opcheck.draft.data import Data, is_tensor, mapped, parts

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


def chosen(groups: Iterable[Group]) -> list[Group]:
    """Return one small call of each kind: of numbers of dimensions, and of values of all other arguments."""
    kinds: dict[str, Group] = {}
    for group in sorted(filter(None, groups), key=lambda group: size(group[0])):
        kinds.setdefault(json.dumps(kind(group[0])), group)
    return list(kinds.values())[:MOST_SAMPLES]


def size(call: Data) -> int:
    """Return the number of elements of all tensors in TOML data, and of other values."""
    return sum(map(_elements, parts(call)))


def _elements(part: Data) -> int:
    if not is_tensor(part):
        return 1
    return prod(part["shape"]) if "shape" in part else torch.tensor(part["values"]).numel()


def is_small(call: Data) -> bool:
    """Tell whether no tensor in TOML data has too many elements for a sample."""
    return all(_elements(part) <= MOST_ELEMENTS for part in parts(call))


def smaller(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield calls like one with large tensors, in the proportions of their sizes: all are divided by one number.

    Other numbers may be sizes, too. They are divided if they are large; or if they equal a size; or not at all. Sizes
    that are small stay as they are, unless there are so many of them that nothing else helps.
    """
    sizes = {size for part in parts(call) if is_tensor(part) for size in part.get("shape", ())}
    ways = (
        divided(call, divisor, numbers, large)
        for large in (LARGE, 1)
        for divisor in range(max(-(-max(sizes) // SMALL), 2), max(sizes) + 1)
        for numbers in (range(LARGE + 1, max(sizes) + 1), sizes, ())
    )
    distinct = {json.dumps(way): way for way in ways if is_small(way)}
    yield from islice(distinct.values(), MOST_SMALLER)


def divided(call: Data, divisor: int, numbers: Container[int], large: int = LARGE) -> Data:
    """Return TOML data with sizes above `large`, and some other numbers, divided and rounded up, down to 2."""

    def change(part: Data) -> Data:
        if is_tensor(part) and "shape" in part:
            high = {"high": _part(part["high"], divisor, large)} if part.get("dtype") == "int64" else {}
            return {**part, "shape": [_part(size, divisor, large) for size in part["shape"]], **high}
        return _part(part, divisor, large) if type(part) is int and part in numbers else part

    return mapped(change, call)


def _part(size: int, divisor: int, large: int) -> int:
    return size if size <= large else max(-(-size // divisor), 2)


def kind(call: Data) -> Data:
    """Return TOML data with the number of its dimensions, or the dtype of its values, in the place of each tensor."""

    def change(part: Data) -> Data:
        if not is_tensor(part):
            return part
        return len(part["shape"]) if "shape" in part else part.get("dtype", "")

    return mapped(change, call)
