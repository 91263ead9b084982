"""Resolves a dotted path to the object that it names: an operator of a library, or something the project defines.

What may be named is listed in `opcheck/spec/names.py`. Nothing is called or computed on the way. docs/security.md
explains why.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from inspect import getattr_static
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch

from opcheck.samples.members import home, inside, is_member, owned
from opcheck.spec import names
from opcheck.spec.problems import nearest

_BINDING = (
    FunctionType, MethodType, BuiltinFunctionType, MethodDescriptorType, ClassMethodDescriptorType, staticmethod,
    partial, type(lru_cache(len)),
)  # fmt: skip
"""What may be looked up on a class or an instance, since binding these runs no user code."""


class Unresolved(Exception):
    """A path that names nothing, or something that specs may not name. `hint` is the nearest valid path."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


def resolve(path: str, modules: Sequence[str]) -> Any:
    """Return the object that `package.module.attribute` (or `package.module:attribute`) names.

    `modules` are those that the project allows. In torch, NumPy, SciPy and math, a path may name operators and
    constants; in any other module, what it or a module inside it defines or exports in `__all__`. Raises Unresolved.
    """
    dotted = path.replace(":", ".")
    words = names.refused(path, modules)
    if words:
        what, expected, hint = words
        raise Unresolved(f"{what}; expected {expected}" if expected else what, hint)
    part = names.part_of(dotted, modules)
    try:
        return _of_library(path, dotted, part) if part else _of_project(path, dotted, modules)
    except Unresolved:
        if not part or not names.home_of(dotted, modules):
            raise
        return _of_project(path, dotted, modules)


def resolve_operator(path: str, modules: Sequence[str]) -> Callable[..., Any]:
    """Return the callable that a dotted path names.

    Raises Unresolved if there is none, and for classes: testing a class as an operator would test its constructor.
    """
    return as_operator(resolve(path, modules), path)


def as_operator(target: Any, path: str) -> Callable[..., Any]:
    """Return what was found under a path, if it can be tested as an operator. Raises Unresolved."""
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
    """Return the class of modules that a dotted path names. Raises Unresolved if it names anything else."""
    target = resolve(path, modules)
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        return target
    what = "a module already" if isinstance(target, torch.nn.Module) else f"{type(target).__name__}"
    raise Unresolved(f'"{path}" is not a class of modules, as the key module says, but {what}')


def _of_library(path: str, dotted: str, part: str) -> Any:
    """Return the object with this path in a part of a library; in torch.ops, an operator or an overload."""
    parts = dotted.split(".")
    start = part.count(".") + 1
    target, look_up = _part(part)
    for index in range(start, len(parts)):
        parent = target
        try:
            target = look_up(parent, parts[index])
        except Exception as error:  # torch.ops runs what reads a schema
            raise _missing(path, parent, parts, index, error) from None
        if isinstance(target, ModuleType):
            raise Unresolved(f'"{path}" is a module')
        if not is_member(part, parts[index], target):
            kinds = " and no ".join(names.PARTS.get(part, names.REGISTERED).kinds)
            raise Unresolved(f'"{path}" may not be named in a spec: it is no {kinds}')
    return target


def _part(part: str) -> tuple[Any, Callable[[Any, str], Any]]:
    """Return a part of a library, and the function that looks up its members."""
    if part.startswith(f"{names.DISPATCHER}."):
        return getattr(torch.ops, part.rpartition(".")[2]), getattr
    if part == "torch.Tensor":
        return torch.Tensor, _static
    import_module(part)
    return sys.modules[part], _static


def _static(parent: Any, name: str) -> Any:
    """Return a member of a module or a class. getattr would trigger lazy loading, and the metaclass of a class."""
    for holder in parent.__mro__ if isinstance(parent, type) else (parent,):
        if name in vars(holder):
            return vars(holder)[name]
    raise AttributeError(name)


