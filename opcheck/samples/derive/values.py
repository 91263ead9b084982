"""Varies numbers in tensors: special values, integers, masks. Floating numbers that a spec specifies stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from opcheck.samples.derive.change import Derived, Scope, changed, is_allowed, is_free, is_integer, updated, with_one
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor

NUMBERS = (0.0, 1.0, -1.0, 12.0, 30.0, -30.0, 1e3, -1e3, 1e-30, 5e-310)
"""The numbers to fill tensors with (all elements are ties), and to set elements to: exact, large, tiny, subnormal."""
FEW_NUMBERS = (0.0,)
"""The numbers to fill tensors with by default, besides `LARGE` of both signs."""
LARGE = 1e3
ELEMENTS = (0.0, 12.0, -13.0)
"""The numbers to set elements to by default, as many as fit. For larger ones, results of functions such as exp are
inconclusive. They do not cancel.
"""
COMMON = 0.0
"""The number of a further element, at the same place in all tensors. Two tensors are equal there, and each tensor has
two zeros.
"""
REPEATED = 33
"""The minimum length to which tensors of integers are repeated."""
SMALLER = {LARGE: 30.0, -LARGE: -30.0}
"""The number to fill a tensor with if a large number is inconclusive, as when the outputs are too large."""
REMEDY = 'if such integers, as of equal indices, are not meant, write vary = ["-integer"]'
BOOLEAN = ("true", True), ("false", False)
ADDITIVE = ("0", 0.0), ("-inf", -inf)
"""The elements of a mask that keep a value and that mask it, each as text and as a value."""


def by_value(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with a tensor filled with one number, then samples with single elements set to special numbers.

    Elements are set in all tensors at once, at different places, since the gradients of a product vanish where both
    factors are 0. By default, they are set in one tensor at a time only if that sample is refused or inconclusive.
    """
    free, numbers = _free(sample), NUMBERS if scope.is_thorough else FEW_NUMBERS
    for number, recipe in free:
        yield from (_full(sample, number, recipe, value) for value in numbers)
        yield from _large(sample, number, recipe) if recipe.numel > 1 or not scope.is_thorough else ()
    together = elements_of_all(sample, scope)
    if together is not None:
        yield together
    alone = [(number, recipe) for number, recipe in free if scope.is_thorough or recipe.numel == 1]
    yield from _with_elements(sample, alone, scope)


def elements_of_all(sample: Sample, scope: Scope) -> Derived | None:
    """Return a sample with special elements in all tensors that are large enough; None if there is none.

    They are at different places, except for `COMMON`. Excluded numbers are left out.
    """
    every = enumerate(sample.tensors)
    wide = [(number, recipe) for number, recipe in every if is_free(recipe, besides={"exclude"}) and recipe.numel > 1]
    if not wide:
        return None
    turns = {id(recipe): number % len(ELEMENTS) for number, recipe in wide}

    def contained(recipe: Tensor) -> Tensor:
        turn = turns.get(id(recipe))
        if turn is None:
            return recipe
        elements = [one for one in (*ELEMENTS[turn:], *ELEMENTS[:turn], COMMON) if is_allowed(one, recipe)]
        return updated(recipe, contains=tuple(elements[: recipe.numel]))

    alone = partial(_with_elements, sample, [] if scope.is_thorough else wide, scope)  # thorough: by_value yields them
    return Derived(f"elements {', '.join(f'{one:g}' for one in ELEMENTS)}", changed(sample, contained), alone, alone)


def _free(sample: Sample) -> list[tuple[int, Tensor]]:
    """Return the tensors whose numbers the spec does not specify and that are not empty, each with its position."""
    return [(number, recipe) for number, recipe in enumerate(sample.tensors) if is_free(recipe) and recipe.numel]


def _with_elements(sample: Sample, free: Sequence[tuple[int, Tensor]], scope: Scope) -> Iterator[Derived]:
    """Yield samples with one special element in one tensor, unless a sample with the tensor filled is the same."""
    elements, filled = (NUMBERS, NUMBERS) if scope.is_thorough else (ELEMENTS, FEW_NUMBERS)
    for number, recipe in free:
        for value in [one for one in elements if recipe.numel > 1 or one not in filled]:
            if not is_allowed(value, recipe):
                continue
            yield Derived(f"an element of tensor {number} = {value:g}", with_one(sample, recipe, contains=(value,)))


def _full(sample: Sample, number: int, recipe: Tensor, value: float) -> Derived:
    """Return a sample with one tensor filled with a number."""
    smaller = partial(map, partial(_full, sample, number, recipe), [SMALLER[value]] if value in SMALLER else [])
    filled = with_one(sample, recipe, mean=value, std=0.0)
    return Derived(f"tensor {number} = {value:g}", filled, smaller=smaller)


