"""Finds the tensors that a callable holds: in its closure, its defaults, its attributes, the arguments of a partial."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch import Tensor

MOST = 1000
"""How many items of a container are looked at."""


def captured(operator: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that a callable reads without being given them, with a name for each.

    Of globals, those that a function names.
    """
    while isinstance(operator, functools.partial):
        yield from _tensors("the bound argument", [*_items(operator.args), *operator.keywords.items()])
        operator = operator.func
    function = inspect.unwrap(operator)
    owner = getattr(function, "__self__", function)
    if not inspect.ismodule(owner):
        yield from _tensors("the attribute", getattr(owner, "__dict__", {}).items())
    yield from _tensors("the default", _items(getattr(function, "__defaults__", None) or ()))
    code = getattr(function, "__code__", None)
    if code is not None:
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        yield from _tensors("the captured", ((name, cell.cell_contents) for name, cell in cells if _is_filled(cell)))
        names = [name for name in code.co_names if name in function.__globals__]
        yield from _tensors("the global", ((name, function.__globals__[name]) for name in names))


def _items(values: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    return ((str(index), value) for index, value in enumerate(values))


def _tensors(kind: str, items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors, and those in containers: one level, at most `MOST` items. They may contain themselves."""
    for name, item in items:
        parts: Iterable[tuple[Any, Any]] = ()
        if isinstance(item, Tensor):
            yield f"{kind} {name}", item
        elif isinstance(item, (tuple, list)):
            parts = enumerate(item)
        elif isinstance(item, dict):
            parts = item.items()
        for key, part in islice(parts, MOST):
            if isinstance(part, Tensor):
                yield f"{kind} {name}[{key!r:.40}]", part


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
