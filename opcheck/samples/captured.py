"""Finds the tensors that a callable holds: in its closure, defaults and attributes, and in the arguments of a partial.

If it holds a module, these are the module's parameters, buffers, and tensors that are plain attributes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from torch import Tensor
from torch.nn import Module

from opcheck.samples.modules import ModuleCall, state_of

MOST = 1000
"""The maximum number of items of a container that are searched."""


def module_call(module: Module) -> ModuleCall:
    """Return a module as a function. List its unregistered tensors now: a call may store parameters in attributes."""
    return ModuleCall(module, tuple(_unregistered("the attribute ", module)))


def captured(operator: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that a callable may read although they are not its arguments, each with a description.

    These include the globals that a function's code names. They exclude the parameters and buffers of a `ModuleCall`,
    which are arguments.
    """
    if isinstance(operator, ModuleCall):
        yield from operator.unregistered
        return
    while isinstance(operator, functools.partial):
        yield from _tensors("the bound argument ", [*enumerate(operator.args), *operator.keywords.items()])
        operator = operator.func
    function = inspect.unwrap(operator)
    owner = getattr(function, "__self__", function)
    if isinstance(owner, Module):
        yield from _of_module("the attribute ", owner)
    elif not inspect.ismodule(owner):
        yield from _tensors("the attribute ", getattr(owner, "__dict__", {}).items())
    yield from _tensors("the default ", enumerate(getattr(function, "__defaults__", None) or ()))
    code = getattr(function, "__code__", None)
    if code is not None:
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            with suppress(ValueError):  # an empty cell
                yield from _tensors("the captured ", [(name, cell.cell_contents)])
        names = [name for name in code.co_names if name in function.__globals__]
        yield from _tensors("the global ", ((name, function.__globals__[name]) for name in names))


def _tensors(kind: str, items: Iterable[tuple[Any, Any]], *, deeper: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors, and tensors in containers: one level, since containers may be cyclic, and at most `MOST` items."""
    for name, item in items:
        if isinstance(item, Tensor):
            yield f"{kind}{name}", item
        elif isinstance(item, Module):
            yield from _of_module(f"{kind}{name}.", item)
        elif deeper and isinstance(item, (tuple, list, dict)):
            parts = islice(item.items() if isinstance(item, dict) else enumerate(item), MOST)
            yield from _tensors(f"{kind}{name}", ((f"[{key!r:.40}]", part) for key, part in parts), deeper=False)


def _of_module(prefix: str, module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a module and of all its submodules."""
    for name, tensor in state_of(module).items():
        yield prefix + name, tensor
    yield from _unregistered(prefix, module)


def _unregistered(prefix: str, module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield a module's tensors that are neither parameters nor buffers: attributes, and items of containers."""
    registered = set(map(id, state_of(module).values()))
    for path, part in module.named_modules():
        items = ((name, item) for name, item in vars(part).items() if name != "_modules")
        for name, tensor in _tensors(prefix + (f"{path}." if path else ""), items):
            if id(tensor) not in registered:
                yield name, tensor
