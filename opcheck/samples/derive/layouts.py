"""Varies the memory layout of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from opcheck.samples.derive.change import Derived, Scope, with_one, with_some
from opcheck.spec.library import Sample
from opcheck.spec.recipe import BLOCKED, Tensor
from opcheck.spec.render import render

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
    """Yield samples in which all tensors that are contiguous as written, and can have a layout, have it.

    Then yield samples with one sparse tensor of another pattern.
    """
    for what in LAYOUTS:
        yield from with_layout(sample, what)
    yield from _mixed(sample)
    for number, recipe in enumerate(sample.tensors):
        for keys in _patterns(recipe):
            words = ", ".join(f"{key} = {render(value)}" for key, value in keys.items())
            yield Derived(f"{words} of tensor {number}", with_one(sample, recipe, **keys))


def _mixed(sample: Sample) -> Iterator[Derived]:
    """Yield a sample in which the first tensor that could be transposed is contiguous, and the others are transposed.

    Code may ask the first tensor alone whether it is contiguous.
    """
    wide = [recipe for recipe in sample.tensors if len(recipe.sizes) > 1]
    for one in with_layout(sample, "transposed") if len(wide) > 1 else ():
        number = sample.tensors.index(wide[0])
        mixed = with_one(one.unnamed, one.unnamed.tensors[number], memory="contiguous")
        yield Derived(f"{one.what} but of tensor {number}", mixed)


def _patterns(recipe: Tensor) -> Iterator[dict[str, Any]]:
    """Yield keys for other patterns of a sparse tensor: not coalesced, hybrid, in oblong blocks, empty, and full."""
    if recipe.layout == "strided" or recipe.values is not None or recipe.structure is not None:
        return
    rows, columns = recipe.sizes[-2:] if len(recipe.sizes) > 1 else (1, 1)
    if recipe.layout == "sparse_coo" and recipe.coalesced:
        yield {"coalesced": False}
    if recipe.layout == "sparse_coo" and recipe.dense_dim is None and len(recipe.sizes) > 1:
        yield {"dense_dim": 1}
    if recipe.layout in BLOCKED and recipe.blocksize is None and not recipe.dense_dim:
        yield {"blocksize": [_divisor(rows), columns]}
    yield from ({"nnz": nnz} for nnz in (0, recipe.places) if nnz != recipe.nnz)


def _divisor(size: int) -> int:
    """Return the smallest divisor of a size above 1 and below the size; 1 if there is none."""
    return next((one for one in range(2, size) if size % one == 0), 1)


def with_layout(sample: Sample, what: str) -> Iterator[Derived]:
    """Yield a sample with one of `LAYOUTS`, unless no tensor can have it."""
    fits, says = LAYOUTS[what]
    strided = (one for one in sample.tensors if one.layout == "strided")
    plain = (one for one in strided if one.memory == "contiguous" and not (one.conj or one.neg))
    recipes = list(filter(fits, plain))
    if recipes:
        yield Derived(f"memory {what}", with_some(sample, recipes, **says))
