"""The parameters of an operator: their names and defaults, from its schema or its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch._library.custom_ops import CustomOpDef


class Signature(NamedTuple):
    """The parameters of an operator; empty if they are unknown."""

    positional: tuple[str, ...]
    """The names of the parameters that can be passed by position, in order."""
    defaults: dict[str, Any]
    """The default values of those that can be passed by name."""

    @property
    def names(self) -> list[str]:
        """The names of positional parameters, and of those with a default that only have a name."""
        return [*self.positional, *(name for name in self.defaults if name not in self.positional)]


def signature_of(operator: Callable[..., Any], path: str) -> Signature:
    """Return the parameters of an operator, by its schema or its signature.

    Built-in functions of torch have no Python signature. They have the parameters of the ATen operator of the same
    name, whose schema says of each that it can be passed by position.

    path: the dotted path of the operator.
    """
    if schemas := schemas_of(operator, path):
        # ATen calls the first argument `self`, the documentation calls it `input`.
        listed = [("input" if one.name == "self" else one.name, one) for one in schemas[0].arguments]
        defaults = {name: one.default_value for name, one in listed if one.has_default_value()}
        return Signature(tuple(name for name, _ in listed), defaults)
    try:
        declared = parameters(operator)
    except (TypeError, ValueError):
        return Signature((), {})
    named = [one for one in declared if one.kind in KEYWORD and one.default is not one.empty]
    return Signature(
        tuple(one.name for one in declared if one.kind in POSITIONAL), {one.name: one.default for one in named}
    )


def schemas_of(operator: Callable[..., Any], path: str) -> list[Any]:
    """Return the schemas of all overloads of an operator in torch's dispatcher; none for a Python function.

    A built-in function has those of the ATen operator of the same name.
    """
    if schemas := own_schemas(operator):
        return schemas
    try:
        inspect.signature(operator)
    except (TypeError, ValueError):
        name = path.replace(":", ".").rsplit(".", 1)[-1]
        names = (name, name.rstrip("_"), f"special_{name}", f"linalg_{name}")
        found = (own_schemas(getattr(torch.ops.aten, one, None)) for one in names)
        return next(filter(None, found), [])
    return []


def own_schemas(operator: Any) -> list[Any]:
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
REGISTERED = (OVERLOAD, PACKET, CustomOpDef)
"""The classes of operators registered with torch.library."""
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


def unregistered(operator: Any) -> Any:
    """Return the Python function of an operator by `torch.library.custom_op`; any other operator unchanged."""
    return getattr(operator, "_init_fn", operator)


def is_function(owner: Any) -> TypeGuard[type[torch.autograd.Function]]:
    """Return whether the owner of a method is an autograd.Function, so that the method is `apply`."""
    return isinstance(owner, type) and issubclass(owner, torch.autograd.Function)


def takes_out(operator: Callable[..., Any]) -> bool | None:
    """Return whether an operator takes `out=`, by its schema or signature; None for built-ins without a signature."""
    schemas = own_schemas(operator)
    if schemas:  # several results go to parameters of their own, such as out0= and out1=
        written = ([one.name for one in schema.arguments if one.is_out or one.name == "out"] for schema in schemas)
        return ["out"] in written
    try:
        return any(one.name == "out" and one.kind is not one.POSITIONAL_ONLY for one in parameters(operator))
    except TypeError:
        return False
    except ValueError:  # a function in C without a signature
        return None


def is_among(path: Sequence[int | str], wanted: Container[str | int], names: Sequence[str]) -> bool:
    """Return whether the name or position of the argument at a path, such as ("args", 0, 2), is among some.

    names: the names of the positional parameters, as far as they are known.
    """
    at = path[1]
    return at in wanted or (isinstance(at, int) and at < len(names) and names[at] in wanted)


def written_by(operator: Callable[..., Any]) -> bool | tuple[str, ...]:
    """Return the key `inplace` of the spec of an operator, by its schema: false if it has none."""
    arguments = [one for schema in own_schemas(operator)[:1] for one in schema.arguments if not one.is_out]
    written = [one.alias_info is not None and one.alias_info.is_write for one in arguments]
    if not any(written[1:]):
        return any(written)
    names = ("input" if one.name == "self" else one.name for one in arguments)
    return tuple(name for name, is_written in zip(names, written, strict=True) if is_written)


def argument_label(path: Sequence[int | str], names: Sequence[str]) -> str:
    """Return the label of the argument at a path, such as `tensors[2]` for ("args", 0, 2).

    names: the names of the positional parameters, as far as they are known.
    """
    at, *inside = path[1:]
    name = at if isinstance(at, str) else names[at] if at < len(names) else f"argument {at}"
    return name + "".join(f"[{item!r}]" for item in inside)
