"""Varies numbers in tensors: special values, whole numbers, masks. What a spec says of them is the author's word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opcheck.samples.derive.change import Derived, Scope, is_integer, with_one
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor

STATED = {"values", "low", "high", "mean", "std", "exclude", "contains", "structure", "through"}
"""What a recipe says of its numbers."""


def is_free(recipe: Tensor) -> bool:
    """Tell whether any numbers of the dtype of the case will do."""
    return recipe.dtype is None and not recipe.model_fields_set & STATED


def by_value(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each tensor filled with one number, and with one element that is one."""
    for number, recipe in enumerate(sample.tensors):
        if is_free(recipe) and recipe.numel:
            for value in scope.numbers:
                yield Derived(f"tensor {number} = {value:g}", with_one(sample, recipe, mean=value, std=0.0))
            # One element alone is what fills the tensor.
            for value in [one for one in scope.elements if recipe.numel > 1 or one not in scope.numbers]:
                yield Derived(f"an element of tensor {number} = {value:g}", with_one(sample, recipe, contains=(value,)))


def by_integer(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each tensor of explicit whole numbers with the least and the largest of them throughout, and reversed.

    No other numbers: an operator need not check whether an index is in range.
    """
    for number, recipe in enumerate(sample.tensors):
        own = set(_numbers(recipe.values)) if is_integer(recipe) else set()
        if len(own) < 2:
            continue
        for value in (min(own), max(own)):
            filled = _filled(recipe.sizes, value)
            yield Derived(f"tensor {number} = {value}", with_one(sample, recipe, values=filled))
        turned = _reversed(recipe.values)
        if turned != recipe.values:
            yield Derived(f"tensor {number} reversed", with_one(sample, recipe, values=turned))


def by_mask(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each mask with all, none, and all but the first row of its elements true."""
    for number, recipe in enumerate(sample.tensors):
        if recipe.dtype != "bool":
            continue
        fills = {"true": _filled(recipe.sizes, True), "false": _filled(recipe.sizes, False)}
        if len(recipe.sizes) > 1 and recipe.sizes[0]:
            row = _filled(recipe.sizes[1:], False)
            fills["true, but for a row"] = (row, *_filled((recipe.sizes[0] - 1, *recipe.sizes[1:]), True))
        for what, values in fills.items():
            if values != recipe.values:
                yield Derived(f"tensor {number} = {what}", with_one(sample, recipe, shape=None, values=values))


def _numbers(values: Any) -> list[Any]:
    return [one for row in values for one in _numbers(row)] if isinstance(values, tuple) else [values]


def _reversed(values: Any) -> Any:
    return tuple(map(_reversed, reversed(values))) if isinstance(values, tuple) else values


def _filled(sizes: tuple[int, ...], value: Any) -> Any:
    return (_filled(sizes[1:], value),) * sizes[0] if sizes else value
