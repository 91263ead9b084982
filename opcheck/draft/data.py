"""Visits and replaces the values of a sample that is plain TOML data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from opcheck.spec.positions import KeyPath

Data = Any
"""A value of a sample, as TOML data."""
SampleData = dict[str, Data]
"""A sample: `args` and `kwargs`."""
Shape = tuple[int, ...]

LARGEST = 2000
"""The maximum number of elements of a tensor in a draft. A tensor is that large only if nothing smaller works."""
INDICES: SampleData = {"dtype": "int64", "low": 0, "high": 2}
"""The keys of a tensor of indices, or of classes. They are valid for every size of at least 2."""


def mapped(change: Callable[[Data], Data], data: Data) -> Data:
    """Return TOML data with a function applied to each tensor, placeholder for a tensor, and plain value."""
    if isinstance(data, list):
        return [mapped(change, part) for part in data]
    if not isinstance(data, dict) or is_tensor(data):
        return change(data)
    # Keyword arguments are not a tensor, even if one is called `shape` or `values`.
    return {
        key: {name: mapped(change, value) for name, value in part.items()} if key == "kwargs" else mapped(change, part)
        for key, part in data.items()
    }


def is_tensor(data: Data) -> bool:
    """Return whether TOML data is a tensor, or a placeholder for a tensor."""
    return isinstance(data, dict) and not data.keys().isdisjoint(("tensor", "shape", "values"))


def parts(data: Data) -> list[Data]:
    """Return all tensors and plain values in TOML data."""
    seen: list[Data] = []
    mapped(seen.append, data)
    return seen


def places(sample: SampleData) -> Iterator[tuple[KeyPath, Data]]:
    """Yield the values that may be changed, with their paths: arguments, and the items of lists of tensors.

    A list of numbers is one value.
    """
    for key in ("args", "kwargs"):
        values = sample.get(key, {})
        for name, value in values.items() if isinstance(values, dict) else enumerate(values):
            yield from _places(value, (key, name))


def _places(value: Data, path: KeyPath) -> Iterator[tuple[KeyPath, Data]]:
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        for index, part in enumerate(value):
            yield from _places(part, (*path, index))
    else:
        yield path, value


def replaced(container: Data, path: KeyPath, value: Data) -> Data:
    """Return a copy of a sample, or of a part of it, with another value at a path."""
    if not path:
        return value
    key: Any = path[0]
    copy = list(container) if isinstance(container, list) else dict(container)
    copy[key] = replaced(container[key], path[1:], value)
    return copy


def with_keyword(sample: SampleData, name: str, value: Data) -> SampleData:
    """Return a copy of a sample with a keyword argument added or replaced."""
    return {**sample, "kwargs": {**sample.get("kwargs", {}), name: value}}
