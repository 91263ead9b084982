"""How to construct a class of modules: guesses from the signature of its constructor."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

from torch.nn import Module

from opcheck.draft.guess import with_shapes
from opcheck.draft.parameter import Parameter
from opcheck.draft.signature import of_signature

MOST = 24
"""How many ways to construct a module are tried."""

SHAPES = ((3,),) * 8
"""The shapes of tensors that a constructor takes, such as weights of classes."""


def constructions(make: type[Module]) -> Iterator[dict[str, Any]]:
    """Yield arguments for a constructor as in `module = { args = [3, 2] }`, the likeliest first."""
    required = [one for one in _parameters(make) if one.required]
    for choice in islice(product(*(one.options for one in required)), MOST):
        values = with_shapes(choice, iter(SHAPES))
        args = [value for one, value in zip(required, values, strict=True) if not one.keyword]
        kwargs = {one.name: value for one, value in zip(required, values, strict=True) if one.keyword}
        yield {**({"args": args} if args else {}), **({"kwargs": kwargs} if kwargs else {})}


def _parameters(make: type[Module]) -> list[Parameter]:
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return []
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [of_signature(one, constructor=True) for one in parameters if one.kind not in starred]
