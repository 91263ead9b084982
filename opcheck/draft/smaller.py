"""Turns recorded calls into samples: takes one small call of each kind, and makes large calls smaller."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from math import prod
from typing import Any

import torch

from opcheck.draft.data import Data, is_tensor, mapped, parts

MOST_ELEMENTS = 36
"""The maximum number of elements of a tensor in a sample. Calls with larger tensors are made smaller at first."""
LARGE, SMALL = 4, 8
"""The largest size, or number, that is kept; and the maximum of larger sizes after they have been divided."""
MOST_SMALLER = 12
"""The maximum number of smaller versions of one call."""
MOST_SAMPLES = 6
"""The maximum number of calls of one operator to turn into samples."""

Group = list[dict[str, Any]]
"""Samples for one call, of which the first that works is used: with shapes only, and with values; or several smaller
versions, and the call itself. For a class of modules, each has the constructor arguments under the key `module`."""


def chosen(groups: Iterable[Group]) -> list[Group]:
    """Return the smallest call of each kind, up to `MOST_SAMPLES`."""
    kinds: dict[str, Group] = {}
    for group in sorted(filter(None, groups), key=lambda group: size(group[0])):
        kinds.setdefault(json.dumps(kind(group[0])), group)
    return list(kinds.values())[:MOST_SAMPLES]


def size(call: Data) -> int:
    """Return the number of elements of all tensors in TOML data, plus the number of other values."""
    return sum(map(_elements, parts(call)))


def _elements(part: Data) -> int:
    if not is_tensor(part):
        return 1
    return prod(part["shape"]) if "shape" in part else torch.tensor(part["values"]).numel()


def is_small(call: Data, most: int = MOST_ELEMENTS) -> bool:
    """Return whether every tensor in TOML data has at most a number of elements."""
    return all(_elements(part) <= most for part in parts(call))


def smaller(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield smaller versions of a call with large tensors. All sizes are divided by one number, to keep proportions.

    Other integers may be sizes, too. Three ways are tried: divide the large ones, those that equal a size, and none.
    Versions in which small sizes are divided, too, come last, for tensors of many small dimensions.
    """
    sizes = {size for part in parts(call) if is_tensor(part) for size in part.get("shape", ())}
    most = max(sizes)
    ways = (
        _divided(call, divisor, numbers, large)
        for large in (LARGE, 1)
        for divisor in range(max(-(-most // SMALL), 2), most + 1)
        for numbers in (range(LARGE + 1, most + 1), sizes, ())
    )
    distinct = {json.dumps(way): way for way in ways if is_small(way)}
    yield from islice(distinct.values(), MOST_SMALLER)


def _divided(call: Data, divisor: int, numbers: Container[int], large: int) -> Data:
    """Return TOML data with each size above `large` divided, and each other integer in `numbers`."""

    def divided(size: int) -> int:
        return size if size <= large else max(-(-size // divisor), 2)

    def change(part: Data) -> Data:
        if is_tensor(part) and "shape" in part:
            high = {"high": divided(part["high"])} if "high" in part and part.get("dtype") == "int64" else {}
            return {**part, "shape": list(map(divided, part["shape"])), **high}
        return divided(part) if type(part) is int and part in numbers else part

    return mapped(change, call)


def kind(call: Data) -> Data:
    """Return a call with each tensor replaced by its number of dimensions or, if it has values, by its dtype."""

    def change(part: Data) -> Data:
        if not is_tensor(part):
            return part
        return len(part["shape"]) if "shape" in part else part.get("dtype", "")

    return mapped(change, call)
