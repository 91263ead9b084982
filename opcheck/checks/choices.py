"""Which values of its keywords lead to other code of an operator, as its annotations and its code tell."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from textwrap import dedent
from typing import Any, Literal, get_args, get_origin

from opcheck.checks.arguments import KEYWORD, is_function, parameters

DEPTH = 3
"""How many calls a keyword is followed through, as from a function to `forward` of an autograd.Function."""
EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def choices_of(operator: Callable[..., Any]) -> dict[str, list[Any]]:
    """Return values that lead to other code, by keyword.

    They are those that an annotation lists (`Literal`), and the words and numbers that code compares a keyword with, as
    in `if reduction == "mean"`: the operator's own, and that of functions which it passes the keyword on to. Code that
    cannot be read has none.
    """
    try:
        function = _in_python(operator)
        declared = inspect.signature(function, eval_str=True).parameters.values()
    except Exception:  # no signature, or annotations that cannot be evaluated
        return {}
    keywords = [one for one in declared if one.kind in KEYWORD]
    choices = {one.name: [*get_args(one.annotation)] for one in keywords if get_origin(one.annotation) is Literal}
    optional = {one.name: one.name for one in keywords if one.default is not one.empty}
    for name, value in _compared(function, optional, DEPTH) if optional else ():
        if value not in choices.setdefault(name, []):
            choices[name].append(value)
    return choices


def _compared(
    function: Callable[..., Any], keywords: Mapping[str, str], depth: int
) -> Iterator[tuple[str, str | float]]:
    """Yield the keywords that code compares with a word or a number, each with that.

    keywords: those of the operator, by the parameter of the function that has their value.
    """
    try:
        tree = ast.parse(dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # it is written in another language, or somewhere else
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], EQUALITY):
            yield from _with_constants(node.left, node.comparators[:1], keywords)
        elif isinstance(node, ast.Match):
            patterns = (part for case in node.cases for part in ast.walk(case.pattern))
            values = [part.value for part in patterns if isinstance(part, ast.MatchValue)]
            yield from _with_constants(node.subject, values, keywords)
        elif isinstance(node, ast.Call) and depth:
            yield from _passed_on(function, node, keywords, depth - 1)


def _with_constants(
    compared: ast.expr, others: list[ast.expr], keywords: Mapping[str, str]
) -> Iterator[tuple[str, str | float]]:
    if isinstance(compared, ast.Name) and compared.id in keywords:
        yield from ((keywords[compared.id], value) for other in others for value in _constants(other))


def _constants(node: ast.expr) -> Iterator[str | float]:
    """Yield the words and numbers that an expression is, or lists."""
    for part in node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]:
        try:
            value = ast.literal_eval(part)
        except (TypeError, ValueError):  # no constant
            continue
        if isinstance(value, (str, int, float)):
            yield value


def _passed_on(
    function: Callable[..., Any], call: ast.Call, keywords: Mapping[str, str], depth: int
) -> Iterator[tuple[str, str | float]]:
    """Yield what the code of a function that is called compares keywords with that it is passed."""
    passed = {part.id for part in (*call.args, *(one.value for one in call.keywords)) if isinstance(part, ast.Name)}
    if not passed & keywords.keys() or any(isinstance(part, ast.Starred) for part in call.args):
        return
    try:
        called = _named(call.func, function.__globals__)
        signature = inspect.Signature(parameters(called))
        bound = signature.bind_partial(*call.args, **{one.arg: one.value for one in call.keywords if one.arg})
        own = _in_python(called)
    except Exception:  # it is no name of the module, or of something without a signature
        return
    names = {name: part.id for name, part in bound.arguments.items() if isinstance(part, ast.Name)}
    yield from _compared(own, {name: keywords[of] for name, of in names.items() if of in keywords}, depth)


def _named(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what a dotted name stands for. Raises KeyError or AttributeError if it stands for nothing there."""
    if isinstance(node, ast.Attribute):
        return getattr(_named(node.value, names), node.attr)
    if isinstance(node, ast.Name):
        return names[node.id]
    raise KeyError(ast.unparse(node))


def _in_python(operator: Callable[..., Any]) -> Any:
    """Return the function whose signature and code say what an operator takes: `forward` for `apply`."""
    owner = getattr(operator, "__self__", None)
    return inspect.unwrap(owner.forward if is_function(owner) else operator)
