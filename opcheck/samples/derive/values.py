"""Varies numbers in tensors: special values, whole numbers, masks. What a spec says of them is the author's word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from typing import Any

from opcheck.samples.derive.change import Derived, Scope, changed, is_free, is_integer, updated, with_one
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor

NUMBERS = (0.0, 1.0, -1.0, 12.0, 30.0, -30.0, 1e3, -1e3, 1e-30, 5e-310)
"""What tensors, or elements, are: exact numbers, which are all ties, large, tiny and subnormal ones."""
FEW_NUMBERS = (0.0, 1e3)
"""What tensors are filled with as a standard."""
ELEMENTS = (0.0, 12.0)
"""What elements are as a standard: of larger ones, most functions that grow fast make numbers that tell nothing."""
REPEATED = 33
"""The least length to which whole numbers are repeated."""
SMALLER = {1e3: 30.0}
"""What to fill a tensor with where a large number tells nothing, such as one that outputs grow too large for."""
BOOLEAN = ("true", True), ("false", False)
ADDITIVE = ("0", 0.0), ("-inf", -inf)
"""What a mask keeps and what it leaves out, in words and as its element."""


def by_value(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each tensor filled with one number, then tensors with elements that are such numbers.

    All tensors have such elements at once, in different places: where two factors are 0, so are both gradients. As a
    standard, one is alone only where that is refused, or tells nothing.
    """
    free, numbers = _free(sample), NUMBERS if scope.is_thorough else FEW_NUMBERS
    for number, recipe in free:
        yield from (_full(sample, number, recipe, value) for value in numbers)
    together = elements_of_all(sample, scope)
    if together is not None:
        yield together
    wide = [] if scope.is_thorough else _wide(sample)
    yield from _with_elements(sample, [one for one in free if one not in wide], scope)


def elements_of_all(sample: Sample, scope: Scope) -> Derived | None:
    """Return a sample with special elements in all tensors that have room for them, in different places.

    None if there is no such tensor.
    """
    wide = _wide(sample)
    if not wide:
        return None
    turns = {id(recipe): number % len(ELEMENTS) for number, recipe in wide}

    def contained(recipe: Tensor) -> Tensor:
        turn = turns.get(id(recipe))
        return recipe if turn is None else updated(recipe, contains=ELEMENTS[turn:] + ELEMENTS[:turn])

    alone = partial(_with_elements, sample, [] if scope.is_thorough else wide, scope)  # else they are tried anyway
    return Derived(f"elements {', '.join(f'{one:g}' for one in ELEMENTS)}", changed(sample, contained), alone, alone)


def _free(sample: Sample) -> list[tuple[int, Tensor]]:
    """Return the tensors that may have any numbers, each with its place among all."""
    return [(number, recipe) for number, recipe in enumerate(sample.tensors) if is_free(recipe) and recipe.numel]


def _wide(sample: Sample) -> list[tuple[int, Tensor]]:
    """Return those of them that have room for all special elements at once."""
    return [one for one in _free(sample) if one[1].numel >= len(ELEMENTS)]


def _with_elements(sample: Sample, free: Sequence[tuple[int, Tensor]], scope: Scope) -> Iterator[Derived]:
    """Yield each tensor with one element that is a number, unless that fills the tensor, as another sample does."""
    numbers, elements = (NUMBERS, NUMBERS) if scope.is_thorough else (FEW_NUMBERS, ELEMENTS)
    for number, recipe in free:
        for value in [one for one in elements if recipe.numel > 1 or one not in numbers]:
            yield Derived(f"an element of tensor {number} = {value:g}", with_one(sample, recipe, contains=(value,)))


def _full(sample: Sample, number: int, recipe: Tensor, value: float) -> Derived:
    """Return a tensor filled with one number."""
    less = [SMALLER[value]] if value in SMALLER else []
    return Derived(
        f"tensor {number} = {value:g}", with_one(sample, recipe, mean=value, std=0.0),
        smaller=lambda: (_full(sample, number, recipe, one) for one in less),
    )  # fmt: skip


def by_dtype(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each of several tensors real where all others are complex."""
    complex_ones = [(number, recipe) for number, recipe in enumerate(sample.tensors) if recipe.dtype is None]
    for number, recipe in complex_ones if scope.real and len(complex_ones) > 1 else ():
        if recipe.grad is not False and not recipe.conj:
            yield Derived(f"tensor {number} real", with_one(sample, recipe, dtype=scope.real, grad=True))


def by_integer(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each tensor of explicit whole numbers with the least and the largest of them throughout, and reversed.

    Then all of them several times, beyond a block. No other numbers: an operator need not check whether an index is in
    range. Thorough: the same in 32 bits.
    """
    for number, recipe in enumerate(sample.tensors):
        own = numbers_in(recipe)
        if own and recipe.dtype == "int64" and scope.is_thorough:
            yield Derived(f"tensor {number} in int32", with_one(sample, recipe, dtype="int32"))
        if len(own) < 2:
            continue
        for value in (min(own), max(own)):
            filled = _filled(recipe.sizes, value)
            yield Derived(f"tensor {number} = {value}", with_one(sample, recipe, values=filled))
        turned = _reversed(recipe.values)
        if turned != recipe.values:
            yield Derived(f"tensor {number} reversed", with_one(sample, recipe, values=turned))
        length = recipe.sizes[0]
        if length < REPEATED:
            times = -(-REPEATED // length)
            yield Derived(f"tensor {number} {times} times", with_one(sample, recipe, values=recipe.values * times))


def by_mask(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each mask with all, none, and all but the first row of its elements true, or 0 of an additive one.

    A tensor of numbers without a derivative may be such a mask: what it leaves out is -inf.
    """
    for number, recipe in enumerate(sample.tensors):
        is_bool, may_be_added = recipe.dtype == "bool", recipe.grad is False and is_free(recipe)
        if not (is_bool or may_be_added):
            continue
        (one, kept), (other, left_out) = BOOLEAN if is_bool else ADDITIVE
        fills = {one: _filled(recipe.sizes, kept), other: _filled(recipe.sizes, left_out)}
        if len(recipe.sizes) > 1 and recipe.sizes[0]:
            row = _filled(recipe.sizes[1:], left_out)
            fills[f"{one}, but for a row"] = (row, *_filled((recipe.sizes[0] - 1, *recipe.sizes[1:]), kept))
        for what, values in fills.items():
            if values != recipe.values:
                yield Derived(f"tensor {number} = {what}", with_one(sample, recipe, shape=None, values=values))


def numbers_in(recipe: Tensor) -> set[int]:
    """Return the explicit whole numbers of a recipe."""
    return set(_numbers(recipe.values)) if is_integer(recipe) and recipe.values is not None else set()


def _numbers(values: Any) -> list[Any]:
    return [one for row in values for one in _numbers(row)] if isinstance(values, tuple) else [values]


def _reversed(values: Any) -> Any:
    return tuple(map(_reversed, reversed(values))) if isinstance(values, tuple) else values


def _filled(sizes: tuple[int, ...], value: Any) -> Any:
    return (_filled(sizes[1:], value),) * sizes[0] if sizes else value
