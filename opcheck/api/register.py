"""`@opcheck.register_check`: adds a check to a project, without packaging an entry point."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

from pydantic import TypeAdapter, ValidationError

from opcheck.planning.kinds import REGISTERED, check_kinds, is_redefined, place_in_code, register, unknown_words
from opcheck.spec.checks import BUILTIN, CheckKind
from opcheck.spec.model import MarkName
from opcheck.spec.problems import worded

if TYPE_CHECKING:
    from opcheck.checks import Subject, Verdict
    from opcheck.spec import Operator

    Judge = Callable[[Subject], Verdict | bool | None]

J = TypeVar("J", bound="Judge")
Rule = Literal["values", "derivative", "one"]
"""The rules for the dtypes of a check, without `every`: a plugin cannot judge dtypes that a spec does not claim."""


@overload
def register_check(function: J) -> J: ...
@overload
def register_check(
    *,
    name: str | None = None,
    claim: str | None = None,
    dtypes: Rule = "values",
    needs: Sequence[str] = (),
    every_variant: bool = True,
    applies: Callable[[Operator], bool] | None = None,
) -> Callable[[J], J]: ...
def register_check(
    function: Judge | None = None,
    *,
    name: str | None = None,
    claim: str | None = None,
    dtypes: Rule = "values",
    needs: Sequence[str] = (),
    every_variant: bool = True,
    applies: Callable[[Operator], bool] | None = None,
) -> Judge | Callable[[Judge], Judge]:
    """Register a function as a check, under its own name.

    The function gets a `Subject`: one operator at one sample. It returns True or False, a `Verdict` for a message of
    its own, or None if the claim does not apply to the sample. An exception, such as that of an `assert`, fails the
    check. A check that returns None for every sample is an error.

    Put the function into a module that `[tool.opcheck] plugins` lists, so that all processes import it. With plain
    pytest, the conftest.py in the root folder works as well.

    Args:
        function: The function, if the decorator is used without parentheses.
        name: The name of the check, as in `--check`. Default: the name of the function.
        claim: The property that the check tests, in one line. Default: the first line of the docstring.
        dtypes: The dtypes to run in. `"values"`: the most precise real and complex dtype of the forward pass, and
            int64. `"derivative"`: those of the backward pass, with inputs that require grad. `"one"`: the first of
            `"values"`.
        needs: Keys of `supports`. Operators that lack any of these are not checked.
        every_variant: Whether to check in-place variants, too.
        applies: A function that takes an `Operator` and returns whether to check it. Default: all operators.

    Returns:
        The function itself, or a decorator that returns it.

    Raises:
        ValueError: The name is taken or not allowed, there is neither a claim nor a docstring, or a name in `dtypes`
            or `needs` does not exist.
        TypeError: `function` or `applies` is not callable, or `name` is not a string.

    Example:
        >>> import opcheck, torch
        >>> @opcheck.register_check(claim="all outputs are finite")
        ... def finite(subject):
        ...     return all(bool(output.isfinite().all()) for output in subject.outputs)
        >>> report = opcheck.check(torch.log, torch.tensor([0.0, 1.0]), checks="finite", raise_exception=False)
        >>> print(report.failures[0].reason)
        finite: this does not hold: all outputs are finite
    """

    def decorate(judge: Judge) -> Judge:
        if not callable(judge):
            raise TypeError(f"register_check expects a function, not {type(judge).__name__}: {judge!r}")
        if not (name is None or isinstance(name, str)) or not (applies is None or callable(applies)):
            raise TypeError(
                f"register_check expects a string as name, and a function as applies: {name!r}, {applies!r}"
            )
        chosen = name or str(getattr(judge, "__name__", type(judge).__name__))
        kind = CheckKind(
            chosen,
            claim or _first_line(judge, chosen),
            "",
            needs=(needs,) if isinstance(needs, str) else tuple(needs),
            dtypes=dtypes,
            variants=("function", "inplace") if every_variant else ("function",),
            applies=applies,
            judge=judge,
        )
        _refuse_mistakes(kind)
        register(kind)
        return judge

    return decorate if function is None else decorate(function)


def _first_line(judge: Any, name: str) -> str:
    lines = (inspect.getdoc(judge) or "").strip().splitlines()
    if not lines:
        raise ValueError(f'the check "{name}" does not say what it claims: give it a docstring, or claim="..."')
    line = lines[0].rstrip(".")
    return line[:1].lower() + line[1:]


def _refuse_mistakes(kind: CheckKind) -> None:
    """Raise ValueError for a check that cannot be registered."""
    try:
        TypeAdapter(MarkName).validate_python(kind.name)
    except ValidationError as error:
        context: Any = error.errors()[0].get("ctx", {})
        raise ValueError(f"the name of a check: {context['what']}; expected {context['expected']}") from None
    for mistake in unknown_words(kind, get_args(Rule)):
        raise ValueError(f'the check "{kind.name}": {worded(*mistake)}')
    if kind.name in {builtin.name for builtin in BUILTIN}:
        raise ValueError(f'the check "{kind.name}" is one of opcheck itself; give yours another name')
    known = REGISTERED.get(kind.name)
    if known is None and kind.name in check_kinds():
        raise ValueError(f'the check "{kind.name}" comes with an installed plugin; give yours another name')
    if known is not None and not is_redefined(known.judge, kind.judge):
        places = f"first at {place_in_code(known.judge)}, then at {place_in_code(kind.judge)}"
        raise ValueError(f'the check "{kind.name}" is registered twice: {places}')
