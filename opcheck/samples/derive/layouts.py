"""Varies how tensors lie in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opcheck.samples.derive.change import Derived, Scope, changed, updated
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor

WAYS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("noncontiguous", 1, {"memory": "noncontiguous"}),
    ("transposed", 2, {"memory": "transposed"}),
    ("channels_last", 4, {"memory": "channels_last"}),
    ("offset", 0, {"memory": "offset"}),
    ("expanded", 1, {"memory": "expanded"}),
    ("lazily conjugated and negated", 0, {"conj": True, "neg": True}),
)
"""Each with the least rank of a tensor, and what its recipe says."""


def by_layout(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each layout for all tensors that are contiguous as written."""
    plain = [recipe for recipe in sample.tensors() if _is_plain(recipe)]
    for what, least, says in WAYS:
        if any(_fits(recipe, what, least) for recipe in plain):

            def arranged(recipe: Tensor, what: str = what, least: int = least, says: dict[str, Any] = says) -> Tensor:
                fits = _is_plain(recipe) and _fits(recipe, what, least)
                return updated(recipe, **says) if fits else recipe

            yield Derived(f"memory {what}", changed(sample, arranged))


def _is_plain(recipe: Tensor) -> bool:
    return recipe.memory == "contiguous" and not recipe.conj and not recipe.neg


def _fits(recipe: Tensor, what: str, least: int) -> bool:
    rank = len(recipe.sizes)
    if what == "expanded" and (recipe.structure or recipe.shape is None or recipe.dtype is not None):
        return False
    if "lazily" in what and recipe.dtype is not None:
        return False
    return rank == 4 if what == "channels_last" else rank >= least
