"""Resolves a dotted path to the object that it names: an operator of a library, or an object that the project defines.

`opcheck/spec/allow_list.py` lists the parts of libraries whose members a spec may name. General rules restrict the
members, rather than a list of dangerous functions. A C function must be in one of torch's tables of operators, as
torch.sin is. A Python function must be defined in a module in which torch defines operators. A NumPy function must be a
ufunc or dispatch on its arguments (NEP 18). These rules exclude every function that loads, saves or sets something,
known or unknown. The few that they would admit are listed in `Part.never`, and excluded by name.

Resolving a path calls and computes nothing. docs/security.md explains why.
"""

from __future__ import annotations

import importlib
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import cache, lru_cache, partial
from inspect import getattr_static
from typing import Any

import torch
from torch.nn import functional

from opcheck.samples.arguments import OVERLOAD, PACKET, is_function, own_schemas
from opcheck.spec import allow_list
from opcheck.spec.allow_list import PARTS, REGISTERED, Kind, inside
from opcheck.spec.problems import nearest, worded
from opcheck.text import one_line

_PYTHON_HOMES = (
    "torch.functional", "torch._linalg_utils", "torch._lobpcg", "torch._lowrank", "torch.nn.functional",
    "torch.masked._ops", "torch.masked.maskedtensor.creation", "torch.nested", "torch.nn.utils.parametrizations",
    "torch.nn.utils.rnn", "torch.signal.windows.windows", "torch.sparse", "torch.sparse.semi_structured",
)  # fmt: skip
_VIEWS: tuple[Any, ...] = (
    torch.Tensor.T, torch.Tensor.H, torch.Tensor.mT, torch.Tensor.mH, torch.Tensor.real, torch.Tensor.imag,
)  # fmt: skip
"""The attributes of a tensor that are functions of it, not state."""
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme, float)
_HAS_VALUES = frozenset(
    ("Tensor", "number", "int", "float", "complex", "bool", "str", "List", "Optional", "Device", "Generator")
)
"""The type names in schemas for which a spec can express values. A generator may be left at its default, None."""

_DATA = {bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, slice, range, type(None), type(...)}
_APPLY = vars(torch.autograd.Function)["apply"]  # a class method in Python; since torch 2.14, one in C
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType, *_DESCRIPTORS)
_BINDING = (
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, staticmethod, partial, type(lru_cache(len)),
)  # fmt: skip
"""The attributes that may be looked up on a class or an instance, since binding them runs no user code."""


