"""From a dotted path to the object it names, without ever leaving the modules that a project allows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from types import (
    BuiltinMethodType,
    ClassMethodDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from opcheck.spec.problems import nearest


class Unresolved(Exception):
    """A path that names nothing, or something outside the allowed modules. `hint` is the nearest valid path."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


UNSAFE = (
    "torch._inductor", "torch.backends.xeon", "torch.classes.load_library", "torch.distributed", "torch.from_file",
    "torch.hub", "torch.jit._serialization", "torch.multiprocessing", "torch.onnx", "torch.ops.load_library",
    "torch.package", "torch.serialization", "torch.testing", "torch.utils",
)  # fmt: skip
"""Parts of torch that run programs, load code or touch files. They must be allowed by name, as modules of their own."""
_UNSAFE_PREFIXES = tuple(f"{part}." for part in UNSAFE)


def resolve(path: str, modules: Sequence[str]) -> Any:
    """Return the object that `package.module.attribute` (or `package.module:attribute`) names.

    Everything met on the way must come from `modules`: modules must be among them or inside them, and so must those
    that classes, functions and methods are defined in. `torch.serialization.os.system` leads outside torch and is
    refused. Raises Unresolved.
    """
    dotted = path.replace(":", ".")
    if not any(_inside(dotted, module) for module in modules):
        raise Unresolved(f'"{path}" is outside the allowed modules ({", ".join(modules)})')
    _refuse_unsafe(path, dotted, modules)
    parts = dotted.split(".")
    found, used = _import(parts)
    for index in range(used, len(parts)):
        found = _attribute(found, parts, index, path)
        _refuse_foreign(path, found, modules)
    if isinstance(found, ModuleType):
        raise Unresolved(f'"{path}" is a module')
    return found


def _attribute(parent: Any, parts: list[str], index: int, path: str) -> Any:
    try:
        return getattr(parent, parts[index])
    except Exception as error:  # lazy modules raise whatever their import does
        near = nearest(parts[index], [other for other in dir(parent) if not other.startswith("_")])
        hint = ".".join([*parts[:index], near, *parts[index + 1 :]]) if near else ""
        what = f'"{path}": {".".join(parts[:index])} has no attribute "{parts[index]}"'
        reason = "" if isinstance(error, AttributeError) else f" ({type(error).__name__}: {error})"
        raise Unresolved(what + reason, hint) from None


def _refuse_foreign(path: str, found: Any, modules: Sequence[str]) -> None:
    """Raise Unresolved for a module, or for a callable from a module, that is not allowed."""
    if isinstance(found, ModuleType):
        if not _allowed(found.__name__, modules):
            raise Unresolved(f'"{path}" leads to the module {found.__name__}, outside the allowed modules')
        _refuse_unsafe(path, found.__name__, modules)
    elif callable(found):
        home = _home(found)
        if not _allowed(home, (*modules, "torch")):
            raise Unresolved(f'"{path}" is defined in the module {home}, outside the allowed modules')
        name = getattr(found, "__name__", "")
        _refuse_unsafe(path, f"{home}.{name}" if isinstance(name, str) else home, modules)


def _home(found: Any) -> str:
    """Return the name of the module that a callable comes from: for a method of C code, the module of its class."""
    while isinstance(found, partial):
        found = found.func
    if isinstance(found, (BuiltinMethodType, MethodWrapperType)) and found.__self__ is not None:
        owner = found.__self__
        return owner.__name__ if isinstance(owner, ModuleType) else _home(owner)
    if isinstance(found, (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)):
        return _home(found.__objclass__)
    home = getattr(found, "__module__", None)
    return home if isinstance(home, str) else type(found).__module__


def _refuse_unsafe(path: str, name: str, modules: Sequence[str]) -> None:
    if not f"{name}.".startswith(_UNSAFE_PREFIXES):  # as almost always
        return
    for part in UNSAFE:
        if _inside(name, part) and not any(_inside(name, module) and _inside(module, part) for module in modules):
            raise Unresolved(f'"{path}" is in {part}, which runs programs, loads code or touches files')


NO_MODULES: dict[str, ModuleType] = {}
"""Names that no module has, though the package has one: torch.Tensor. Looking for them on disk takes long."""


def _import(parts: list[str]) -> tuple[Any, int]:
    """Import the longest prefix that is a module."""
    for used in range(max(len(parts) - 1, 1), 0, -1):
        name = ".".join(parts[:used])
        parent = sys.modules.get(name.rpartition(".")[0])
        if parent is not None and NO_MODULES.get(name) is parent:
            continue
        try:
            return importlib.import_module(name), used
        except ModuleNotFoundError as error:
            if error.name is None or not _inside(name, error.name):
                raise Unresolved(f'importing "{name}" failed: {error}') from None
            if parent is not None:
                NO_MODULES[name] = parent
        except (Exception, SystemExit) as error:
            raise Unresolved(f'importing "{name}" failed: {type(error).__name__}: {error}') from error
    raise Unresolved(f'no module named "{parts[0]}"')


def _inside(path: str, module: str) -> bool:
    return path == module or path.startswith(f"{module}.")


def _allowed(name: str, modules: Sequence[str]) -> bool:
    return any(_inside(name, module) or _inside(module, name) for module in modules)
