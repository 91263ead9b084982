"""The parameters of an operator: their names and defaults, from its schema or its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch


class Parameter(NamedTuple):
    """A parameter of an operator."""

    name: str
    default: Any
    """The default value; `NO_DEFAULT` if there is none."""
    by_position: bool
    by_name: bool


NO_DEFAULT = inspect.Parameter.empty


def described(operator: Callable[..., Any], path: str) -> list[Parameter]:
    """Return the parameters of an operator, by its schema or its signature; an empty list if it has neither.

    Built-in functions of torch have no Python signature. They have the parameters of the ATen operator of the same
    name, whose schema says of each that it can be passed by position.

    path: the dotted path of the operator.
    """
    if schemas := schemas_of(operator, path):
        found = ((one, one.default_value if one.has_default_value() else NO_DEFAULT) for one in schemas[0].arguments)
        # ATen calls the first argument `self`, the documentation calls it `input`.
        return [Parameter("input" if one.name == "self" else one.name, value, True, True) for one, value in found]
    try:
        declared = parameters(operator)
    except (TypeError, ValueError):
        return []
    return [Parameter(one.name, one.default, one.kind in POSITIONAL, one.kind in KEYWORD) for one in declared]


def names_of(operator: Callable[..., Any], path: str) -> tuple[str, ...]:
    """Return the names of an operator's positional parameters; an empty tuple if they are unknown."""
    return tuple(one.name for one in described(operator, path) if one.by_position)


def all_names_of(operator: Callable[..., Any], path: str) -> list[str]:
    """Return the names of an operator's positional parameters, and of those with a default that only have a name."""
    known = described(operator, path)
    return [one.name for one in known if one.by_position or (one.by_name and one.default is not NO_DEFAULT)]


def defaults_of(operator: Callable[..., Any], path: str) -> dict[str, Any]:
    """Return the default values of an operator's parameters that can be passed by name."""
    known = described(operator, path)
    return {one.name: one.default for one in known if one.by_name and one.default is not NO_DEFAULT}


def schemas_of(operator: Callable[..., Any], path: str) -> list[Any]:
    """Return the schemas of all overloads of an operator in torch's dispatcher; none for a Python function.

    A built-in function has those of the ATen operator of the same name.
    """
    if schemas := overloads_of(operator):
        return schemas
    try:
        inspect.signature(operator)
    except (TypeError, ValueError):
        name = path.replace(":", ".").rsplit(".", 1)[-1]
        names = (name, name.rstrip("_"), f"special_{name}", f"linalg_{name}")
        found = (overloads_of(getattr(torch.ops.aten, one, None)) for one in names)
        return next(filter(None, found), [])
    return []


def overloads_of(operator: Any) -> list[Any]:
    """Return the schemas of an operator of torch.ops or torch.library, or of a function in TorchScript; else none."""
    operator = getattr(operator, "_opoverload", operator)  # the overload of a torch.library.custom_op
    if isinstance(operator, torch.jit.ScriptFunction):
        return [operator.schema]
    if isinstance(operator, PACKET):
        return [getattr(operator, name)._schema for name in operator.overloads()]
    return [operator._schema] if isinstance(operator, OVERLOAD) else []


PACKET: Any = type(torch.ops.aten.sin)
"""The class of operators of torch.ops."""
OVERLOAD: Any = type(torch.ops.aten.sin.default)
"""The class of their overloads."""
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def parameters(operator: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a callable. Raises TypeError or ValueError if it has no Python signature."""
    owner = getattr(operator, "__self__", None)
    if not is_function(owner):
        return list(inspect.signature(operator).parameters.values())
    # apply takes the arguments of forward, except ctx, which forward has only if setup_context is not defined
    own = list(inspect.signature(owner.forward).parameters.values())
    return own[1:] if owner.setup_context is torch.autograd.Function.setup_context else own


def is_function(owner: Any) -> TypeGuard[type[torch.autograd.Function]]:
    """Return whether the owner of a method is an autograd.Function, so that the method is `apply`."""
    return isinstance(owner, type) and issubclass(owner, torch.autograd.Function)


def takes_out(operator: Callable[..., Any]) -> bool | None:
    """Return whether an operator takes `out=`, by its schema or signature; None for built-ins without a signature."""
    schemas = overloads_of(operator)
    if schemas:  # several results go to parameters of their own, such as out0= and out1=
        written = ([one.name for one in schema.arguments if one.is_out or one.name == "out"] for schema in schemas)
        return ["out"] in written
    try:
        return any(one.name == "out" and one.kind is not one.POSITIONAL_ONLY for one in parameters(operator))
    except TypeError:
        return False
    except ValueError:  # a function in C without a signature
        return None


def argument_label(path: Sequence[int | str], names: Sequence[str]) -> str:
    """Return the label of the argument at a path, such as `tensors[2]` for ("args", 0, 2).

    names: the names of the positional parameters, as far as they are known.
    """
    at, *inside = path[1:]
    name = at if isinstance(at, str) else names[at] if at < len(names) else f"argument {at}"
    return name + "".join(f"[{item!r}]" for item in inside)