class Unresolved(Exception):
    """Raised if a path names nothing, or an object that specs may not name. `hint` is the nearest valid path."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint

    @property
    def in_full(self) -> str:
        """The message with the hint, in one line."""
        return worded(str(self), nearest=self.hint)


def resolve(path: str, modules: Sequence[str]) -> Any:
    """Return the object that `package.module.attribute` (or `package.module:attribute`) names.

    `modules` are the modules that the project allows. In torch, NumPy, SciPy and math, a path may name operators and
    constants; in any other module, objects that it or a submodule defines or lists in `__all__`. Raises Unresolved.
    """
    dotted = path.replace(":", ".")
    words = allow_list.refused(path, modules)
    if words:
        what, expected, hint = words
        raise Unresolved(f"{what}; expected {expected}" if expected else what, hint)
    part = allow_list.part_of(dotted, modules)
    try:
        return _of_library(path, dotted, part) if part else _of_project(path, dotted, modules)
    except Unresolved:
        if not part or not allow_list.home_of(dotted, modules):
            raise
        return _of_project(path, dotted, modules)


def resolve_operator(path: str, modules: Sequence[str]) -> Callable[..., Any]:
    """Return the callable that a dotted path names.

    Raises Unresolved if there is none, or if it is a class, since testing a class would test its constructor.
    """
    return as_operator(resolve(path, modules), path)


def as_operator(target: Any, path: str) -> Callable[..., Any]:
    """Return the object found under a path, as a callable. Raises Unresolved if it cannot be tested as an operator."""
    if isinstance(target, type):
        if issubclass(target, torch.autograd.Function):
            raise Unresolved(f'"{path}" is a torch.autograd.Function; name its apply', f"{path}.apply")
        if issubclass(target, torch.nn.Module):
            what = "a module has to be constructed first (in a spec, say how: module = { args = [...] })"
        else:
            what = "calling it creates an object; name a function"
        raise Unresolved(f'"{path}" is a class, and {what}')
    if not callable(target):
        raise Unresolved(f'"{path}" is not a function but {type(target).__name__}')
    operator: Callable[..., Any] = target
    return operator


def resolve_module(path: str, modules: Sequence[str]) -> type[torch.nn.Module]:
    """Return the module class that a dotted path names. Raises Unresolved if it names anything else."""
    target = resolve(path, modules)
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        return target
    what = "a module already" if isinstance(target, torch.nn.Module) else f"{type(target).__name__}"
    raise Unresolved(f'"{path}" is not a class of modules, as the key module says, but {what}')


def _of_library(path: str, dotted: str, part: str) -> Any:
    """Return the object that a path names in a part of a library; in torch.ops, an operator or an overload."""
    parts = dotted.split(".")
    target: Any
    look_up: Callable[[Any, str], Any]
    if part.startswith(f"{allow_list.DISPATCHER}."):
        target, look_up = getattr(torch.ops, part.rpartition(".")[2]), getattr
    else:
        target, look_up = torch.Tensor if part == "torch.Tensor" else import_module(part), _static
    for index in range(part.count(".") + 1, len(parts)):
        parent = target
        try:
            target = look_up(parent, parts[index])
        except Exception as error:  # torch.ops runs code that reads a schema
            raise _missing(path, parent, parts, index, error) from None
        if isinstance(target, types.ModuleType):
            raise Unresolved(f'"{path}" is a module')
        if not is_member(part, parts[index], target):
            kinds = " and no ".join(PARTS.get(part, REGISTERED).kinds)
            raise Unresolved(f'"{path}" may not be named in a spec: it is no {kinds}')
    if isinstance(target, types.GetSetDescriptorType):  # an attribute of a tensor, such as `torch.Tensor.T`
        return lambda input: target.__get__(input)
    return target


def _static(parent: Any, name: str) -> Any:
    """Return a member of a module or a class without getattr, which may run lazy loading or code of a metaclass."""
    for holder in parent.__mro__ if isinstance(parent, type) else (parent,):
        if name in vars(holder):
            return vars(holder)[name]
    raise AttributeError(name)


def _of_project(path: str, dotted: str, modules: Sequence[str]) -> Any:
    """Return the object that the project defines or exports under a path, all parts of which must belong to it."""
    modules = allow_list.own(modules)
    parts = dotted.split(".")
    target, used = _import(parts)
    _refuse_foreign(path, None, "", target, modules)
    for index in range(used, len(parts)):
        parent, name = target, parts[index]
        target = _attribute(path, parent, parts, index)
        exported = index == len(parts) - 1 and isinstance(parent, types.ModuleType) and name in _exports(parent)
        if not exported or isinstance(target, types.ModuleType):
            _refuse_foreign(path, parent, name, target, modules)
    if isinstance(target, types.ModuleType):
        raise Unresolved(f'"{path}" is a module')
    return target


def _attribute(path: str, parent: Any, parts: list[str], index: int) -> Any:
    """Return an attribute. Raises Unresolved if a class or an instance (not a module) computes it on access."""
    name = parts[index]
    try:
        if isinstance(parent, types.ModuleType):
            return getattr(parent, name)
        target = getattr_static(parent, name)
        function = target.__func__ if isinstance(target, classmethod) else target
        if isinstance(function, _BINDING):
            return getattr(parent, name)
    except Exception as error:  # a lazy module passes on the exceptions of its imports
        raise _missing(path, parent, parts, index, error) from None
    if hasattr(type(target), "__get__"):
        raise Unresolved(f'"{path}": "{name}" is computed on access, so a spec may not name it')
    return target


def _refuse_foreign(path: str, parent: Any, name: str, target: Any, modules: Sequence[str]) -> None:
    """Raise Unresolved for an object that does not belong to the project. The message explains how to allow it."""
    if _owned(target, modules):
        return
    if isinstance(target, types.ModuleType):
        raise Unresolved(f'"{path}" leads to the module {target.__name__}, outside the allowed modules')
    origin = _home(target)
    what = f'"{path}" is defined in the module {origin}, outside the allowed modules'
    ways = []
    if isinstance(parent, types.ModuleType) and inside(parent.__name__, modules):
        ways.append(f'add "{name}" to __all__ of {parent.__name__}')
    package = origin.partition(".")[0]
    if not allow_list.is_shared(package):
        ways.append(f'write modules = [..., "{origin}"] under [tool.opcheck]')
    raise Unresolved(what + (f"; if this is intended, {', or '.join(ways)}" if ways else ""))


def _exports(module: types.ModuleType) -> Sequence[str]:
    listed = vars(module).get("__all__", ())
    return listed if isinstance(listed, (list, tuple)) else ()


def _missing(path: str, parent: Any, parts: list[str], index: int, error: Exception) -> Unresolved:
    near = nearest(parts[index], [other for other in dir(parent) if not other.startswith("_")])
    hint = ".".join([*parts[:index], near, *parts[index + 1 :]]) if near else ""
    reason = "" if isinstance(error, AttributeError) else f" ({one_line(error)})"
    if parts[:2] == ["torch", "ops"] and index == 3 and not near:
        reason = "; list the module that registers it under imports"
    return Unresolved(f'"{path}": {".".join(parts[:index])} has no attribute "{parts[index]}"{reason}', hint)


def import_module(name: str) -> types.ModuleType:
    """Import a module, which may also register operators. Raises Unresolved."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise Unresolved(f'importing "{name}" failed: {one_line(error)}') from error


