"""Takes samples from an existing suite of tests: runs it in a process of its own, and records calls of operators."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from opcheck.draft.trial import Workplace
from opcheck.running.apart import Ended, apart
from opcheck.samples.resolve import Unresolved, resolve_operator

MOST_ELEMENTS = 36
"""The most elements of a tensor in a call that is worth recording."""
MOST_CALLS = 200
"""The most calls of one operator to record."""
MOST_SAMPLES = 6
"""The most samples of one operator to take from tests."""

Group = list[dict[str, Any]]
"""A call as samples: with shapes only, and with the values."""


class Unwritable(Exception):
    """An argument that a spec cannot state, or that is too large."""


def recorded(operators: Iterable[str], tests: Sequence[str], workplace: Workplace) -> dict[str, list[Group]]:
    """Run tests, and return the small calls of each operator, those of different kinds first."""

    def run(tests: Sequence[str]) -> dict[str, list[Group]]:
        import pytest

        workplace.alone()
        recorder = Recorder(list(operators), workplace.settings.modules)
        pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[recorder])
        return recorder.calls

    (calls,) = apart(run, [tests], 1)
    return {} if isinstance(calls, Ended) else {path: chosen(groups) for path, groups in calls.items()}


class Recorder:
    """A pytest plugin that remembers each call that a spec can state."""

    def __init__(self, operators: Sequence[str], modules: Sequence[str]) -> None:
        self.operators, self.modules = operators, modules
        self.calls: dict[str, list[Group]] = {path: [] for path in operators}
        self.seen: dict[str, set[str]] = {path: set() for path in operators}

    def pytest_collection_finish(self, session: Any) -> None:
        """Replace the operators wherever they have been imported to."""
        wrapped = []
        for path in self.operators:
            try:
                operator = resolve_operator(path, self.modules)
            except Unresolved:
                continue
            wrapped.append((operator, self.wrapped(path, operator)))
        own = [item.module for item in session.items if getattr(item, "module", None) is not None]
        for module in {id(module): module for module in [*sys.modules.values(), *own]}.values():
            _replace(module, wrapped)

    def wrapped(self, path: str, operator: Callable[..., Any]) -> Callable[..., Any]:
        """Return an operator that records its arguments before it is called."""

        @functools.wraps(operator)
        def recording(*args: Any, **kwargs: Any) -> Any:
            self.record(path, args, kwargs)
            return operator(*args, **kwargs)

        return recording

    def record(self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Record a call, if a spec can state it and none like it has been recorded."""
        try:
            group = [_sample(args, kwargs, exact) for exact in (False, True)]
        except Unwritable:
            return
        same = json.dumps(group[0])
        if same not in self.seen[path] and len(self.seen[path]) < MOST_CALLS:
            self.seen[path].add(same)
            self.calls[path].append(group)


def _replace(module: Any, wrapped: list[tuple[Any, Any]]) -> None:
    """Put wrappers in the place of operators. Of this package and of torch nothing is replaced."""
    name = getattr(module, "__name__", "")
    if not isinstance(module, ModuleType) or name.partition(".")[0] in ("opcheck", "torch", "functools"):
        return
    for key, value in list(vars(module).items()):
        for operator, wrapper in wrapped:
            if value is operator or _is_same(value, operator):
                setattr(module, key, wrapper)


def _is_same(value: Any, operator: Any) -> bool:
    """Return whether two bound methods are of one object. Each access of `Function.apply` gives another one."""
    own = getattr(value, "__self__", None)
    return own is not None and own is getattr(operator, "__self__", None) and value.__name__ == operator.__name__


def chosen(groups: Sequence[Group]) -> list[Group]:
    """Return one small call of each kind: of numbers of dimensions, and of values of all other arguments."""
    kinds: dict[str, Group] = {}
    for group in sorted(groups, key=lambda group: size(group[0])):
        kinds.setdefault(json.dumps(kind(group[0])), group)
    return list(kinds.values())[:MOST_SAMPLES]


def size(value: Any) -> int:
    """Return the number of elements of all tensors in TOML data."""
    if isinstance(value, dict):
        if "shape" in value:
            count = 1
            for length in value["shape"]:
                count *= length
            return count
        return sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list) else 1


def kind(value: Any) -> Any:
    """Return TOML data with the number of its dimensions in the place of each tensor."""
    if isinstance(value, dict):
        if "shape" in value:
            return len(value["shape"])
        if "values" in value:
            return value.get("dtype", "")
        return {key: kind(part) for key, part in value.items()}
    return [kind(part) for part in value] if isinstance(value, list) else value


def _sample(args: tuple[Any, ...], kwargs: Mapping[str, Any], exact: bool) -> dict[str, Any]:
    sample: dict[str, Any] = {"args": [data(arg, exact) for arg in args]}
    return {**sample, "kwargs": {name: data(value, exact) for name, value in kwargs.items()}} if kwargs else sample


def data(value: Any, exact: bool) -> Any:
    """Return an argument as TOML data. Raises Unwritable.

    exact: whether tensors of numbers that vary keep their values. If not, only shapes and bounds stay: tests like round
    numbers, which are where functions have kinks.
    """
    if isinstance(value, torch.Tensor):
        return _tensor(value.detach(), exact)
    if value is None:
        return {"none": True}
    if isinstance(value, (bool, int, str)) and type(value) in (bool, int, str):
        return value
    if type(value) is float and abs(value) < float("inf"):
        return value
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if type(value) is list:
        return [data(part, exact) for part in value]
    if isinstance(value, tuple):
        parts = [data(part, exact) for part in value]
        return {"tuple": parts}
    raise Unwritable


def _tensor(value: torch.Tensor, exact: bool) -> dict[str, Any]:
    if value.layout is not torch.strided or type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise Unwritable
    if value.numel() > MOST_ELEMENTS or value.device.type != "cpu":
        raise Unwritable
    name = str(value.dtype).removeprefix("torch.")
    if not (value.is_floating_point() or value.is_complex()):
        listed = value.tolist()
        return {"values": listed, "dtype": name} if value.numel() else {"shape": list(value.shape), "dtype": name}
    if not value.numel() or value.is_complex() or not bool(torch.isfinite(value).all()):
        return {"shape": list(value.shape)}
    if exact:
        return {"values": torch.round(value.double(), decimals=6).tolist()}
    low, high = float(value.min()), float(value.max())
    low = high / 2 if low == high > 0 else low
    if low >= 0 and high > 0:
        return {"shape": list(value.shape), "low": round(max(low, high / 10), 4), "high": round(high * 1.01 + 1e-3, 4)}
    return {"shape": list(value.shape)}
