"""Makes the tensor of a recipe: values, structure, layout, memory format, and the map from leaf to argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from opcheck.samples.layouts import in_layout, jagged, jagged_offsets, jagged_values
from opcheck.samples.memory import conjugated_view, in_memory, negated_view
from opcheck.samples.structures import STRUCTURES
from opcheck.samples.through import THROUGH
from opcheck.samples.values import draw
from opcheck.spec import dtypes
from opcheck.spec.recipe import Tensor

Through = Callable[[torch.Tensor], torch.Tensor]


class TensorMaker:
    """Makes the tensors of one sample on a device.

    dtype: name of the dtype of the case.
    drawn: name of the dtype that numbers are drawn in, before they are converted to that of the case.
    """

    def __init__(self, dtype: str, device: str, drawn: str) -> None:
        self.dtype, self.device, self.drawn = dtype, device, drawn
        self.offsets: dict[tuple[int, ...], torch.Tensor] = {}

    def torch_dtype(self, name: str | None, case: str | None = None) -> torch.dtype:
        """Return the dtype that a recipe names in a case. `real` and `complex` have the precision of the case."""
        case = case or self.dtype
        follows = {"real": dtypes.real_of, "complex": dtypes.complex_of, "integer": dtypes.integer_of}
        dtype: torch.dtype = getattr(torch, follows[name](case) if name in follows else name or case)
        return dtype

    def differentiated(self, recipe: Tensor, dtype: torch.dtype) -> bool:
        """Return whether to differentiate with respect to a tensor."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return False
        follows = recipe.dtype in (None, "real", "complex") and dtypes.is_differentiable(self.dtype)
        return follows if recipe.grad is None else recipe.grad

    def leaf(self, recipe: Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, Through]:
        """Return the leaf of a recipe, and the map from it to the argument of the operator."""
        dense = draw(recipe, recipe.sizes, self.torch_dtype(recipe.dtype, self.drawn))
        if recipe.structure is not None:
            dense = STRUCTURES[recipe.structure](dense)
        dense = dense.to(dtype)
        inside: list[Through] = [THROUGH[recipe.through]] if recipe.through else []
        if recipe.layout not in ("strided", "jagged"):
            return in_layout(dense, recipe).to(self.device).detach(), composed(inside)
        offsets = self.jagged_offsets(recipe.sizes) if recipe.layout == "jagged" else None
        if offsets is not None:
            dense = jagged_values(dense, offsets.cpu())
        full, expanded = dense.shape, recipe.memory == "expanded" and dense.dim() > 0
        if expanded:
            dense = dense[:1]
        # Conjugate and negate twice, the second time lazily.
        inside += [torch.conj_physical] if recipe.conj and dtype.is_complex else []
        inside += [torch.neg] if recipe.neg and dtype is not torch.bool else []
        lay = partial(in_memory, memory=recipe.memory)
        dense = lay(dense.to(self.device))
        views: list[Through] = [*inside, lay] if inside else []
        views += [lambda row: row.expand(full)] if expanded else []
        views += [conjugated_view] if recipe.conj else []
        views += [negated_view] if recipe.neg else []
        if offsets is not None:
            views.append(partial(jagged, offsets=offsets, longest=recipe.sizes[1]))
        through = composed(views)
        if not recipe.conj or recipe.neg or recipe.through or expanded or offsets is not None:
            return dense.detach(), through
        # The leaf itself is the conjugated view: torch's batched forward mode has no rule for creating one.
        return through(dense).detach(), composed([])

    def jagged_offsets(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the offsets of a jagged tensor, shared by tensors with the same batch size and longest row."""
        if len(shape) < 2:
            raise ValueError(f"a jagged tensor needs at least 2 dimensions, not shape {list(shape)}")
        if shape[:2] not in self.offsets:
            self.offsets[shape[:2]] = jagged_offsets(*shape[:2]).to(self.device)
        return self.offsets[shape[:2]]

    def cotangents(self, recipes: Iterable[Any] | None) -> tuple[torch.Tensor, ...] | None:
        """Return the cotangents that a sample specifies for second order."""
        if recipes is None:
            return None
        made = (self.leaf(recipe, self.torch_dtype(recipe.dtype)) for recipe in recipes)
        cotangents = (view(leaf).detach() for leaf, view in made)
        return tuple(x.requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in cotangents)


def composed(views: list[Through]) -> Through:
    """Return the maps as one, the first of them applied first."""

    def through(leaf: torch.Tensor) -> torch.Tensor:
        for view in views:
            leaf = view(leaf)
        return leaf

    return through
