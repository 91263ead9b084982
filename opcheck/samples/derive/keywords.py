"""Varies keywords: those of a sample, those of the signature, and those that other samples of the operator pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, islice
from typing import Any

from opcheck.samples.derive.change import Derived, Keywords, Scope, rank_of
from opcheck.samples.derive.layouts import with_layout
from opcheck.samples.derive.sizes import beyond_a_block
from opcheck.samples.derive.values import elements_of_all, numbers_in
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction
from opcheck.spec.render import render
from opcheck.spec.values import UNSET, NoneValue, TupleValue

NONE = NoneValue(none=True)
"""None, in the form that a spec has for it."""
DIMS, INDEX = ("dim", "axis", "axes"), ("index", "idx")
"""The names of keywords for dims begin or end like DIMS, those for indices of elements end like INDEX."""
TINY = 1e-3
"""A number below is taken for an epsilon and stays small: a large epsilon may change the gradient on purpose."""
UNVARIED = (
    "inplace", "in_place", "out", "use_input_stats", "generator",
    "detach", "no_grad", "stop_gradient", "requires_grad", "create_graph", "retain_graph", "differentiable",
)  # fmt: skip
"""The keywords that are not varied, since they select another operator, or whether there is a graph, rather than what
is computed."""


def by_keyword(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with another value of one keyword: of the sample, of the signature, or of other samples only.

    Then yield a larger sample in other memory with other values of all of them, since code that depends on two of these
    is rarely tested. If the operator refuses it, memory and then sizes stay, and two keywords are changed at once.
    Positional arguments are varied like keywords. For a module, do the same for the keywords of its constructor, then
    yield evaluation mode.
    """
    rank = rank_of(sample)
    positional = tuple(scope.call.positional[: len(sample.args)])
    written = {**dict(zip(positional, sample.args, strict=False)), **sample.kwargs}
    changes = _changes(written, _with_indices(scope.call, sample), scope, rank)
    yield from _changed(sample, scope, changes, partial(_called, positional))
    construction = sample.module or scope.module
    if construction is not None and scope.constructor is not None:
        changes = _changes(construction.kwargs, scope.constructor, scope, rank)
        yield from _changed(sample, scope, changes, partial(_constructed, construction), "module.")
        if construction.train:
            own = construction.model_copy(update={"train": False})
            yield Derived("module.train = false", replace(sample, module=own))


Setter = Callable[[Sample, Mapping[str, Any]], Sample]
"""Returns a sample with other values of some keywords."""


def _changed(
    sample: Sample, scope: Scope, changes: Iterable[tuple[str, Any]], change: Setter, prefix: str = ""
) -> Iterator[Derived]:
    """Yield a sample with each of several changes of a keyword, then a larger one with the first change of each.

    A change of a number is also made to the sample with large elements, since the number may be, or scale, a threshold.
    """
    large = elements_of_all(sample, scope)
    firsts: dict[str, Any] = {}
    for name, value in changes:
        firsts.setdefault(name, value)
        one = _with_keywords(sample, {name: value}, change, prefix)
        yield one
        matters = type(value) in (int, float, bool) and not name.endswith(INDEX) and not is_dim(name)
        if matters and large is not None:
            yield Derived(f"{one.what}, {large.what}", change(large.unnamed, {name: value}))
    others = [_with_keywords(sample, firsts, change, prefix)] if len(firsts) > 1 else []
    for larger in _larger(sample, scope) if firsts else ():
        one, fewer = _with_keywords(larger.unnamed, firsts, change, prefix), partial(iter, others)
        others = [Derived(f"{one.what}, {larger.what}", one.unnamed, apart=fewer, smaller=fewer)]
    yield from others


