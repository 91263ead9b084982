"""Varies the memory layout of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from opcheck.samples.derive.change import Derived, Scope, with_some
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor

LAYOUTS: dict[str, tuple[Callable[[Tensor], bool], dict[str, Any]]] = {
    "noncontiguous": (lambda recipe: len(recipe.sizes) >= 1, {"memory": "noncontiguous"}),
    "transposed": (lambda recipe: len(recipe.sizes) >= 2, {"memory": "transposed"}),
    "channels_last": (lambda recipe: len(recipe.sizes) == 4, {"memory": "channels_last"}),
    "offset": (lambda recipe: True, {"memory": "offset"}),
    "expanded": (
        lambda recipe: bool(recipe.shape) and recipe.dtype is None and not recipe.structure,
        {"memory": "expanded"},
    ),
    "lazily conjugated and negated": (lambda recipe: recipe.dtype is None, {"conj": True, "neg": True}),
}
"""For each layout, a predicate for the recipes that can have it, and the keys to set in these recipes."""


def by_layout(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples in which all tensors that are contiguous as written, and can have a layout, have it."""
    for what in LAYOUTS:
        yield from with_layout(sample, what)


def with_layout(sample: Sample, what: str) -> Iterator[Derived]:
    """Yield a sample with one of `LAYOUTS`, unless no tensor can have it."""
    fits, says = LAYOUTS[what]
    plain = (one for one in sample.tensors if one.memory == "contiguous" and not (one.conj or one.neg))
    recipes = list(filter(fits, plain))
    if recipes:
        yield Derived(f"memory {what}", with_some(sample, recipes, **says))
