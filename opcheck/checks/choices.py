"""Which values of its keywords lead to other code of an operator, as its annotations and its code tell."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from textwrap import dedent
from typing import Any, Literal, get_args, get_origin

from opcheck.checks.arguments import KEYWORD, is_function, parameters
from opcheck.samples.modules import ModuleCall

DEPTH = 3
"""How many calls a keyword is followed through, as from a function to `forward` of an autograd.Function."""
OTHER = "another"
"""A word that code compares nothing with: it leads to `else`, where the operator does not refuse it."""
EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def choices_of(operator: Callable[..., Any]) -> dict[str, list[Any]]:
    """Return values that lead to other code, by keyword.

    They are those that an annotation lists (`Literal`), and the words and numbers that code compares a keyword with, as
    in `if reduction == "mean"`: the operator's own, and that of functions which it passes the keyword on to. Those of a
    class are of its constructor; its code may compare an attribute of the same name. Code that cannot be read has none.
    """
    try:
        function = _in_python(operator)
        declared = inspect.signature(function, eval_str=True).parameters.values()
    except Exception:  # no signature, or annotations that cannot be evaluated
        return {}
    keywords = [one for one in declared if one.kind in KEYWORD]
    listed = {one.name: [*get_args(one.annotation)] for one in keywords if get_origin(one.annotation) is Literal}
    optional = {one.name: one.name for one in keywords if one.default is not one.empty}
    choices = {name: dict.fromkeys(values) for name, values in listed.items()}
    for name, value in _compared(function, optional, DEPTH) if optional else ():
        others = [OTHER] if isinstance(value, str) and name not in listed else []
        choices.setdefault(name, {}).update(dict.fromkeys([value, *others]))
    return {name: [*values] for name, values in choices.items()}


def _compared(
    function: Callable[..., Any], keywords: Mapping[str, str], depth: int
) -> Iterator[tuple[str, str | float]]:
    """Yield the keywords that code compares with a word or a number, each with that.

    keywords: those of the operator, by the parameter of the function that has their value.
    """
    for node in _nodes(getattr(function, "__code__", function)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], EQUALITY):
            yield from _with_constants(node.left, node.comparators[:1], keywords)
        elif isinstance(node, ast.Match):
            patterns = (part for case in node.cases for part in ast.walk(case.pattern))
            values = [part.value for part in patterns if isinstance(part, ast.MatchValue)]
            yield from _with_constants(node.subject, values, keywords)
        elif isinstance(node, ast.Call) and depth:
            yield from _passed_on(function, node, keywords, depth - 1)


@lru_cache(maxsize=256)
def _nodes(code: Any) -> tuple[ast.AST, ...]:
    """Return what the source of some code consists of; nothing if it is in another language, or cannot be read."""
    try:
        return tuple(ast.walk(ast.parse(dedent(inspect.getsource(code)))))
    except (OSError, TypeError, SyntaxError):
        return ()


def _with_constants(
    compared: ast.expr, others: list[ast.expr], keywords: Mapping[str, str]
) -> Iterator[tuple[str, str | float]]:
    name = _value_of(compared)
    if name in keywords:
        yield from ((keywords[name], value) for other in others for value in _constants(other))


def _value_of(node: ast.expr) -> str:
    """Return the name of the variable or of the attribute of `self` that an expression is, or an empty string."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


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
    passed = {_value_of(part) for part in (*call.args, *(one.value for one in call.keywords))}
    if not passed & keywords.keys() or any(isinstance(part, ast.Starred) for part in call.args):
        return
    try:
        called = _named(call.func, vars(sys.modules[function.__module__]))
        signature = inspect.Signature(parameters(called))
        bound = signature.bind_partial(*call.args, **{one.arg: one.value for one in call.keywords if one.arg})
        own = _in_python(called)
    except Exception:  # it is no name of the module, or of something without a signature
        return
    names = {name: _value_of(part) for name, part in bound.arguments.items() if isinstance(part, ast.expr)}
    yield from _compared(own, {name: keywords[of] for name, of in names.items() if of in keywords}, depth)


def _named(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what a dotted name stands for. Raises KeyError or AttributeError if it stands for nothing there."""
    if isinstance(node, ast.Attribute):
        return getattr(_named(node.value, names), node.attr)
    if isinstance(node, ast.Name):
        return names[node.id]
    raise KeyError(ast.unparse(node))


def _in_python(operator: Callable[..., Any]) -> Any:
    """Return what says in Python what an operator takes: `forward` of a module, and of an autograd.Function."""
    if isinstance(operator, ModuleCall):
        return operator.module.forward
    owner = getattr(operator, "__self__", None)
    return inspect.unwrap(owner.forward if is_function(owner) else operator)