def _of_project(path: str, dotted: str, modules: Sequence[str]) -> Any:
    """Return what the project defines or exports under a path. Every part of the path must belong to the project."""
    modules = names.own(modules)
    parts = dotted.split(".")
    target, used = _import(parts)
    _refuse_foreign(path, None, "", target, modules)
    for index in range(used, len(parts)):
        parent, name = target, parts[index]
        target = _attribute(path, parent, parts, index)
        exported = index == len(parts) - 1 and isinstance(parent, ModuleType) and name in _exports(parent)
        if not exported or isinstance(target, ModuleType):
            _refuse_foreign(path, parent, name, target, modules)
    if isinstance(target, ModuleType):
        raise Unresolved(f'"{path}" is a module')
    return target


def _attribute(path: str, parent: Any, parts: list[str], index: int) -> Any:
    """Return an attribute. Only modules may compute it; a computed attribute of a class or an instance is refused."""
    name = parts[index]
    try:
        if isinstance(parent, ModuleType):
            return getattr(parent, name)
        target = getattr_static(parent, name)
        function = target.__func__ if isinstance(target, classmethod) else target
        if isinstance(function, _BINDING):
            return getattr(parent, name)
    except Exception as error:  # lazy modules raise what their imports raise
        raise _missing(path, parent, parts, index, error) from None
    if hasattr(type(target), "__get__"):
        raise Unresolved(f'"{path}": "{name}" is computed on access, so a spec may not name it')
    return target


def _refuse_foreign(path: str, parent: Any, name: str, target: Any, modules: Sequence[str]) -> None:
    """Raise Unresolved for an object that does not belong to the project, and say how to allow it."""
    if owned(target, modules):
        return
    if isinstance(target, ModuleType):
        raise Unresolved(f'"{path}" leads to the module {target.__name__}, outside the allowed modules')
    origin = home(target)
    what = f'"{path}" is defined in the module {origin}, outside the allowed modules'
    ways = []
    if isinstance(parent, ModuleType) and inside(parent.__name__, modules):
        ways.append(f'add "{name}" to __all__ of {parent.__name__}')
    package = origin.partition(".")[0]
    if not names.is_shared(package):
        ways.append(f'write modules = [..., "{origin}"] under [tool.opcheck]')
    raise Unresolved(what + (f"; if this is intended, {', or '.join(ways)}" if ways else ""))


def _exports(module: ModuleType) -> Sequence[str]:
    listed = vars(module).get("__all__", ())
    return listed if isinstance(listed, (list, tuple)) else ()


def _missing(path: str, parent: Any, parts: list[str], index: int, error: Exception | None = None) -> Unresolved:
    near = nearest(parts[index], [other for other in dir(parent) if not other.startswith("_")])
    hint = ".".join([*parts[:index], near, *parts[index + 1 :]]) if near else ""
    reason = "" if error is None or isinstance(error, AttributeError) else f" ({type(error).__name__}: {error})"
    return Unresolved(f'"{path}": {".".join(parts[:index])} has no attribute "{parts[index]}"{reason}', hint)


def import_module(name: str) -> None:
    """Import a module for what importing it registers. Raises Unresolved."""
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise Unresolved(f'importing "{name}" failed: {type(error).__name__}: {error}') from error


NO_MODULES: dict[str, ModuleType] = {}
"""Paths such as mylib.Class that are not modules, with their packages. Looking for them on disk is slow."""


def _import(parts: list[str]) -> tuple[Any, int]:
    """Import the longest proper prefix that is a module. Return it and the number of parts used."""
    for used in range(max(len(parts) - 1, 1), 0, -1):
        name = ".".join(parts[:used])
        parent = sys.modules.get(name.rpartition(".")[0])
        if parent is not None and NO_MODULES.get(name) is parent:
            continue
        try:
            return importlib.import_module(name), used
        except ModuleNotFoundError as error:
            if error.name is None or not inside(name, (error.name,)):
                raise Unresolved(f'importing "{name}" failed: {error}') from None
            if parent is not None:
                NO_MODULES[name] = parent
        except (Exception, SystemExit) as error:
            raise Unresolved(f'importing "{name}" failed: {type(error).__name__}: {error}') from error
    raise Unresolved(f'no module named "{parts[0]}"')
