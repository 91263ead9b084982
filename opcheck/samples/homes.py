"""The module that an object comes from, and whether it belongs to the project."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from opcheck.samples.libraries import is_operator

_DATA = {bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, range, type(None), type(...)}
_APPLY = vars(torch.autograd.Function)["apply"]  # a class method in Python; since torch 2.14, one in C
_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)
_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, MethodWrapperType, *_DESCRIPTORS)


def inside(name: str, modules: Sequence[str]) -> bool:
    """Return whether a dotted name is one of the modules, or is inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def owned(found: Any, modules: Sequence[str]) -> bool:
    """Return whether an object is defined in one of the modules, or created there: plain data, an instance of torch."""
    if isinstance(found, ModuleType):
        return inside(found.__name__, modules)
    if isinstance(found, partial):
        return owned(found.func, modules) or is_operator(found.func)
    if type(found) in _DATA or inside(home(found), modules):
        return True
    if isinstance(found, FunctionType):  # a decorator may have copied __module__ from the function it wraps
        return inside(found.__globals__.get("__name__", ""), modules)
    if isinstance(found, (type, *_FUNCTIONS)):
        return False
    made_of = type(found).__module__
    # Operators of torch.library, scripted functions, modules, tensors; NumPy's arrays, but not its functions.
    return inside(made_of, ("torch", *modules)) or (inside(made_of, ("numpy",)) and not callable(found))


def home(found: Any) -> str:
    """Return the name of the module that an object comes from. For a C method, it is the module of its class."""
    while isinstance(found, partial):
        found = found.func
    if _is_apply(found):
        found = found.__self__
    elif isinstance(found, MethodType):
        found = found.__func__
    if isinstance(found, _DESCRIPTORS):
        found = found.__objclass__
    module = getattr(found, "__module__", None)
    if module is None and isinstance(found, (BuiltinFunctionType, MethodWrapperType)):
        return _home_of_bound(found)
    return module if isinstance(module, str) else type(found).__module__


def _is_apply(found: Any) -> bool:
    """Return whether an object is the `apply` that a custom autograd function inherits."""
    owner = found.__self__ if isinstance(found, (MethodType, BuiltinFunctionType)) else None
    inherits = isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
    return inherits and found == _APPLY.__get__(None, owner)


def _home_of_bound(method: BuiltinFunctionType | MethodWrapperType) -> str:
    """Return the module of the class that defines a C method. A subclass of dict does not own what it inherits."""
    owner = method.__self__
    if isinstance(owner, ModuleType):
        return owner.__name__
    classes = [*(owner.__mro__ if isinstance(owner, type) else ()), *type(owner).__mro__]
    return next((home(base) for base in classes if method.__name__ in vars(base)), type(owner).__module__)
