"""How to construct a class of modules: guesses from the signature of its constructor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, product
from typing import Any

from torch.nn import Module

from opcheck.draft.guess import sample_of, with_shapes
from opcheck.draft.parameter import TENSOR, Parameter, path_of
from opcheck.draft.signature import parameters_of_constructor

MOST = 24
"""How many ways to construct a module are tried."""

SHAPES = ((3,),) * 8
"""The shapes of tensors that a constructor takes, such as weights of classes."""


def constructions(make: type[Module]) -> Iterator[dict[str, Any]]:
    """Yield arguments for a constructor as in `module = { args = [3, 2] }`, the likeliest first."""
    required = [one for one in parameters_of_constructor(make) if one.required]
    inner = _siblings(make)
    options = [(*one.options, *([[inner[0]], *inner] if inner and not _has_numbers(one) else [])) for one in required]
    alike = islice(zip(*options, strict=False), MOST // 2)  # as for a module of two modules
    for choice in islice(chain(alike, product(*options)), MOST):
        arguments = sample_of(required, with_shapes(choice, iter(SHAPES)))
        yield {key: values for key, values in arguments.items() if values}


def _has_numbers(one: Parameter) -> bool:
    """Tell whether a parameter is known to take numbers: its name says so, or its annotation."""
    return bool(one.options) and TENSOR not in one.options


def _siblings(make: type[Module]) -> list[dict[str, Any]]:
    """Return modules of the same kind, of those that need no arguments: what a module of modules may consist of."""
    *_, base = (one for one in make.__mro__ if issubclass(one, Module) and one is not Module)
    if base is make:
        return []
    others = [one for one in base.__subclasses__() if one is not make and one.forward is not base.forward]
    plain = [one for one in others if not any(own.required for own in parameters_of_constructor(one))]
    return [{"call": path_of(one)} for one in plain[:2]]
