"""Derived samples, and functions that change the recipes of a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction
from opcheck.spec.recipe import MARGIN, Tensor, points_of
from opcheck.spec.values import mapped

FEWER = (1, 17, 1031)
"""The sizes that are tried by default."""
STATED = {"values", "low", "high", "mean", "std", "exclude", "contains", "structure", "through"}
"""The keys with which a recipe specifies its numbers."""


@dataclass(frozen=True)
class Derived:
    """A sample that was derived from a written one."""

    what: str
    """A description of the change, such as "size 3 -> 17"."""
    unnamed: Sample
    """The derived sample, with the name of the written sample."""
    apart: Others = field(default=tuple, repr=False, compare=False)
    """The samples to try if the operator refuses this sample: combined changes are made one by one."""
    smaller: Others = field(default=tuple, repr=False, compare=False)
    """The samples to try if this sample is too large, or if its outputs are too large for a conclusive look."""
    remedy: str = ""
    """What to write in the spec if the operator is not meant for such samples."""

    @cached_property
    def sample(self) -> Sample:
        """The derived sample. Its name is that of the written sample, followed by the change."""
        return replace(self.unnamed, name=f"{self.unnamed.name}~{self.what}")


Others = Callable[[], Iterable[Derived]]


@dataclass(frozen=True)
class Keywords:
    """The keywords that an operator, or the constructor of a module, may be passed."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Further values of each keyword, besides its default."""
    positional: Sequence[str] = ()
    """The names of the parameters that may be passed by position, in order."""


@dataclass(frozen=True)
class Scope:
    """The extent to which samples are varied."""

    call: Keywords = field(default_factory=Keywords)
    """The keywords of a call of the operator."""
    module: Construction | None = None
    """How the module is constructed, if the operator is a module."""
    constructor: Keywords | None = None
    """The keywords of the module's constructor, if they are varied."""
    is_thorough: bool = False
    """Whether to try more sizes and values, and random pairs of variations."""
    real: str = ""
    """The real dtype that tensors may have, if the dtype of the case is complex."""
    sizes: Sequence[int] = FEWER


def changed(sample: Sample, change: Callable[[Tensor], Tensor]) -> Sample:
    """Return a sample with a function applied to its recipes, and without `grad_outputs`."""

    def each(part: Any) -> Any:
        return change(part) if isinstance(part, Tensor) else part

    return replace(sample, args=mapped(sample.args, each), kwargs=mapped(sample.kwargs, each), grad_outputs=None)


def updated(recipe: Tensor, **update: Any) -> Tensor:
    """Return a recipe with some keys changed. None removes a key."""
    if None not in update.values():
        return recipe.model_copy(update=update)
    keys = recipe.stated() | update
    return type(recipe).model_construct(**{key: value for key, value in keys.items() if value is not None})


def with_one(sample: Sample, recipe: Tensor, **update: Any) -> Sample:
    """Return a sample with one of its recipes updated. See `updated`."""
    return with_some(sample, [recipe], **update)


def with_some(sample: Sample, recipes: Sequence[Tensor], **update: Any) -> Sample:
    """Return a sample with some of its recipes updated. See `updated`."""
    own = set(map(id, recipes))
    return changed(sample, lambda recipe: updated(recipe, **update) if id(recipe) in own else recipe)


def rank_of(sample: Sample) -> int:
    """Return the largest number of dims of a tensor in a sample."""
    return max((len(recipe.sizes) for recipe in sample.tensors), default=0)


def has_indices(sample: Sample) -> bool:
    """Return whether a sample has integers or explicit values, which may be indices. Then no size is reduced."""
    return any(is_integer(recipe) or recipe.shape is None for recipe in sample.tensors)


def is_integer(recipe: Tensor) -> bool:
    """Return whether a recipe has an integer dtype, whatever the dtype of the case."""
    name = recipe.dtype
    return name is not None and (name == "integer" or name.startswith(("int", "uint")))


def is_free(recipe: Tensor, besides: Set[str] = frozenset()) -> bool:
    """Return whether a recipe is strided, has the dtype of the case and does not specify its numbers.

    besides: keys that it may have nevertheless.
    """
    stated = recipe.model_fields_set & STATED - besides
    return recipe.layout == "strided" and recipe.dtype is None and not stated


def is_allowed(number: float, recipe: Tensor) -> bool:
    """Return whether a number keeps the distance `MARGIN` from the points that a recipe excludes."""
    return all(abs(number - point) >= MARGIN for point in points_of(recipe.exclude))