def _import(parts: list[str]) -> tuple[Any, int]:
    """Import the longest proper prefix of a path that is a module. Return the module and the number of parts used."""
    for used in range(max(len(parts) - 1, 1), 0, -1):
        name = ".".join(parts[:used])
        try:
            return import_module(name), used
        except Unresolved as failure:
            missing = failure.__cause__
            if not isinstance(missing, ModuleNotFoundError):
                raise
            if missing.name is None or not inside(name, (missing.name,)):
                raise Unresolved(f'importing "{name}" failed: {missing}') from None
    raise Unresolved(f'no module named "{parts[0]}"')


def is_member(part: str, name: str, value: Any) -> bool:
    """Return whether a spec may name `value`, the member `name` of a part of a library."""
    listed = PARTS.get(part, REGISTERED)
    return name not in listed.never and any(_IS[kind](value) for kind in listed.kinds)


def _is_operator(value: Any) -> bool:
    """Return whether a function is one of torch's operators, regardless of the path under which it was found."""
    if isinstance(value, types.BuiltinFunctionType):
        return _table(value) in _tables() and value.__name__ not in PARTS["torch"].never
    is_defined_there = isinstance(value, types.FunctionType) and value.__module__ in _PYTHON_HOMES
    return is_defined_there and value.__name__ not in PARTS["torch.sparse"].never


def _table(function: types.BuiltinFunctionType) -> tuple[Any, str]:
    """Return the object that a C function is bound to, and its qualified name without the last part.

    They identify the table of operators that the function is in.
    """
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
    """Return whether a function creates an array from any object, so that it does not dispatch on its argument."""
    import numpy

    return any(value is one for one in (numpy.array, numpy.asarray, numpy.ascontiguousarray))


def _is_of_scipy(value: Any) -> bool:
    # The transforms of scipy.fft are dispatchers. They wrap the function that returns the dispatched arguments.
    function = isinstance(value, types.FunctionType) or hasattr(value, "__wrapped__")
    return function and str(value.__module__).startswith("scipy.")


def is_dispatched(value: Any) -> bool:
    """Return whether an object is an operator of torch.ops, or an overload of one."""
    return isinstance(value, (PACKET, OVERLOAD))


