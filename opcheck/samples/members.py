"""What a spec may name, as objects: members of the parts of libraries that are listed, and what belongs to the project.

A rule decides, not a list of dangerous functions. A C function must be in one of torch's tables of operators, as
torch.sin is. A Python function must be defined where torch defines operators. A NumPy function must be a ufunc or
dispatch on its arguments (NEP 18). This excludes every function that loads, saves or sets something, known or not; the
few exceptions are listed with the parts (`Part.never`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
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
from torch.nn import functional

from opcheck.spec.names import PARTS, REGISTERED, Kind

_PYTHON_HOMES = (
    "torch.functional", "torch._lobpcg", "torch._lowrank", "torch.nn.functional", "torch.masked._ops",
    "torch.masked.maskedtensor.creation", "torch.nested", "torch.signal.windows.windows", "torch.sparse",
    "torch.sparse.semi_structured",
)  # fmt: skip
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme, float)
_HAS_VALUES = frozenset(
    ("Tensor", "number", "int", "float", "complex", "bool", "str", "List", "Optional", "Device", "Generator")
)
"""The words for types, in schemas, of which a spec can write values. A generator can be left to its default, None."""

_DATA = {bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, range, type(None), type(...)}
_APPLY = vars(torch.autograd.Function)["apply"]  # a class method in Python; since torch 2.14, one in C
_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)
_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, MethodWrapperType, *_DESCRIPTORS)


def is_member(part: str, name: str, value: Any) -> bool:
    """Return whether a spec may name `part.name`, which is `value`."""
    listed = PARTS.get(part, REGISTERED)
    return name not in listed.never and any(_IS[kind](value) for kind in listed.kinds)


def is_operator(value: Any) -> bool:
    """Return whether a function is one of torch's operators, wherever it was found and by whatever name."""
    if isinstance(value, BuiltinFunctionType):
        return _table(value) in _tables() and value.__name__ not in PARTS["torch"].never
    is_defined_there = isinstance(value, FunctionType) and value.__module__ in _PYTHON_HOMES
    return is_defined_there and value.__name__ not in PARTS["torch.sparse"].never


def _table(function: BuiltinFunctionType) -> tuple[Any, str]:
    """Return the module of a C function, and the name of its class in that module."""
    return function.__self__, function.__qualname__.rpartition(".")[0]


@cache
def _tables() -> frozenset[tuple[Any, str]]:
    ones: list[Any] = [
        torch.sin, functional.linear, torch.fft.fft, torch.linalg.det, torch.nested.to_padded_tensor, torch.sparse.mm,
        torch.special.erf,
    ]  # fmt: skip
    return frozenset(map(_table, ones))


def _is_distribution(value: Any) -> bool:
    from torch import distributions

    classes = (distributions.Distribution, distributions.Transform)
    return value is distributions.kl_divergence or (isinstance(value, type) and issubclass(value, classes))


def _is_array_function(value: Any) -> bool:
    import numpy

    return isinstance(value, numpy.ufunc) or (type(value) is type(numpy.sum) and hasattr(value, "__wrapped__"))


def _makes_arrays(value: Any) -> bool:
    """Return whether a function makes an array of any object, and so has nothing to dispatch on."""
    import numpy

    return any(value is one for one in (numpy.array, numpy.asarray, numpy.ascontiguousarray))


def _is_of_scipy(value: Any) -> bool:
    # The transforms of scipy.fft dispatch, and wrap the function that returns the dispatched arguments.
    function = isinstance(value, FunctionType) or hasattr(value, "__wrapped__")
    return function and str(value.__module__).startswith("scipy.")


def is_dispatched(value: Any) -> bool:
    """Return whether an object is an operator of torch.ops, or an overload of one."""
    return isinstance(value, (type(torch.ops.aten.sin), type(torch.ops.aten.sin.default)))


