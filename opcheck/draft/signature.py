"""The parameters of an operator: from its Python signature, or from its schema in the dispatcher."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_type_hints

from torch.nn import Module

from opcheck.checks.arguments import parameters, schema_of
from opcheck.draft.hint import documented, shapes_in
from opcheck.draft.parameter import TENSOR, Parameter

STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
UNKNOWN = (
    [Parameter("input", (TENSOR,), True)],
    [Parameter(name, (TENSOR,), True) for name in ("input", "other")],
)
"""What to try where a signature says nothing: one tensor, or two."""


def parameters_of(operator: Callable[..., Any], path: str) -> list[list[Parameter]]:
    """Return the parameters of an operator; several lists, to be tried in turn, if nothing is known about them."""
    schema = schema_of(operator, path)
    if schema is not None:
        return [[_of_schema(argument) for argument in schema.arguments]]
    try:
        declared = parameters(operator)
    except (TypeError, ValueError):
        return list(UNKNOWN)
    named = [one for one in declared if one.kind not in STARRED]
    starred = any(one.kind is one.VAR_POSITIONAL for one in declared)
    if starred and not any(one.default is one.empty for one in named):
        return list(UNKNOWN)
    doc = inspect.getdoc(operator) or ""
    shapes = {one.name: (*shapes_in(str(one.annotation)), *documented(doc, one.name)) for one in named}
    return [[replace(_declared(one, operator), shapes=shapes[one.name]) for one in named]]


def parameters_of_constructor(make: type[Module]) -> list[Parameter]:
    """Return the parameters of the constructor of a class of modules."""
    try:
        declared = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return []
    return [_declared(one, make, constructor=True) for one in declared if one.kind not in STARRED]


def _declared(one: inspect.Parameter, operator: Callable[..., Any], *, constructor: bool = False) -> Parameter:
    """Return what to try for a parameter of a function, or of a constructor of modules."""
    annotation = "" if one.annotation is one.empty else _evaluated(one.annotation, operator)
    required = one.default is one.empty
    default = None if required else one.default
    keyword = one.kind is one.KEYWORD_ONLY
    return Parameter.of(one.name, annotation, default, required=required, keyword=keyword, constructor=constructor)


def _evaluated(annotation: Any, operator: Callable[..., Any]) -> Any:
    """Return the type that an annotation stands for; its text if it has names that the operator's module has not."""
    owner = getattr(operator, "__self__", operator)
    home = sys.modules.get(getattr(owner if isinstance(owner, type) else operator, "__module__", None) or "")
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), vars(home) if home else {})["it"]
    except Exception:  # whatever the text computes
        return annotation


def _of_schema(argument: Any) -> Parameter:
    text = str(argument.type)
    required = not argument.has_default_value()
    default = None if required else argument.default_value
    if text.startswith("Optional"):
        default = None
    return Parameter.of(argument.name, text.lower(), default, required=required, keyword=argument.kwarg_only)
