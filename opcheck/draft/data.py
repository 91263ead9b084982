"""A sample as plain TOML data: what it consists of, and the same with something else in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Data = Any
"""A value of a sample."""
SampleData = dict[str, Data]
"""A sample: `args` and `kwargs`."""
Shape = tuple[int, ...]
Path = tuple[str | int, ...]
"""Where a value stands in a sample, as in ("args", 0) or ("kwargs", "weight")."""


def mapped(change: Callable[[Data], Data], data: Data) -> Data:
    """Return TOML data with a function applied to each tensor, or placeholder of one, and to each plain value."""
    if isinstance(data, list):
        return [mapped(change, part) for part in data]
    if isinstance(data, dict) and not is_tensor(data):
        return {key: mapped(change, part) for key, part in data.items()}
    return change(data)


def is_tensor(data: Data) -> bool:
    """Tell whether TOML data is a tensor, or a placeholder of one."""
    return isinstance(data, dict) and not data.keys().isdisjoint(("tensor", "shape", "values"))


def parts(data: Data) -> list[Data]:
    """Return the tensors and plain values that TOML data consists of."""
    seen: list[Data] = []
    mapped(seen.append, data)
    return seen


def is_mixed(sample: SampleData) -> bool:
    """Tell whether a sample has a tensor that may be differentiated."""
    arguments = [*sample.get("args", ()), *sample.get("kwargs", {}).values()]
    return any(is_tensor(part) and "dtype" not in part for part in parts(arguments))


def places(sample: SampleData) -> Iterator[tuple[Path, Data]]:
    """Yield the values of arguments that may be changed, with their paths: tensors, numbers, and lists of numbers."""
    for key in ("args", "kwargs"):
        values = sample.get(key, {})
        for name, value in values.items() if isinstance(values, dict) else enumerate(values):
            yield from _places(value, (key, name))


def _places(value: Data, path: Path) -> Iterator[tuple[Path, Data]]:
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        for index, part in enumerate(value):
            yield from _places(part, (*path, index))
    else:
        yield path, value


def replaced(container: Data, path: Path, value: Data) -> Data:
    """Return a sample, or a part of it, with another value in one place."""
    if not path:
        return value
    key: Any = path[0]
    copy = list(container) if isinstance(container, list) else dict(container)
    copy[key] = replaced(container[key], path[1:], value)
    return copy


def with_keyword(sample: SampleData, name: str, value: Data) -> SampleData:
    """Return a sample with another keyword argument."""
    return {**sample, "kwargs": {**sample.get("kwargs", {}), name: value}}
