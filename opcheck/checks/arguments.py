"""The parameters of an operator: their names, defaults and choices, by its schema, its signature or its code."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from textwrap import dedent
from typing import Any, Literal, TypeGuard, get_args, get_origin

import torch


def names_of(operator: Callable[..., Any], path: str) -> tuple[str, ...]:
    """Return the names of an operator's positional parameters; an empty tuple if they are unknown.

    Built-in functions of torch have no Python signature. Their names come from the ATen operator of the same name.
    """
    schema = schema_of(operator, path)
    if schema is None:
        try:
            return tuple(p.name for p in parameters(operator) if p.kind in POSITIONAL)
        except (TypeError, ValueError):
            return ()
    # ATen calls the first argument `self`, the documentation calls it `input`.
    return tuple("input" if argument.name == "self" else argument.name for argument in schema.arguments)


def defaults_of(operator: Callable[..., Any], path: str) -> dict[str, Any]:
    """Return the defaults of an operator's parameters that can be passed by name, and have one."""
    schema = schema_of(operator, path)
    if schema is not None:
        return {one.name: one.default_value for one in schema.arguments if one.has_default_value()}
    try:
        own = parameters(operator)
    except (TypeError, ValueError):
        return {}
    return {one.name: one.default for one in own if one.default is not one.empty and one.kind in KEYWORD}


def choices_of(operator: Callable[..., Any]) -> dict[str, list[Any]]:
    """Return values that lead to other code, by keyword.

    They are those that an annotation lists (`Literal`), and the words and numbers that the operator's own code compares
    a keyword with, as in `if reduction == "mean"`. Code that cannot be read has none.
    """
    try:
        function = _in_python(operator)
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except Exception:  # no signature, or annotations that cannot be evaluated
        return {}
    keywords = [one for one in parameters if one.kind in KEYWORD]
    choices = {one.name: [*get_args(one.annotation)] for one in keywords if get_origin(one.annotation) is Literal}
    optional = {one.name for one in keywords if one.default is not one.empty}
    for name, value in _compared(function) if optional else ():
        if name in optional and value not in choices.setdefault(name, []):
            choices[name].append(value)
    return choices


def _compared(function: Callable[..., Any]) -> Iterator[tuple[str, str | float]]:
    """Yield the names in a function's own code that it compares with a word or a number, each with that."""
    try:
        tree = ast.parse(dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # it is written in another language, or somewhere else
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and isinstance(node.ops[0], EQUALITY):
            yield from ((node.left.id, value) for value in _constants(node.comparators[0]))
        elif isinstance(node, ast.Match) and isinstance(node.subject, ast.Name):
            patterns = (part for case in node.cases for part in ast.walk(case.pattern))
            values = (part.value for part in patterns if isinstance(part, ast.MatchValue))
            yield from ((node.subject.id, value) for part in values for value in _constants(part))


EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def _constants(node: ast.expr) -> Iterator[str | float]:
    """Yield the words and numbers that an expression is, or lists."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    for part in parts:
        try:
            value = ast.literal_eval(part)
        except (TypeError, ValueError):  # no constant
            continue
        if isinstance(value, (str, int, float)):
            yield value


def _in_python(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function whose signature and code say what an operator takes: `forward` for `apply`."""
    owner = getattr(operator, "__self__", None)
    function: Callable[..., Any] = inspect.unwrap(owner.forward if _is_function(owner) else operator)
    return function


def _is_function(owner: Any) -> TypeGuard[type[torch.autograd.Function]]:
    return isinstance(owner, type) and issubclass(owner, torch.autograd.Function)


def schema_of(operator: Callable[..., Any], path: str) -> Any:
    """Return the schema of an operator in torch's dispatcher; None if it has none, or is a function in Python."""
    operator = getattr(operator, "_opoverload", operator)  # that of torch.library.custom_op
    if isinstance(operator, torch._ops.OpOverloadPacket):
        operator = getattr(operator, next(iter(operator._overload_names)))
    schema = getattr(operator, "_schema", None)
    if schema is not None:
        return schema
    try:
        inspect.signature(operator)
    except (TypeError, ValueError):
        return _aten_schema(path.replace(":", ".").rsplit(".", 1)[-1])
    return None


POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def parameters(operator: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that a caller passes. Raises TypeError or ValueError if there is no Python signature."""
    owner = getattr(operator, "__self__", None)
    if not _is_function(owner):
        return list(inspect.signature(operator).parameters.values())
    # apply takes what forward takes, but for ctx where that is its business
    own = list(inspect.signature(owner.forward).parameters.values())
    return own[1:] if owner.setup_context is torch.autograd.Function.setup_context else own


def takes_out(operator: Callable[..., Any]) -> bool:
    """Tell whether an operator has `out=`, by its schema or signature. What torch has built in without one may."""
    operator = getattr(operator, "_opoverload", operator)
    if isinstance(operator, torch._ops.OpOverload):
        return _has_out(operator)
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return any(_has_out(getattr(operator, name)) for name in operator.overloads())  # type: ignore[no-untyped-call]
    try:
        return any(one.name == "out" and one.kind is not one.POSITIONAL_ONLY for one in parameters(operator))
    except TypeError:
        return False
    except ValueError:  # of C code
        return True


def _has_out(overload: torch._ops.OpOverload) -> bool:
    return any(argument.is_out or argument.name == "out" for argument in overload._schema.arguments)


def argument_label(path: Sequence[int | str], names: Sequence[str]) -> str:
    """Return what to call the argument at a path such as ("args", 0, 2), as in `tensors[2]`.

    names: those of the positional parameters, as far as they are known.
    """
    at, *inside = path[1:]
    name = at if isinstance(at, str) else names[at] if at < len(names) else f"argument {at}"
    return name + "".join(f"[{item!r}]" for item in inside)


def _aten_schema(name: str) -> Any:
    for candidate in (name, name.rstrip("_"), f"special_{name}", f"linalg_{name}"):
        packet = getattr(torch.ops.aten, candidate, None)
        if packet is not None:
            return getattr(packet, packet.overloads()[0])._schema
    return None