def _large(sample: Sample, number: int, recipe: Tensor) -> Iterable[Derived]:
    """Return a sample with one tensor filled with a large number, but for one element of the other sign.

    If that is refused or inconclusive, or if the tensor has a single element, each of the two numbers fills the tensor.
    """
    alone = partial(map, partial(_full, sample, number, recipe), (LARGE, -LARGE))
    if recipe.numel == 1:
        return alone()
    what = f"tensor {number} = {LARGE:g}, but for an element of {-LARGE:g}"
    return [Derived(what, with_one(sample, recipe, mean=LARGE, std=0.0, contains=(-LARGE,)), alone, alone)]


def by_dtype(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with one tensor real and all others complex, if there are several."""
    complex_ones = [(number, recipe) for number, recipe in enumerate(sample.tensors) if recipe.dtype is None]
    for number, recipe in complex_ones if scope.real and len(complex_ones) > 1 else ():
        if recipe.grad is not False and not recipe.conj:
            yield Derived(f"tensor {number} real", with_one(sample, recipe, dtype=scope.real, grad=True))


def by_integer(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with a tensor of explicit integers filled with its minimum or maximum, reversed, or repeated.

    In one sample, the second integer is like the first: offsets begin with an empty segment then. In another one, if
    they ascend, it is larger by one: offsets begin with a segment of one element. The tensor is repeated to a length of
    at least REPEATED, more than a block of 32. Integers beyond the minimum and the maximum are not used, since an
    operator need not check whether an index is in range. If thorough, also yield the tensor in int32.
    """
    for number, recipe in enumerate(sample.tensors):
        own = numbers_in(recipe)
        if own and recipe.dtype == "int64" and scope.is_thorough:
            yield Derived(f"tensor {number} in int32", with_one(sample, recipe, dtype="int32"))
        if len(own) < 2:
            continue
        values = {f"= {value}": _filled(recipe.sizes, value) for value in (min(own), max(own))}
        values["reversed"] = _reversed(recipe.values)
        first, *others = recipe.values
        if len(others) > 1:
            values["with its first repeated"] = (first, first, *others[1:])
            if len(recipe.sizes) == 1 and first + 1 < others[0] and others == sorted(others):
                values["with a first step of 1"] = (first, first + 1, *others[1:])
        if recipe.sizes[0] < REPEATED:
            times = -(-REPEATED // recipe.sizes[0])
            values[f"{times} times"] = recipe.values * times
        yield from _with_values(sample, number, recipe, values, REMEDY)


def by_mask(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with all elements of a boolean mask true, all false, and all true except for the first row.

    A tensor of numbers that is not differentiated may be an additive mask, with 0 for true and -inf for false.
    """
    for number, recipe in enumerate(sample.tensors):
        is_bool, may_be_added = recipe.dtype == "bool", recipe.grad is False and is_free(recipe)
        if not (is_bool or may_be_added):
            continue
        (one, kept), (other, left_out) = BOOLEAN if is_bool else ADDITIVE
        values = {f"= {one}": _filled(recipe.sizes, kept), f"= {other}": _filled(recipe.sizes, left_out)}
        if len(recipe.sizes) > 1 and recipe.sizes[0]:
            row = _filled(recipe.sizes[1:], left_out)
            values[f"= {one}, but for a row"] = (row, *_filled((recipe.sizes[0] - 1, *recipe.sizes[1:]), kept))
        yield from _with_values(sample, number, recipe, values)


def _with_values(
    sample: Sample, number: int, recipe: Tensor, each: Mapping[str, Any], remedy: str = ""
) -> Iterator[Derived]:
    """Yield samples in which a tensor has other explicit values, which are given with their descriptions."""
    for what, values in each.items():
        if values != recipe.values:
            other = with_one(sample, recipe, shape=None, values=values)
            yield Derived(f"tensor {number} {what}", other, remedy=remedy)


def numbers_in(recipe: Tensor) -> set[int]:
    """Return the explicit integers of a recipe; an empty set if it has none."""
    return set(_numbers(recipe.values)) if is_integer(recipe) and recipe.values is not None else set()


def _numbers(values: Any) -> list[Any]:
    return [one for row in values for one in _numbers(row)] if isinstance(values, tuple) else [values]


def _reversed(values: Any) -> Any:
    return tuple(map(_reversed, reversed(values))) if isinstance(values, tuple) else values


def _filled(sizes: tuple[int, ...], value: Any) -> Any:
    return (_filled(sizes[1:], value),) * sizes[0] if sizes else value
