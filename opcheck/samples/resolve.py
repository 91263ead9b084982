"""Resolves a dotted path to the object that it names: an operator of a library, or something the project defines.

Nothing is called or computed on the way. docs/security.md explains why.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
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

from opcheck.samples.homes import home, inside, owned
from opcheck.samples.libraries import is_dispatched, offers, takes_and_gives_tensors
from opcheck.spec import names
from opcheck.spec.problems import nearest

_NOTHING = object()
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
    if names.is_dispatched(dotted, modules):
        return _dispatched(path, dotted)
    namespace = names.namespace_of(dotted, modules)
    if namespace:
        try:
            return _of_library(path, dotted, namespace)
        except Unresolved:
            if not names.home_of(dotted, modules):
                raise
    return _of_project(path, dotted, modules)


def _of_library(path: str, dotted: str, namespace: str) -> Any:
    """Return the object with this path in a namespace of a library."""
    parts = dotted.split(".")
    parent = torch.Tensor if namespace == "torch.Tensor" else _import(parts)[0]
    # Looked up in __dict__: getattr would trigger lazy loading in a module, and the metaclass of a class.
    holders = parent.__mro__ if isinstance(parent, type) else (parent,)
    found = next((vars(holder)[parts[-1]] for holder in holders if parts[-1] in vars(holder)), _NOTHING)
    if found is _NOTHING:
        raise _missing(path, parent, parts, len(parts) - 1)
    if isinstance(found, ModuleType):
        raise Unresolved(f'"{path}" is a module')
    if not offers(namespace, parts[-1], found):
        what = "tensors" if namespace.startswith("torch") else "arrays and numbers"
        raise Unresolved(f'"{path}" may not be named in a spec: it is neither a function of {what} nor a constant')
    return found


def _dispatched(path: str, dotted: str) -> Any:
    """Return an operator of torch.ops, or an overload of one."""
    parts = dotted.split(".")
    found: Any = getattr(torch.ops, parts[2])
    for index in range(3, len(parts)):
        parent = found
        try:
            found = getattr(parent, parts[index])
        except Exception as error:
            raise _missing(path, parent, parts, index, error) from None
        if not is_dispatched(found):
            raise Unresolved(f'"{path}": {".".join(parts[: index + 1])} is not an operator')
    if parts[2] in names.OPERATORS_OF_TORCH and not takes_and_gives_tensors(found):
        raise Unresolved(f'"{path}" may not be named in a spec: it does not take and return tensors')
    return found


def _of_project(path: str, dotted: str, modules: Sequence[str]) -> Any:
    """Return what the project defines or exports under a path. Every part of the path must belong to the project."""
    modules = names.own(modules)
    parts = dotted.split(".")
    found, used = _import(parts)
    _refuse_foreign(path, None, "", found, modules)
    for index in range(used, len(parts)):
        parent, name = found, parts[index]
        found = _attribute(path, parent, parts, index)
        exported = index == len(parts) - 1 and isinstance(parent, ModuleType) and name in _exports(parent)
        if not exported or isinstance(found, ModuleType):
            _refuse_foreign(path, parent, name, found, modules)
    if isinstance(found, ModuleType):
        raise Unresolved(f'"{path}" is a module')
    return found


def _attribute(path: str, parent: Any, parts: list[str], index: int) -> Any:
    """Return an attribute. Only modules may compute it; a computed attribute of a class or an instance is refused."""
    name = parts[index]
    try:
        if isinstance(parent, ModuleType):
            return getattr(parent, name)
        found = getattr_static(parent, name)
        function = found.__func__ if isinstance(found, classmethod) else found
        if isinstance(function, _BINDING):
            return getattr(parent, name)
    except Exception as error:  # lazy modules raise what their imports raise
        raise _missing(path, parent, parts, index, error) from None
    if hasattr(type(found), "__get__"):
        raise Unresolved(f'"{path}": "{name}" is computed on access, so a spec may not name it')
    return found


def _refuse_foreign(path: str, parent: Any, name: str, found: Any, modules: Sequence[str]) -> None:
    """Raise Unresolved for an object that does not belong to the project, and say how to allow it."""
    if owned(found, modules):
        return
    if isinstance(found, ModuleType):
        raise Unresolved(f'"{path}" leads to the module {found.__name__}, outside the allowed modules')
    origin = home(found)
    what = f'"{path}" is defined in the module {origin}, outside the allowed modules'
    ways = []
    if isinstance(parent, ModuleType) and inside(parent.__name__, modules):
        ways.append(f'add "{name}" to __all__ of {parent.__name__}')
    package = origin.partition(".")[0]
    if package not in (*sys.stdlib_module_names, *names.NAMESPACES):
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
