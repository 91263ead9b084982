"""Finds the keywords of an operator, and the values that select its code paths, from annotations and source code."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from math import inf, isfinite
from textwrap import dedent
from typing import Any, Literal, get_args, get_origin

from opcheck.samples.arguments import KEYWORD, POSITIONAL, is_function, parameters, signature_of, unregistered
from opcheck.samples.derive import Keywords
from opcheck.samples.derive.keywords import NONE, is_dim
from opcheck.samples.modules import ModuleCall
from opcheck.spec.render import render
from opcheck.spec.values import NoneValue, ObjectValue, TupleValue

DEPTH = 3
"""The number of nested calls through which a keyword is followed, as from a function into an autograd.Function."""
OTHER = "another"
"""A string that no code compares with. It selects the `else` branch, unless the operator rejects it."""
DEPRECATED = ("elementwise_mean",)
"""Values that torch still accepts, with a warning. Operators that pass a keyword on to torch need not know them."""
SEVERAL = (0, 1), (-2, -1)
"""The dims to pass to a keyword that takes one dim or several: from the first on, and counted from the end."""
SEQUENCES = {"tuple", "list", "Sequence", "Iterable"}
Value = str | float | tuple[int, int] | NoneValue
READ = (ast.Assign, ast.Call, ast.Compare, ast.Match, ast.Subscript, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp)
"""The syntax nodes that assign a keyword to a name, pass it on, compare it, look it up, or test its truth."""
IN_OTHER_WORDS = ("lower", "upper", "casefold", "strip")
"""Methods of a string that return the same word."""
EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
ORDER: dict[type[ast.cmpop], tuple[int, int]] = {ast.Lt: (-1, 0), ast.GtE: (-1, 0), ast.LtE: (0, 1), ast.Gt: (0, 1)}
"""Comparisons of size, each with what to add to an integer to get the next ones on both sides of it."""


def keywords_of(
    function: Callable[..., Any], path: str, passed: Iterable[Mapping[str, Any]], positional: int = 0
) -> Keywords:
    """Return the keywords of a function, with the values that select its code paths, and the values that calls pass.

    passed: the keyword arguments of some calls.
    positional: the number of arguments that are passed by position. They are left out.
    """
    listed = {name: {render(value): value for value in own} for name, own in choices_of(function).items()}
    for kwargs in passed:
        for name, value in kwargs.items():
            if isinstance(value, (bool, int, float, str, NoneValue)):
                listed.setdefault(name, {})[render(value)] = value
    signature = signature_of(function, path)
    given = signature.positional[:positional]
    defaults = {name: default for name, default in signature.defaults.items() if name not in given}
    choices = {name: [*values.values()] for name, values in listed.items() if name not in given}
    return Keywords(defaults, choices, signature.positional)


def choices_of(operator: Callable[..., Any]) -> dict[str, list[Any]]:
    """Return the values that select code paths, by keyword.

    They are those that its annotation and default imply, the constants that the code compares it with (numbers on both
    sides of them, if it tests whether it is less or greater), 0 for a number whose truth the code tests, and the keys
    of a dict that the code looks it up in. For a dim, they include two dims, if an annotation or the code admits
    several.

    The code is that of the operator, of functions that the keyword is passed on to, and of forward, backward, jvp and
    vmap of an autograd.Function. For a class, it is that of the constructor, which may also use `self.keyword`. Source
    that is not available yields no values.
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
    numbers = {one.name for one in keywords if _may_be_number(one)}
    for name, value in _in_all_stages(operator, optional, DEPTH) if optional else ():
        if value == NONE and name in without:
            continue  # the default
        if value in DEPRECATED or (value == 0 and name not in numbers):
            continue  # a flag is flipped anyway, and no text is 0
        others = [OTHER] if isinstance(value, str) and name not in listed else []
        choices[name].update(dict.fromkeys([value, *others]))
    return {name: [*map(_written, values)] for name, values in choices.items() if values}


def _written(value: Any) -> Any:
    """Return a value as a spec has it."""
    if isinstance(value, Enum):
        kind = type(value)
        return ObjectValue(object=f"{kind.__module__}.{kind.__qualname__}.{value.name}")
    return TupleValue(tuple=[*value]) if isinstance(value, tuple) else value


def _may_be_number(one: inspect.Parameter) -> bool:
    """Return whether a keyword may be passed a number, judging by its default and its annotation."""
    kinds = {*get_args(one.annotation), one.annotation} - {type(None)}
    return type(one.default) in (int, float) or (one.default is None and not kinds & {bool, str})