@cache
def _takes_and_gives_tensors(operator: Any) -> bool:
    """Return whether an operator of torch.ops, or an overload, takes tensors, and returns tensors or writes to them.

    An overload only counts if a spec can express all required arguments, unlike a stream or a storage.
    """
    return any(map(_on_tensors, own_schemas(operator)))


def _on_tensors(schema: Any) -> bool:
    tensors = [argument for argument in schema.arguments if "Tensor" in str(argument.type)]
    written = [argument for argument in tensors if argument.alias_info is not None and argument.alias_info.is_write]
    returned = [result for result in schema.returns if "Tensor" in str(result.type)]
    needed = [str(argument.type) for argument in schema.arguments if not argument.has_default_value()]
    has_values = _HAS_VALUES.issuperset(word for one in needed for word in re.findall(r"[\w.]+", one))
    return has_values and any(not argument.kwarg_only for argument in tensors) and bool(returned or written)


_IS: dict[Kind, Callable[[Any], bool]] = {
    "array function": _is_array_function,
    "attribute": lambda value: any(value is one for one in _VIEWS),
    "class of modules": lambda value: isinstance(value, type) and issubclass(value, torch.nn.Module),
    "class of options": lambda value: isinstance(value, type) and is_dataclass(value),
    "constant": lambda value: isinstance(value, _CONSTANTS),
    "distribution": _is_distribution,
    "function of numbers": lambda value: isinstance(value, types.BuiltinFunctionType),
    "function of SciPy": _is_of_scipy,
    "maker of arrays": _makes_arrays,
    "method": lambda value: isinstance(
        value, (types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType)
    ),
    "method of a distribution": lambda value: (
        isinstance(value, types.FunctionType) and value.__name__ in PARTS["torch.distributions"].methods
    ),
    "operator": _is_operator,
    "operator of the dispatcher": is_dispatched,
    "operator on tensors": _takes_and_gives_tensors,
}
"""The predicate for each kind of the allow list. A kind without a predicate raises KeyError, so it allows nothing."""


def _owned(value: Any, modules: Sequence[str]) -> bool:
    """Return whether an object is defined in one of the modules, or counts as created there: data, torch objects."""
    if isinstance(value, types.ModuleType):
        return inside(value.__name__, modules)
    if isinstance(value, partial):
        return _owned(value.func, modules) or _is_operator(value.func)
    if type(value) in _DATA or inside(_home(value), modules):
        return True
    if isinstance(value, types.FunctionType):  # a decorator may have copied __module__ from the function it wraps
        return inside(value.__globals__.get("__name__", ""), modules)
    if isinstance(value, (type, *_FUNCTIONS)):
        return False
    made_of = type(value).__module__
    # Operators of torch.library, scripted functions, modules and tensors; NumPy's arrays, but not its functions.
    return inside(made_of, ("torch", *modules)) or (inside(made_of, ("numpy",)) and not callable(value))


def _home(value: Any) -> str:
    """Return the name of the module that defines an object; for a C method, the module of its class."""
    while isinstance(value, partial):
        value = value.func
    if _is_apply(value):
        value = value.__self__
    elif isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, _DESCRIPTORS):
        value = value.__objclass__
    module = getattr(value, "__module__", None)
    if module is None and isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
        return _home_of_bound(value)
    return module if isinstance(module, str) else type(value).__module__


def _is_apply(value: Any) -> bool:
    """Return whether an object is the `apply` that a custom autograd function inherits."""
    owner = value.__self__ if isinstance(value, (types.MethodType, types.BuiltinFunctionType)) else None
    return is_function(owner) and value == _APPLY.__get__(None, owner)


def _home_of_bound(method: types.BuiltinFunctionType | types.MethodWrapperType) -> str:
    """Return the module of the class that defines a C method: for one that a class inherits from dict, builtins."""
    owner = method.__self__
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    classes = [*(owner.__mro__ if isinstance(owner, type) else ()), *type(owner).__mro__]
    return next((_home(base) for base in classes if method.__name__ in vars(base)), type(owner).__module__)
