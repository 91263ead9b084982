"""From a dotted path to the object it names, without ever leaving the modules that a project allows."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from opcheck.spec.problems import nearest


class Unresolved(Exception):
    """A path that names nothing, or something outside the allowed modules. `hint` is the nearest valid path."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


def resolve(path: str, modules: Sequence[str]) -> Any:
    """Return the object that `package.module.attribute` (or `package.module:attribute`) names.

    Modules met on the way must be among `modules` or inside them, and so must the module that a callable comes from:
    `torch.serialization.os.system` leads outside torch and is refused. Raises Unresolved.
    """
    parts = path.replace(":", ".").split(".")
    if not any(_inside(path.replace(":", "."), module) for module in modules):
        raise Unresolved(f'"{path}" is outside the allowed modules ({", ".join(modules)})')
    found, used = _import(parts)
    for index in range(used, len(parts)):
        parent, name = found, parts[index]
        try:
            found = getattr(parent, name)
        except (AttributeError, RuntimeError):  # torch.ops raises RuntimeError for some malformed names
            near = nearest(name, [other for other in dir(parent) if not other.startswith("_")])
            hint = ".".join([*parts[:index], near, *parts[index + 1 :]]) if near else ""
            raise Unresolved(f'"{path}": {".".join(parts[:index])} has no attribute "{name}"', hint) from None
        if isinstance(found, ModuleType) and not _allowed_module(found.__name__, modules):
            raise Unresolved(f'"{path}" leads to the module {found.__name__}, outside the allowed modules')
    if isinstance(found, ModuleType):
        raise Unresolved(f'"{path}" is a module')
    home = getattr(found, "__module__", None)
    if (
        callable(found)
        and isinstance(home, str)
        and not _allowed_module(home, modules)
        and not home.startswith("torch")
    ):
        raise Unresolved(f'"{path}" is defined in the module {home}, outside the allowed modules')
    return found


def _import(parts: list[str]) -> tuple[Any, int]:
    """Import the longest prefix that is a module."""
    found: Any = None
    for used in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:used])
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not _inside(name, error.name):
                raise Unresolved(f'importing "{name}" failed: {error}') from None
        except Exception as error:
            raise Unresolved(f'importing "{name}" failed: {type(error).__name__}: {error}') from error
        else:
            return found, used
    raise Unresolved(f'no module named "{parts[0]}"')


def _inside(path: str, module: str) -> bool:
    return path == module or path.startswith(f"{module}.")


def _allowed_module(name: str, modules: Sequence[str]) -> bool:
    return any(_inside(name, module) or _inside(module, name) for module in modules)
