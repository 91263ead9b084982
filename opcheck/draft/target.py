"""Finds the operators that a target names: an operator, or all operators that a Python module defines."""

from __future__ import annotations

import dis
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType, ModuleType
from typing import Any

import torch

from opcheck.samples.arguments import is_function, unregistered
from opcheck.samples.resolve import Unresolved, as_operator, import_module, is_dispatched, resolve
from opcheck.spec.problems import nearest


def package_of(target: str) -> str:
    """Return the top-level package of a target."""
    return target.replace(":", ".").partition(".")[0]


def names(target: str, modules: Sequence[str]) -> dict[str, str]:
    """Return the paths of the operators that a target names. The values are why they cannot be tested, or empty.

    Raises Unresolved if the target is neither a module nor an operator, or cannot be imported.
    """
    if not all(part.isidentifier() for part in target.replace(":", ".").split(".")) or target.endswith(".py"):
        path = target.removesuffix(".py").strip("./").replace("/", ".")
        raise Unresolved(f'"{target}" is not a path of a module or an operator, such as mylib or mylib.scale', path)
    module = _module(target)
    if module is None:
        try:
            resolve_either(target, modules)
        except Unresolved as error:
            hint = "; name the Python module that registers these operators" * target.startswith("torch.ops.")
            raise Unresolved(f"{error}{hint}", error.hint) from error
        return {target: ""}
    reasons, parts = {}, _parts_of_functions(module)
    for name, item in _operators_in(module):
        path = f"{target}.{name}"
        if id(item) in parts:
            of = f"{parts[id(item)]}, which calls it"
            reasons[path] = f"already tested through {of}; to draft it separately, run `opcheck new {path}`"
            continue
        try:
            resolve_either(path, modules)
            reasons[path] = ""
        except Unresolved as error:
            reasons[path] = str(error)
    # The in-place variant of another operator is tested with that operator.
    return {path: why for path, why in reasons.items() if not (path.endswith("_") and path[:-1] in reasons)}


def _operators_in(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the functions, classes of modules and unused autograd.Functions of a Python module, with their names."""
    used, exported = _used(module), [name for name in getattr(module, "__all__", ()) if hasattr(module, name)]
    for name in exported or [name for name in vars(module) if not name.startswith("_")]:
        item = getattr(module, name, None)
        if isinstance(item, ModuleType) or not callable(item):
            continue
        # Operators of torch.ops are defined elsewhere. They count if `__all__` exports them.
        if not _own(item, module) and not (exported and is_dispatched(item)):
            continue
        if not inspect.isclass(item) or issubclass(item, torch.nn.Module):
            yield name, item
        elif is_function(item) and id(item) not in used:
            yield f"{name}.apply", item


def modules_in(target: str) -> list[str]:
    """Return a hint that lists the modules in a package, in one line; no line if there are none."""
    paths = getattr(_module(target), "__path__", ())
    inside = [f"{target}.{one.name}" for one in pkgutil.iter_modules(paths) if not one.name.startswith("_")]
    return [f"try a module in it: {', '.join(inside)}"] if inside else []


def _used(module: ModuleType) -> set[int]:
    """Return the ids of what functions and classes of a Python module use: their callees are tested with them."""
    used: set[int] = set()
    for item in vars(module).values():
        if not (inspect.isclass(item) or inspect.isroutine(item)):  # other objects may have any attributes
            continue
        used.add(id(getattr(item, "__self__", None)))  # scale = Scale.apply
        used |= _globals_in(getattr(item, "forward", item)).keys() - {id(item)}
    return used


def _parts_of_functions(module: ModuleType) -> dict[int, str]:
    """Return the functions that autograd.Functions of a module call, as a dict from `id` to name of the Function.

    A function that calls the Function does not count: backward may call it, to be differentiable.
    """
    parts: dict[int, str] = {}
    for item in vars(module).values():
        for method in (item.forward, item.backward) if is_function(item) and _own(item, module) else ():
            for one in _globals_in(method).values():
                if one is not item and not (inspect.isfunction(one) and id(item) in _globals_in(one)):
                    parts[id(one)] = item.__name__
    return parts


def _globals_in(function: Any) -> dict[int, Any]:
    """Return the global objects that the code of a function names, by id: `tanh` in `tanh(x)`, but not in `x.tanh()`.

    Decorators with `functools.wraps` are unwrapped.
    """
    function = inspect.unwrap(function)
    code, home = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    instructions = dis.get_instructions(code) if isinstance(code, CodeType) else ()
    named = {one.argval for one in instructions if one.opname == "LOAD_GLOBAL"}
    return {id(home[name]): home[name] for name in named if name in home}


def resolve_either(path: str, modules: Sequence[str]) -> Callable[..., Any] | type[torch.nn.Module]:
    """Return the function, or the class of modules, that a path names. Raises Unresolved if there is none."""
    resolved = resolve(path, modules)
    made = resolved.func if isinstance(resolved, partial) else None
    if isinstance(made, type) and issubclass(made, torch.nn.Module):
        raise Unresolved(f'"{path}" is a partial of the class {made.__name__}: name a class that derives from it')
    if not isinstance(resolved, type) or not issubclass(resolved, torch.nn.Module):
        return as_operator(resolved, path)
    if resolved.forward is torch.nn.Module.forward:
        raise Unresolved(f'"{path}" has no forward')
    return resolved


def _module(path: str) -> ModuleType | None:
    """Return the Python module at a path; None if there is none, so that the path may name an operator.

    Raises Unresolved if importing it fails, or if there is no package of that name.
    """
    try:
        return import_module(path)
    except Unresolved as error:
        missing = error.__cause__
        if not isinstance(missing, ModuleNotFoundError) or not f"{path}.".startswith(f"{missing.name}."):
            raise
        if path == package_of(path):
            near = nearest(path, [one.name for one in pkgutil.iter_modules()])
            raise Unresolved(f'no module named "{path}"', near) from error
        return None


def _own(item: Any, module: ModuleType) -> bool:
    """Return whether an object is defined in the package of a module, and not imported from another package."""
    while isinstance(item, partial):
        item = item.func
    item = unregistered(item)
    owner = getattr(item, "__self__", None)
    home = getattr(owner if isinstance(owner, type) else item, "__module__", "") or type(item).__module__
    return str(home).partition(".")[0] == module.__name__.partition(".")[0]
