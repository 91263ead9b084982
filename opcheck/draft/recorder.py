"""Records the calls of operators while other code runs: tests, or the examples in their documentation."""

from __future__ import annotations

import doctest
import inspect
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from enum import Enum
from functools import partial, wraps
from io import StringIO
from math import isfinite
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import torch
from torch.random import fork_rng

from opcheck.draft.data import LARGEST
from opcheck.draft.parameters import in_toml, path_of
from opcheck.draft.smaller import MOST_ELEMENTS, Group, chosen, is_small, smaller
from opcheck.draft.target import package_of, resolve_either
from opcheck.samples.resolve import Unresolved, resolve

MOST_CALLS = 200
"""The maximum number of calls to record of one operator."""

BOUND = (MethodType, BuiltinMethodType)
"""Types of bound methods, such as `Function.apply`. Each attribute access makes a new object, so compare with ==."""


def examples(path: str, modules: Sequence[str]) -> list[Group]:
    """Run the examples in the documentation of an operator, in an empty folder. Return the calls of the operator."""
    operator = resolve_either(path, modules)
    home = sys.modules.get(operator.__module__ or "")
    docs = [inspect.getdoc(part) or "" for part in (operator, getattr(operator, "forward", None))]
    found = [example for doc in docs if ">>>" in doc for example in doctest.DocTestParser().get_examples(doc)]
    if not found or home is None:
        return []
    recorder, here, package = Recorder([path], modules), os.getcwd(), package_of(path)
    with recorder.replaced, tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), fork_rng([]):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        recorder.replace(module for name, module in sys.modules.items() if package_of(name) == package)
        names = {"torch": torch, **vars(home)}
        os.chdir(folder)
        try:
            for example in found:
                with suppress(Exception), redirect_stdout(StringIO()):  # an example may show an error
                    exec(example.source, names)
        finally:
            os.chdir(here)
    return chosen(recorder.calls[path].values())


class Unwritable(Exception):
    """Raised for an argument that a spec cannot express."""


