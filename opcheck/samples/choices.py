"""The keywords of an operator, and which of their values lead to other code, as annotations and its code tell."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from textwrap import dedent
from typing import Any, Literal, get_args, get_origin

from opcheck.samples.arguments import KEYWORD, defaults_of, is_function, names_of, parameters
from opcheck.samples.derive import Keywords
from opcheck.samples.derive.keywords import NONE, is_dim
from opcheck.samples.modules import ModuleCall
from opcheck.spec.render import render
from opcheck.spec.values import NoneValue, TupleValue

DEPTH = 3
"""How many calls a keyword is followed through, as from a function to `forward` of an autograd.Function."""
OTHER = "another"
"""A word that code compares nothing with: it leads to `else`, where the operator does not refuse it."""
SEVERAL = (0, 1)
"""Dims for a keyword that may be one dim or several."""
SEQUENCES = ("tuple", "list", "Sequence", "Iterable")
Value = str | float | tuple[int, int] | NoneValue
EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)


def keywords_of(
    function: Callable[..., Any], path: str, passed: Iterable[Mapping[str, Any]], positional: int = 0
) -> Keywords:
    """Return the keywords of a function, with values that lead to other code of it, and those that some calls pass.

    positional: how many of its arguments are passed by position.
    """
    listed = {name: {render(value): value for value in own} for name, own in choices_of(function).items()}
    for kwargs in passed:
        for name, value in kwargs.items():
            if isinstance(value, (bool, int, float, str, NoneValue)):
                listed.setdefault(name, {})[render(value)] = value
    choices = {name: [*values.values()] for name, values in listed.items()}
    names = names_of(function, path)
    defaults, choices = (
        {name: own[name] for name in own if name not in names[:positional]}
        for own in (defaults_of(function, path), choices)
    )
    return Keywords(defaults, choices, names)


def choices_of(operator: Callable[..., Any]) -> dict[str, list[Any]]:
    """Return values that lead to other code, by keyword.

    They are those that an annotation lists (`Literal`), numbers where the default is None (`Optional[float]`), two dims
    where an annotation or code takes several (`int | tuple[int, ...]`, `isinstance(dim, tuple)`), and the words and
    numbers that code compares a keyword with, as in `if reduction == "mean"` and `momentum is None`, or looks up, as in
    `TABLE[approximate]`: the operator's own code, that of functions which it passes the keyword on to, and of an
    autograd.Function all stages. Those of a class are of its constructor; its code may compare an attribute of the same
    name. Code that cannot be read has none.
    """
    try:
        function = _in_python(operator)
        declared = inspect.signature(function, eval_str=True).parameters.values()
    except Exception:  # no signature, or annotations that cannot be evaluated
        return {}
    keywords = [one for one in declared if one.kind in KEYWORD]
    listed = {one.name for one in keywords if get_origin(one.annotation) is Literal}
    optional = {one.name: one.name for one in keywords if one.default is not one.empty}
    choices = {one.name: dict.fromkeys(_by_annotation(one)) for one in keywords}
    without = {one.name for one in keywords if one.default is None}
    for name, value in _in_all_stages(operator, optional, DEPTH) if optional else ():
        if value == NONE and name in without:
            continue  # its default
        others = [OTHER] if isinstance(value, str) and name not in listed else []
        choices[name].update(dict.fromkeys([value, *others]))
    several = TupleValue(tuple=[*SEVERAL])
    return {
        name: [several if value == SEVERAL else value for value in values] for name, values in choices.items() if values
    }


def _by_annotation(one: inspect.Parameter) -> list[Any]:
    """Return the values of a keyword that its annotation suggests, besides its default."""
    if get_origin(one.annotation) is Literal:
        return [*get_args(one.annotation)]
    values: list[Any] = _instead_of_none(one.name, one.annotation) if one.default is None else []
    return [*values, SEVERAL] if is_dim(one.name) and _takes_several(one.annotation) else values


def _instead_of_none(name: str, annotation: Any) -> list[float]:
    """Return numbers that a keyword may have whose default is None: those of its annotation, of a dim the first one."""
    kinds = get_args(annotation)
    if int in kinds or (is_dim(name) and not kinds):
        return [0 if is_dim(name) else 2]
    return [0.5, 2.0] if float in kinds else []


def _takes_several(annotation: Any) -> bool:
    """Tell whether an annotation admits a sequence, alone or among others."""
    kinds = (annotation, *get_args(annotation))
    return any(getattr(get_origin(kind) or kind, "__name__", "") in SEQUENCES for kind in kinds)


def _in_all_stages(
    operator: Callable[..., Any], keywords: Mapping[str, str], depth: int
) -> Iterator[tuple[str, Value]]:
    """Yield the same as `_compared`: of an autograd.Function, also of what its stages do with `ctx.reduction`."""
    yield from _compared(_in_python(operator), keywords, depth)
    owner = getattr(operator, "__self__", None)
    if is_function(owner):
        inputs = [*inspect.signature(owner.forward).parameters]
        stages = [_renamed(stage, keywords, inputs) for stage in (owner.forward, owner.setup_context)]
        kept = {name: of for names in stages for name, of in names.items()}
        for stage in (owner.backward, owner.jvp, owner.vmap):
            yield from _compared(stage, kept, 0)


def _renamed(function: Callable[..., Any], keywords: Mapping[str, str], inputs: Sequence[str] = ()) -> dict[str, str]:
    """Return keywords by all names that code gives them, as in `ctx.p = p`.

    inputs: the names of what `inputs` consists of, as in `x, ctx.p = inputs`.
    """
    names = dict(keywords)
    for node in _nodes(getattr(function, "__code__", function)):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert isinstance(node, ast.Assign)
            new, old = [target], [_value_of(node.value)]
            if isinstance(target, ast.Tuple):
                own = [*map(_value_of, node.value.elts)] if isinstance(node.value, ast.Tuple) else []
                new, old = target.elts, [*inputs] if old == ["inputs"] else own
            names |= {_value_of(one): names[of] for one, of in zip(new, old, strict=False) if of in names}
    return names


def _compared(function: Callable[..., Any], keywords: Mapping[str, str], depth: int) -> Iterator[tuple[str, Value]]:
    """Yield the keywords that code compares with a word or a number, each with that.

    keywords: those of the operator, by the parameter of the function that has their value.
    """
    keywords = _renamed(function, keywords)
    for node in _nodes(getattr(function, "__code__", function)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], EQUALITY):
            yield from _with_constants(node.left, node.comparators[:1], keywords)
        elif isinstance(node, ast.Match):
            patterns = (part for case in node.cases for part in ast.walk(case.pattern))
            values = [part.value for part in patterns if isinstance(part, ast.MatchValue)]
            yield from _with_constants(node.subject, values, keywords)
        elif isinstance(node, ast.Subscript) and _value_of(node.slice) in keywords:
            table = _global(function, node.value)
            yield from ((keywords[_value_of(node.slice)], key) for key in table if isinstance(key, (str, int, float)))
        elif isinstance(node, ast.Call):
            yield from _kinds(node, keywords)
            yield from _passed_on(function, node, keywords, depth - 1) if depth else ()


@lru_cache(maxsize=256)
def _nodes(code: Any) -> tuple[ast.AST, ...]:
    """Return what the source of some code consists of; nothing if it is in another language, or cannot be read."""
    try:
        return tuple(ast.walk(ast.parse(dedent(inspect.getsource(code)))))
    except (OSError, TypeError, SyntaxError):
        return ()


def _with_constants(
    compared: ast.expr, others: list[ast.expr], keywords: Mapping[str, str]
) -> Iterator[tuple[str, Value]]:
    name = _value_of(compared)
    if name in keywords:
        yield from ((keywords[name], value) for other in others for value in _constants(other))


def _kinds(call: ast.Call, keywords: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    """Yield two dims for a keyword that means a dim, where code asks by `isinstance` whether it is one or several."""
    if _value_of(call.func) != "isinstance" or len(call.args) != 2:
        return
    name = _value_of(call.args[0])
    kinds = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(call.args[1])}
    if is_dim(keywords.get(name, "")) and kinds & {"int", *SEQUENCES}:
        yield keywords[name], SEVERAL


def _value_of(node: ast.expr) -> str:
    """Return the name of the variable, or of the attribute of `self` or `ctx`, that an expression is, or no text."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "ctx"):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _constants(node: ast.expr) -> Iterator[str | float | NoneValue]:
    """Yield the words and numbers that an expression is, or lists, and None."""
    for part in node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]:
        try:
            value = ast.literal_eval(part)
        except (TypeError, ValueError):  # no constant
            continue
        if value is None or isinstance(value, (str, int, float)):
            yield NONE if value is None else value


