"""The parameters of an operator: from its Python signature, or from its schema in the dispatcher."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opcheck.checks.arguments import parameters, schema_of
from opcheck.draft.hint import documented, shapes_in
from opcheck.draft.parameter import TENSOR, Parameter

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
    named = [one for one in declared if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    starred = any(one.kind is one.VAR_POSITIONAL for one in declared)
    if starred and not any(one.default is one.empty for one in named):
        return list(UNKNOWN)
    doc = inspect.getdoc(operator) or ""
    return [[replace(own, shapes=_shapes(doc, one)) for one, own in zip(named, map(of_signature, named), strict=True)]]


def _shapes(doc: str, one: inspect.Parameter) -> tuple[tuple[int, ...], ...]:
    return (*shapes_in(str(one.annotation)), *documented(doc, one.name))


def of_signature(one: inspect.Parameter, *, constructor: bool = False) -> Parameter:
    """Return what to try for a parameter of a function, or of a constructor of modules."""
    annotation = "" if one.annotation is one.empty else _text(one.annotation)
    required = one.default is one.empty
    default = None if required else one.default
    keyword = one.kind is one.KEYWORD_ONLY
    return Parameter.of(one.name, annotation, default, required=required, keyword=keyword, constructor=constructor)


def _text(annotation: Any) -> str:
    """Return an annotation as it is written."""
    text = str(annotation)
    return text if isinstance(annotation, str) or "Literal[" in text else getattr(annotation, "__name__", "") or text


def _of_schema(argument: Any) -> Parameter:
    text = str(argument.type)
    required = not argument.has_default_value()
    default = None if required else argument.default_value
    if text.startswith("Optional"):
        default = None
    return Parameter.of(argument.name, text.lower(), default, required=required, keyword=argument.kwarg_only)