class Recorder:
    """A pytest plugin that records each call that a spec can express."""

    def __init__(self, operators: Sequence[str], modules: Sequence[str]) -> None:
        self.operators, self.modules = operators, modules
        self.calls: dict[str, dict[str, Group]] = {path: {} for path in operators}
        """The calls of each operator, by the JSON text of the call, so that equal calls are recorded once."""
        self.constructed = WeakKeyDictionary[torch.nn.Module, dict[str, Any]]()
        """The constructor arguments of modules, as `{ args = [...], kwargs = {...} }`."""
        self.replaced = ExitStack()
        """The replacements. They are undone when the stack is closed."""

    def pytest_collection_finish(self, session: Any) -> None:
        """Replace the operators in all modules that have imported them, modules of tests included."""
        own = [item.module for item in session.items if getattr(item, "module", None) is not None]
        self.replace([*sys.modules.values(), *own])

    def replace(self, modules: Iterable[Any]) -> None:
        """Record the calls of functions by their names in some Python modules, and all calls of classes of modules."""
        functions = []
        for path in self.operators:
            try:
                operator = resolve_either(path, self.modules)
            except Unresolved:
                continue
            if isinstance(operator, type):
                make: Any = operator
                self._set(make, "__init__", recording(make.__init__, partial(self.construct, make)))
                self._set(make, "forward", recording(make.forward, partial(self.forward, path)))
            else:
                functions.append((operator, recording(operator, partial(self.record, path, {}))))
        for module in {id(module): module for module in modules}.values():
            for name, wrapper in _places(module, functions):
                self._set(module, name, wrapper)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self.replaced.enter_context(patch.object(owner, name, value))

    def construct(self, make: type, module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> None:
        """Keep the constructor arguments of a module, if a spec can express them."""
        if type(module) is make:  # a derived class has other arguments
            with suppress(Unwritable):
                call = self.call(args, kwargs, exact=False)
                self.constructed[module] = {key: values for key, values in call.items() if values}

    def forward(self, path: str, module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> None:
        """Record a call of a module, with the arguments of its constructor."""
        if module in self.constructed:
            mode = {} if module.training else {"train": False}
            self.record(path, {"module": {**self.constructed[module], **mode}}, *args, **kwargs)

    def record(self, path: str, construction: dict[str, Any], /, *args: Any, **kwargs: Any) -> None:
        """Record a call, if a spec can express it. Smaller versions of a large call come first."""
        try:
            plain, exact = ({**construction, **self.call(args, kwargs, exact)} for exact in (False, True))
        except Unwritable:
            return
        text, calls = json.dumps(plain), self.calls[path]
        if text not in calls and len(calls) < MOST_CALLS:
            versions = [plain, exact] if is_small(plain) else [*smaller(plain), plain]
            calls[text] = [version for version in versions if is_small(version, LARGEST)]  # may be empty

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], exact: bool) -> dict[str, Any]:
        """Return the arguments of a call as TOML data. Raises Unwritable if a spec cannot express them."""
        sample: dict[str, Any] = {"args": [self.data(arg, exact) for arg in args]}
        named = {name: self.data(value, exact) for name, value in kwargs.items()}
        return {**sample, "kwargs": named} if named else sample

    def data(self, value: Any, exact: bool) -> Any:
        """Return an argument as TOML data. Raises Unwritable if a spec cannot express it.

        exact: whether small floating-point tensors keep their values. If not, they keep only shape and bounds: tests
        often use round numbers, where functions have kinks.
        """
        match value:
            case torch.Tensor():
                return _tensor(value.detach(), exact)
            case None:
                return {"none": True}
            case torch.dtype():
                return {"dtype": str(value).removeprefix("torch.")}
            case tuple():
                return {"tuple": [self.data(part, exact) for part in value]}
            case torch.nn.Module() if value in self.constructed:
                return {"call": path_of(type(value)), **self.constructed[value]}
            case Enum():
                return in_toml(value)
            case FunctionType() | BuiltinFunctionType() | type():
                return {"object": self._path(value)}
        if type(value) is list:
            return [self.data(part, exact) for part in value]
        if type(value) is complex:  # the scalars of NumPy are complex, too, but no spec has them
            return {"complex": [value.real, value.imag]}
        if type(value) in (bool, int, str) or (type(value) is float and isfinite(value)):
            return value
        raise Unwritable

    def _path(self, value: Any) -> str:
        """Return the path by which a spec may name a function or a class. Raises Unwritable if there is none."""
        for path in (path_of(value), f"torch.{value.__name__}", f"torch.nn.{value.__name__}"):
            with suppress(Unresolved):
                if resolve(path, self.modules) is value:
                    return path
        raise Unwritable


def recording(function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    """Return a wrapper of a function that first passes the arguments to `note`."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        note(*args, **kwargs)
        return function(*args, **kwargs)

    return called


def _places(module: Any, functions: Sequence[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the names of operators in a module, with their wrappers. Modules of opcheck and torch are skipped."""
    name = getattr(module, "__name__", "")
    if not isinstance(module, ModuleType) or name.partition(".")[0] in ("opcheck", "torch", "functools"):
        return
    for key, value in list(vars(module).items()):
        for operator, wrapper in functions:
            if value is operator or (isinstance(value, BOUND) and value == operator):
                yield key, wrapper


def _tensor(value: torch.Tensor, exact: bool) -> dict[str, Any]:
    if not (value.layout is torch.strided and value.is_cpu and type(value) in (torch.Tensor, torch.nn.Parameter)):
        raise Unwritable
    name, shape = str(value.dtype).removeprefix("torch."), list(value.shape)
    if not (value.is_floating_point() or value.is_complex()):
        if 0 < value.numel() <= MOST_ELEMENTS:
            return {"values": value.tolist(), "dtype": name}
        bounds = {} if not value.numel() or name == "bool" else {"low": int(value.min()), "high": int(value.max()) + 1}
        return {"shape": shape, "dtype": name, **bounds}
    if not value.numel() or value.is_complex() or not bool(torch.isfinite(value).all()):
        return {"shape": shape}
    if exact and value.numel() <= MOST_ELEMENTS:
        return {"values": torch.round(value.double(), decimals=6).tolist()}
    low, high = float(value.min()), float(value.max())
    if low < 0 or high <= 0:
        return {"shape": shape}
    low = high / 2 if low == high else max(low, high / 10)
    return {"shape": shape, "low": round(low, 4), "high": round(high * 1.01 + 1e-3, 4)}