def _passed_on(
    function: Callable[..., Any], call: ast.Call, keywords: Mapping[str, str], depth: int
) -> Iterator[tuple[str, Value]]:
    """Yield what the code of a function that is called compares keywords with that it is passed."""
    passed = {_value_of(part) for part in (*call.args, *(one.value for one in call.keywords))}
    if not passed & keywords.keys() or any(isinstance(part, ast.Starred) for part in call.args):
        return
    try:
        called = _named(call.func, vars(sys.modules[function.__module__]))
        signature = inspect.Signature(parameters(called))
        bound = signature.bind_partial(*call.args, **{one.arg: one.value for one in call.keywords if one.arg})
    except Exception:  # it is no name of the module, or of something without a signature
        return
    names = {name: _value_of(part) for name, part in bound.arguments.items() if isinstance(part, ast.expr)}
    yield from _in_all_stages(called, {name: keywords[of] for name, of in names.items() if of in keywords}, depth)


def _global(function: Callable[..., Any], node: ast.expr) -> Mapping[Any, Any]:
    """Return the table that a dotted name stands for; an empty one if it is no table of the module."""
    try:
        table = _named(node, vars(sys.modules[function.__module__]))
    except (AttributeError, KeyError):
        return {}
    return table if isinstance(table, dict) else {}


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
