"""A sample that was derived from another one, and how its recipes and keywords are changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction
from opcheck.spec.recipe import Tensor
from opcheck.spec.values import mapped

STATED = {"values", "low", "high", "mean", "std", "exclude", "contains", "structure", "through"}
"""What a recipe says of its numbers."""


@dataclass(frozen=True)
class Derived:
    """A sample that was derived from a written one."""

    what: str
    """What was varied, as in "size 3 -> 17"."""
    unnamed: Sample
    """The sample, with the name of the written one."""
    apart: Others = field(default=tuple, repr=False, compare=False)
    """What to try where the operator refuses it: what changes together changes one by one."""
    smaller: Others = field(default=tuple, repr=False, compare=False)
    """What to try where it is too large, or its outputs are too large to tell anything."""

    @cached_property
    def sample(self) -> Sample:
        """The sample, with a name of its own after that of the written one."""
        return replace(self.unnamed, name=f"{self.unnamed.name}~{self.what}")


Others = Callable[[], Iterable[Derived]]


@dataclass(frozen=True)
class Keywords:
    """The keywords that an operator, or the constructor of a module, may be passed."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Further values."""
    positional: Sequence[str] = ()
    """The names of those that may be passed by position, in order."""


@dataclass(frozen=True)
class Scope:
    """How far samples are varied."""

    sizes: Sequence[int]
    call: Keywords
    """Those of a call of the operator."""
    module: Construction | None = None
    """How the module is constructed, if the operator is one."""
    constructor: Keywords | None = None
    """The keywords of its constructor, where these are varied."""
    is_thorough: bool = False
    real: str = ""
    """The real dtype of as many digits, if that of the case is complex."""


def changed(sample: Sample, change: Callable[[Tensor], Tensor]) -> Sample:
    """Return a sample with a function applied to its recipes."""

    def each(part: Any) -> Any:
        return change(part) if isinstance(part, Tensor) else part

    return replace(sample, args=mapped(sample.args, each), kwargs=mapped(sample.kwargs, each), grad_outputs=None)


def updated(recipe: Tensor, **update: Any) -> Tensor:
    """Return a recipe with some keys changed. None takes a key out."""
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
    """Return the number of dims of the tensor that has the most."""
    return max((len(recipe.sizes) for recipe in sample.tensors), default=0)


def has_indices(sample: Sample) -> bool:
    """Tell whether there are whole numbers, which may be indices: then no size gets smaller."""
    return any(is_integer(recipe) or recipe.shape is None for recipe in sample.tensors)


def is_integer(recipe: Tensor) -> bool:
    """Tell whether a recipe is about whole numbers, whatever the dtype of the case."""
    name = recipe.dtype
    return name is not None and (name == "integer" or name.startswith(("int", "uint")))


def is_free(recipe: Tensor) -> bool:
    """Tell whether any numbers of the dtype of the case will do."""
    return recipe.dtype is None and not recipe.model_fields_set & STATED