def _by_annotation(one: inspect.Parameter) -> list[Any]:
    """Return the values of a keyword that its annotation and its default imply, besides the default."""
    kinds = get_args(one.annotation)
    if get_origin(one.annotation) is Literal:
        return [*kinds]
    values: list[Any] = []
    if isinstance(one.default, Enum):
        values = [other for other in type(one.default) if other is not one.default]
    elif one.default is None and bool in kinds:
        values = [True, False]
    elif one.default is None and (int in kinds or (is_dim(one.name) and not kinds)):
        values = [0 if is_dim(one.name) else 2]
    elif one.default is None and float in kinds:
        values = [0.5, 2.0]
    names = {getattr(get_origin(kind) or kind, "__name__", "") for kind in (one.annotation, *kinds)}
    return [*values, *SEVERAL] if is_dim(one.name) and names & SEQUENCES else values


def _in_all_stages(
    operator: Callable[..., Any], keywords: Mapping[str, str], depth: int
) -> Iterator[tuple[str, Value]]:
    """Yield the pairs of `_compared`; for an autograd.Function also those of backward, jvp and vmap (`ctx.p`)."""
    yield from _compared(_in_python(operator), keywords, depth)
    owner = getattr(operator, "__self__", None)
    if is_function(owner):
        inputs = [*inspect.signature(owner.forward).parameters]
        kept = _renamed(owner.forward, keywords, inputs) | _renamed(owner.setup_context, keywords, inputs)
        for stage in (owner.backward, owner.jvp, owner.vmap):
            yield from _compared(stage, kept, 0)


def _renamed(function: Callable[..., Any], keywords: Mapping[str, str], inputs: Sequence[str] = ()) -> dict[str, str]:
    """Return the keywords by all names that the code of a function assigns them to, as in `ctx.p = p`.

    inputs: the names of the elements of a variable `inputs`, as in `x, ctx.p = inputs`.
    """
    names = dict(keywords)
    for node in _nodes(getattr(function, "__code__", function)):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert isinstance(node, ast.Assign)
            new, old = [target], [_name_of(node.value)]
            if isinstance(target, ast.Tuple):
                own = [*map(_name_of, node.value.elts)] if isinstance(node.value, ast.Tuple) else []
                new, old = target.elts, [*inputs] if old == ["inputs"] else own
            names |= {_name_of(one): names[of] for one, of in zip(new, old, strict=False) if of in names}
    return names


def _compared(function: Callable[..., Any], keywords: Mapping[str, str], depth: int) -> Iterator[tuple[str, Value]]:
    """Yield each keyword that code compares with a constant, and the constant: 0 if it tests its truth.

    If the code tests whether it is less or greater, yield a number on each side of the constant instead.

    keywords: the operator's keywords, by the name of the parameter of `function` that holds their value.
    """
    keywords = _renamed(function, keywords)
    values: Iterable[Value]
    for node in _nodes(getattr(function, "__code__", function)):
        if isinstance(node, ast.Call):
            yield from _kinds(node, keywords)
            yield from _passed_on(function, node, keywords, depth - 1) if depth else ()
            continue
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], EQUALITY):
            compared, values = node.left, _constants(node.comparators[:1])
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in ORDER:
            compared, values = node.left, _on_both_sides(node)
        elif isinstance(node, ast.Match):
            patterns = (part for case in node.cases for part in ast.walk(case.pattern))
            values = _constants(part.value for part in patterns if isinstance(part, ast.MatchValue))
            compared = node.subject
        elif isinstance(node, ast.Subscript):
            compared, values = node.slice, _keys_of(function, node.value)
        else:
            tested = map(_name_of, _tested(node))
            yield from ((keywords[name], 0) for name in tested if name in keywords)
            continue
        name = _name_of(compared)
        if name in keywords:
            yield from ((keywords[name], value) for value in values)


def _tested(node: ast.AST) -> list[ast.expr]:
    """Return the expressions whose truth a syntax node tests, as in `if p`, `p or 1.0` and `not p`.

    Code that means "not None" by this takes another path for the number 0.
    """
    if isinstance(node, (ast.If, ast.IfExp)):
        return [node.test]
    if isinstance(node, ast.BoolOp):
        return node.values
    return [node.operand] if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else []