@cache
def _takes_and_gives_tensors(operator: Any) -> bool:
    """Return whether an operator of torch.ops, or an overload, takes tensors and returns or changes some.

    An overload counts if a spec has values for all arguments that it needs: not for a stream or a storage.
    """
    is_overload = isinstance(operator, type(torch.ops.aten.sin.default))
    overloads = [operator] if is_overload else [getattr(operator, name) for name in operator.overloads()]
    return any(_on_tensors(overload._schema) for overload in overloads)


def _on_tensors(schema: Any) -> bool:
    tensors = [argument for argument in schema.arguments if "Tensor" in str(argument.type)]
    written = [argument for argument in tensors if argument.alias_info is not None and argument.alias_info.is_write]
    returned = [result for result in schema.returns if "Tensor" in str(result.type)]
    needed = [str(argument.type) for argument in schema.arguments if not argument.has_default_value()]
    has_values = _HAS_VALUES.issuperset(word for one in needed for word in re.findall(r"[\w.]+", one))
    return has_values and any(not argument.kwarg_only for argument in tensors) and bool(returned or written)


_IS: dict[Kind, Callable[[Any], bool]] = {
    "array function": _is_array_function,
    "class of modules": lambda value: isinstance(value, type) and issubclass(value, torch.nn.Module),
    "constant": lambda value: isinstance(value, _CONSTANTS),
    "distribution": _is_distribution,
    "function of numbers": lambda value: isinstance(value, BuiltinFunctionType),
    "function of SciPy": _is_of_scipy,
    "maker of arrays": _makes_arrays,
    "method": lambda value: isinstance(value, (MethodDescriptorType, WrapperDescriptorType, FunctionType)),
    "operator": is_operator,
    "operator of the dispatcher": is_dispatched,
    "operator on tensors": lambda value: is_dispatched(value) and _takes_and_gives_tensors(value),
}
"""The test for each kind of the list. A kind without a test would allow nothing: naming one is a KeyError."""


def inside(name: str, modules: Sequence[str]) -> bool:
    """Return whether a dotted name is one of the modules, or is inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def owned(value: Any, modules: Sequence[str]) -> bool:
    """Return whether an object is defined in one of the modules, or created there: plain data, an instance of torch."""
    if isinstance(value, ModuleType):
        return inside(value.__name__, modules)
    if isinstance(value, partial):
        return owned(value.func, modules) or is_operator(value.func)
    if type(value) in _DATA or inside(home(value), modules):
        return True
    if isinstance(value, FunctionType):  # a decorator may have copied __module__ from the function it wraps
        return inside(value.__globals__.get("__name__", ""), modules)
    if isinstance(value, (type, *_FUNCTIONS)):
        return False
    made_of = type(value).__module__
    # Operators of torch.library, scripted functions, modules, tensors; NumPy's arrays, but not its functions.
    return inside(made_of, ("torch", *modules)) or (inside(made_of, ("numpy",)) and not callable(value))


def home(value: Any) -> str:
    """Return the name of the module that an object comes from. For a C method, it is the module of its class."""
    while isinstance(value, partial):
        value = value.func
    if _is_apply(value):
        value = value.__self__
    elif isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, _DESCRIPTORS):
        value = value.__objclass__
    module = getattr(value, "__module__", None)
    if module is None and isinstance(value, (BuiltinFunctionType, MethodWrapperType)):
        return _home_of_bound(value)
    return module if isinstance(module, str) else type(value).__module__


def _is_apply(value: Any) -> bool:
    """Return whether an object is the `apply` that a custom autograd function inherits."""
    owner = value.__self__ if isinstance(value, (MethodType, BuiltinFunctionType)) else None
    inherits = isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
    return inherits and value == _APPLY.__get__(None, owner)


def _home_of_bound(method: BuiltinFunctionType | MethodWrapperType) -> str:
    """Return the module of the class that defines a C method. A subclass of dict does not own what it inherits."""
    owner = method.__self__
    if isinstance(owner, ModuleType):
        return owner.__name__
    classes = [*(owner.__mro__ if isinstance(owner, type) else ()), *type(owner).__mro__]
    return next((home(base) for base in classes if method.__name__ in vars(base)), type(owner).__module__)
