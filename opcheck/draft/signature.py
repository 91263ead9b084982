"""The parameters of an operator: from its Python signature, or from its schema in the dispatcher."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_type_hints

from torch.nn import Module

from opcheck.draft.hint import documented, shapes_in
from opcheck.draft.parameter import REQUIRED, TENSOR, Parameter
from opcheck.samples import arguments
from opcheck.samples.arguments import is_function, parameters

STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
UNKNOWN = (
    [Parameter("input", (TENSOR,), True)],
    [Parameter(name, (TENSOR,), True) for name in ("input", "other")],
)
"""The parameters to try if the signature is unknown: one tensor, or two."""


def parameters_of(operator: Callable[..., Any], path: str) -> list[list[Parameter]]:
    """Return lists of parameters of an operator, to be tried in turn.

    There is one list for each distinct overload in the dispatcher, else one for the Python signature, else `UNKNOWN`.
    """
    schemas = schemas_of(operator, path)
    if schemas:
        # Without arguments for `out=`, the operator allocates its results.
        own = [[_of_schema(one) for one in schema.arguments if not one.is_out] for schema in schemas]
        return [one for index, one in enumerate(own) if one not in own[:index]]
    try:
        declared = parameters(operator)
    except (TypeError, ValueError):
        return list(UNKNOWN)
    named = [one for one in declared if one.kind not in STARRED]
    starred = any(one.kind is one.VAR_POSITIONAL for one in declared)
    if starred and not any(one.default is one.empty for one in named):
        return list(UNKNOWN)
    return [[_declared(one, operator, _documentation(operator)) for one in named]]


def _documentation(operator: Callable[..., Any]) -> str:
    """Return the docstring of an operator; for `apply`, those of the autograd.Function and its forward."""
    owner = getattr(operator, "__self__", None)
    documented = (owner, owner.forward) if is_function(owner) else (operator,)
    return "\n".join(filter(None, map(inspect.getdoc, documented)))


def schemas_of(operator: Callable[..., Any], path: str) -> list[Any]:
    """Return the schemas of an operator in torch's dispatcher, without those with `out=` if there are others.

    A C function of another package has none, whatever its name.
    """
    is_builtin = inspect.isbuiltin(operator)
    if is_builtin and not path.startswith("torch."):
        return []
    schemas = arguments.schemas_of(operator, path)
    if is_builtin and not schemas:
        schemas = arguments.schemas_of(operator, operator.__name__)  # for torch.fft.fftfreq, fft_fftfreq
    return [one for one in schemas if not any(argument.is_out for argument in one.arguments)] or schemas[:1]


def parameters_of_constructor(make: type[Module]) -> list[Parameter]:
    """Return the parameters of the constructor of a class of modules.

    If it takes only `*args`, those of the constructor of its base class follow. If it takes `**kwargs`, they follow as
    keyword arguments, which are optional: it may pass them itself.
    """
    found, keyword = dict[str, Parameter](), False
    for base in make.__mro__:
        try:
            declared = inspect.signature(base).parameters.values()
        except (TypeError, ValueError):
            break
        doc = inspect.getdoc(base) or ""
        for one in (one for one in declared if one.kind not in STARRED and one.name not in found):
            own = _declared(one, base, doc, constructor=True)
            found[one.name] = replace(own, keyword=own.keyword or keyword, required=own.required and not keyword)
        starred = {one.kind for one in declared}.intersection(STARRED)
        if not starred or (found and inspect.Parameter.VAR_KEYWORD not in starred):
            break
        keyword = keyword or bool(found) or inspect.Parameter.VAR_POSITIONAL not in starred
    return list(found.values())


def _declared(
    one: inspect.Parameter, operator: Callable[..., Any], doc: str, *, constructor: bool = False
) -> Parameter:
    """Return a declared parameter, of a function or of a constructor of modules, with values to try for it.

    A tensor is tried first if the documentation or the annotation mentions its shape, or that it is one. A string is
    one that the documentation quotes.
    """
    kind, said = annotation_of(one, operator), documented(doc, one.name)
    own = Parameter.of(one.name, kind, one.default, keyword=one.kind is one.KEYWORD_ONLY, constructor=constructor)
    shapes, options = (*shapes_in(str(one.annotation)), *said.shapes), own.options
    if not constructor and (shapes or said.is_tensor) and TENSOR in options:
        options = (TENSOR, *(value for value in options if value != TENSOR))
    if not options and (own.required or isinstance(one.default, str)):
        options = tuple(word for word in said.words if word != one.default)
    return replace(own, shapes=shapes, options=options)


def annotation_of(declared: inspect.Parameter, operator: Callable[..., Any]) -> Any:
    """Return the type of a parameter; the text of the annotation if it cannot be evaluated, empty if there is none.

    None, which no parameter has for its type, is no annotation: torch's `BroadcastingList2[int]` evaluates to it.
    """
    if declared.annotation is declared.empty:
        return ""
    owner = getattr(operator, "__self__", operator)
    home = sys.modules.get(getattr(owner if isinstance(owner, type) else operator, "__module__", None) or "")
    own = SimpleNamespace(__annotations__={"it": declared.annotation})
    try:
        kind = get_type_hints(own, vars(home) if home else {})["it"]
    except Exception:  # evaluating the text can raise anything
        return declared.annotation
    return "" if kind is type(None) else kind


def _of_schema(argument: Any) -> Parameter:
    text = str(argument.type)
    default = argument.default_value if argument.has_default_value() else REQUIRED
    if argument.has_default_value() and text.startswith("Optional"):
        default = None
    return Parameter.of(argument.name, text.lower(), default, keyword=argument.kwarg_only)