@lru_cache(maxsize=256)
def _nodes(code: Any) -> tuple[ast.AST, ...]:
    """Return the syntax nodes of `READ` in the source of a code object; an empty tuple without Python source."""
    try:
        tree = ast.parse(dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, READ))


def _kinds(call: ast.Call, keywords: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    """Yield two dims for a keyword that is a dim, if `isinstance` is called to distinguish one dim from several."""
    if _name_of(call.func) != "isinstance" or len(call.args) != 2:
        return
    name = _name_of(call.args[0])
    kinds = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(call.args[1])}
    if is_dim(keywords.get(name, "")) and kinds & {"int", *SEQUENCES}:
        yield from ((keywords[name], dims) for dims in SEVERAL)


def _name_of(node: ast.expr) -> str:
    """Return the name of a variable, or of an attribute of `self` or `ctx`; an empty string for other expressions.

    A string in another case, as `how.lower()`, counts as the variable.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IN_OTHER_WORDS:
        return _name_of(node.func.value)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "ctx"):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _constants(nodes: Iterable[ast.expr]) -> Iterator[Value]:
    """Yield the strings and numbers, and None, that expressions are, or that they list."""
    for node in nodes:
        for part in node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]:
            try:
                value = _infinity(part) or ast.literal_eval(part)
            except (TypeError, ValueError):  # not a constant
                continue
            if value is None or isinstance(value, (str, int, float)):
                yield NONE if value is None else value


def _on_both_sides(node: ast.Compare) -> Iterator[Value]:
    """Yield a number below and one above the number that an expression is compared with, as in `p < 0.5`.

    Not for 0: code compares with it to refuse negative numbers, and 0 itself may be extreme, as for a clipping limit.
    """
    for value in filter(None, _constants(node.comparators[:1])):
        if isinstance(value, int):
            yield from (value + step for step in ORDER[type(node.ops[0])])
        elif isinstance(value, float) and isfinite(value):
            yield from (value / 2, 1.5 * value)


def _infinity(node: ast.expr) -> float:
    """Return the infinity that an expression is, as in `-math.inf` or `float("inf")`; 0 for other expressions."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_infinity(node.operand)
    text = ast.unparse(node)
    return inf if text == "float('inf')" or text.endswith(".inf") else -inf if text == "float('-inf')" else 0.0


def _keys_of(function: Callable[..., Any], node: ast.expr) -> list[Value]:
    """Return the strings and numbers among the keys of a dict, or of the dict that a dotted name refers to."""
    table = _named(function, node)
    named = table if isinstance(table, dict) else ()
    keys = _constants(filter(None, node.keys)) if isinstance(node, ast.Dict) else named
    return [key for key in keys if isinstance(key, (str, int, float))]


def _passed_on(
    function: Callable[..., Any], call: ast.Call, keywords: Mapping[str, str], depth: int
) -> Iterator[tuple[str, Value]]:
    """Yield the pairs of `_compared` for a function that is called with some of the keywords."""
    passed = {_name_of(part) for part in (*call.args, *(one.value for one in call.keywords))}
    if not passed & keywords.keys():
        return
    try:
        called = _named(function, call.func)
        positional = [one.name for one in parameters(called) if one.kind in POSITIONAL]
    except Exception:  # not a function of the module, or no signature
        return
    starred = [index for index, part in enumerate(call.args) if isinstance(part, ast.Starred)] or [len(call.args)]
    arguments = dict(zip(positional, call.args[: starred[0]], strict=False))
    # What follows a list of arguments, as in f(*tensors, how), is passed to the last parameters.
    arguments |= zip(reversed(positional), reversed(call.args[starred[-1] + 1 :]), strict=False)
    arguments |= {one.arg: one.value for one in call.keywords if one.arg}
    names = {name: keywords[_name_of(part)] for name, part in arguments.items() if _name_of(part) in keywords}
    yield from _in_all_stages(called, names, depth)


def _named(function: Callable[..., Any], node: ast.expr) -> Any:
    """Return the object that a dotted name refers to in the module of a function; None if there is none."""
    if isinstance(node, ast.Attribute):
        return getattr(_named(function, node.value), node.attr, None)
    names = getattr(sys.modules.get(function.__module__), "__dict__", {})
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _in_python(operator: Callable[..., Any]) -> Any:
    """Return the Python function to read: `forward` of a module or an autograd.Function, else the operator."""
    if isinstance(operator, ModuleCall):
        return operator.module.forward
    owner = getattr(operator, "__self__", None)
    return inspect.unwrap(owner.forward if is_function(owner) else unregistered(operator))
