"""A pytest plugin that records the calls which tests make to operators: `pytest -p opcheck.draft.recorder`.

The environment variable `OPCHECK_RECORD` names a file (JSON) with the operators, the modules and the file to write.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from opcheck.draft.recording import VARIABLE
from opcheck.samples.resolve import Unresolved, resolve_operator

MOST_ELEMENTS = 36
"""The most elements of a tensor in a call that is worth recording."""
MOST_CALLS = 200
"""The most calls of one operator to record."""


class Unwritable(Exception):
    """An argument that a spec cannot state, or that is too large."""


def pytest_collection_finish(session: Any) -> None:
    """Replace the operators wherever they have been imported to."""
    request = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    recorder = Recorder(Path(request["file"]))
    operators = {}
    for path in request["operators"]:
        try:
            operators[path] = resolve_operator(path, request["modules"])
        except Unresolved:
            continue
    wrapped = [(operator, recorder.wrapped(path, operator)) for path, operator in operators.items()]
    modules = {id(module): module for module in [*sys.modules.values(), *(item.module for item in _items(session))]}
    for module in modules.values():
        _replace(module, wrapped)


def _items(session: Any) -> list[Any]:
    return [item for item in session.items if getattr(item, "module", None) is not None]


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


class Recorder:
    """Writes one line for each call that a spec can state."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seen: dict[str, set[str]] = {}

    def wrapped(self, path: str, operator: Callable[..., Any]) -> Callable[..., Any]:
        """Return an operator that records its arguments before it is called."""

        @functools.wraps(operator)
        def recording(*args: Any, **kwargs: Any) -> Any:
            self.record(path, args, kwargs)
            return operator(*args, **kwargs)

        return recording

    def record(self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Record a call, if a spec can state it and none like it has been recorded."""
        seen = self.seen.setdefault(path, set())
        try:
            group = [_sample(args, kwargs, exact) for exact in (False, True)]
        except Unwritable:
            return
        line = json.dumps({"operator": path, "group": group})
        kind = json.dumps(group[0])
        if kind in seen or len(seen) >= MOST_CALLS:
            return
        seen.add(kind)
        with self.file.open("a", encoding="utf-8") as out:
            out.write(line + "\n")


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