def _larger(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield a sample with larger sizes, then with transposed memory too, as far as the sample varies these."""
    larger = beyond_a_block(sample, scope) if "size" in sample.vary else None
    if larger is not None:
        yield larger
        for laid_out in with_layout(larger.unnamed, "transposed") if "layout" in sample.vary else ():
            yield Derived(f"{larger.what}, {laid_out.what}", laid_out.unnamed)


def _with_keywords(sample: Sample, changes: Mapping[str, Any], change: Setter, prefix: str) -> Derived:
    """Return a sample with keywords changed; if it is refused or too large, with two of them at once."""

    def fewer() -> Iterator[Derived]:
        pairs = combinations(changes.items(), 2) if len(changes) > 2 else ()
        yield from (_with_keywords(sample, dict(pair), change, prefix) for pair in pairs)

    words = ", ".join(f"{prefix}{name} = {render(value)}" for name, value in changes.items())
    return Derived(words, change(sample, changes), apart=fewer, smaller=fewer)


def _called(positional: Sequence[str], sample: Sample, changes: Mapping[str, Any]) -> Sample:
    """Return a sample with arguments changed, by position or by name. positional: the names of `sample.args`."""
    named = zip(positional, sample.args, strict=False)
    args = (*(changes.get(name, own) for name, own in named), *sample.args[len(positional) :])
    kwargs = {name: value for name, value in changes.items() if name not in positional}
    return replace(sample, args=args, kwargs={**sample.kwargs, **kwargs})


def _constructed(construction: Construction, sample: Sample, changes: Mapping[str, Any]) -> Sample:
    written = sample.module or construction
    own = written.model_copy(update={"kwargs": {**written.kwargs, **changes}})
    return replace(sample, module=own)


def _with_indices(keywords: Keywords, sample: Sample) -> Keywords:
    """Return keywords, with an index that occurs in a tensor as a choice for `ignore_index` and `padding_idx`."""
    held = set[int]().union(*map(numbers_in, sample.tensors))
    names = [name for name in keywords.defaults if name.endswith(INDEX)] if held else []
    choices = {name: [*keywords.choices.get(name, ()), min(held)] for name in names}
    return replace(keywords, choices={**keywords.choices, **choices})


def _changes(written: Mapping[str, Any], keywords: Keywords, scope: Scope, rank: int) -> Iterator[tuple[str, Any]]:
    """Yield each keyword with each other value of it. rank: the largest number of dims of a tensor."""
    own = {**keywords.defaults, **written}
    for name in dict.fromkeys((*own, *keywords.choices)):
        is_optional = keywords.defaults.get(name, UNSET) is None and written.get(name) not in (None, NONE)
        choices = (*keywords.choices.get(name, ()), *([NONE] if is_optional else []))
        for other in () if name in UNVARIED else _others(name, own, choices, scope, rank):
            yield name, other


def _others(name: str, own: Mapping[str, Any], choices: Sequence[Any], scope: Scope, rank: int) -> Iterator[Any]:
    """Yield other values of a keyword: some near its value, then `choices`."""
    value = own.get(name)
    few = None if scope.is_thorough or is_dim(name) or type(value) is int else 1
    near = [*islice(_near(name, value, rank), few)]
    if name.endswith(INDEX) and any(other != value for other in choices):
        near = [other for other in near if other == -1]  # another one may occur nowhere, and have no effect
    others = {render(other): other for other in (*near, *choices)}
    if name in own:
        others.pop(render({"none": True} if value is None else value), None)
    yield from others.values()


def _near(name: str, value: Any, rank: int) -> Iterator[Any]:
    """Yield values near a bool, a number or several integers."""
    items: Any = value.tuple if isinstance(value, TupleValue) else value
    if isinstance(items, (list, tuple)):
        if items and all(type(item) is int for item in items):
            others: list[Any] = [[*items[:-1], items[-1] + 1]]  # equal ones differ
            if is_dim(name):
                others += [[*items[::-1]], [_from_the_other_end(item, rank) for item in items]]
            yield from (other if isinstance(value, list) else TupleValue(tuple=other) for other in others)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        if TINY <= value < 1:  # a probability or a weight may be: a number on the other side of 0.5
            yield value / 2 if value > 0.5 else 1 - value / 2
        yield from (value * 3, value / 2) if value else (0.5, -0.5)
        if value:
            yield from (-value, 0.75 * value)  # three quarters may not be whole
    elif isinstance(value, int):
        yield value + 1
        if is_dim(name) or value > 1:
            yield value - 1
        if name.endswith(INDEX) and value >= 0:
            yield -1
        if is_dim(name):
            yield _from_the_other_end(value, rank)


def _from_the_other_end(dim: int, rank: int) -> int:
    """Return the same dim of a tensor, counted from the other end."""
    return dim - rank if dim >= 0 else dim + rank


def is_dim(name: str) -> bool:
    """Return whether a keyword is a dim of a tensor, judging by its name."""
    return name.startswith(DIMS) or name.endswith(DIMS) or name in ("diagonal", "offset")
