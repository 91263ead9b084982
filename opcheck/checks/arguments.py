"""The names of positional parameters, for claims about single arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


def names_of(operator: Callable[..., Any], path: str) -> tuple[str, ...]:
    """Return the names of an operator's positional parameters; an empty tuple if they are unknown.

    Built-in functions of torch have no Python signature. Their names come from the ATen operator of the same name.
    """
    schema = getattr(operator, "_schema", None)
    if schema is None:
        try:
            parameters = inspect.signature(operator).parameters.values()
        except (TypeError, ValueError):
            schema = _aten_schema(path.replace(":", ".").rsplit(".", 1)[-1])
        else:
            kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)
    if schema is None:
        return ()
    # ATen calls the first argument `self`, the documentation calls it `input`.
    return tuple("input" if argument.name == "self" else argument.name for argument in schema.arguments)


def _aten_schema(name: str) -> Any:
    for candidate in (name, name.rstrip("_"), f"special_{name}", f"linalg_{name}"):
        packet = getattr(torch.ops.aten, candidate, None)
        if packet is not None:
            return getattr(packet, packet.overloads()[0])._schema
    return None
