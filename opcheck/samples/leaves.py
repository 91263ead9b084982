"""Makes a leaf of a recipe, or of a tensor from Python, with the map from it to what the operator gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from opcheck.samples.draw import draw
from opcheck.samples.inputs import unchanged
from opcheck.samples.layouts import (
    conjugated_view,
    in_layout,
    in_memory,
    jagged_offsets,
    jagged_values,
    negated_view,
    unexpanded,
)
from opcheck.samples.structures import STRUCTURES
from opcheck.samples.through import THROUGH
from opcheck.spec.dtypes import FOLLOWING, complex_of, real_of
from opcheck.spec.recipe import Tensor as Recipe
from opcheck.strides import extent, overlap

Through = Callable[[Tensor], Tensor]
Offsets = dict[tuple[int, ...], Tensor]


def torch_dtype(name: str | None, case: str) -> torch.dtype:
    """Return the dtype that a recipe names in a case. `real` and `complex` have the precision of the case."""
    own = FOLLOWING[name](case) if name in FOLLOWING else name or case
    dtype: torch.dtype = getattr(torch, own)
    return dtype


def leaf_of(recipe: Recipe, case: str, drawn: str, device: str, offsets: Offsets) -> tuple[Tensor, Through]:
    """Return the leaf of a recipe, and the map from it to the argument of the operator.

    case: name of the dtype of the case.
    drawn: name of the dtype that numbers are drawn in, before they are converted to that of the case.
    offsets: those of jagged tensors, shared by tensors with the same batch size and longest row.
    """
    dtype = torch_dtype(recipe.dtype, case)
    dense = draw(recipe, recipe.sizes, torch_dtype(recipe.dtype, drawn))
    if recipe.structure is not None:
        dense = STRUCTURES[recipe.structure](dense)
    dense = dense.to(dtype)
    inside = THROUGH[recipe.through] if recipe.through else None
    if recipe.layout not in ("strided", "jagged"):
        return in_layout(dense, recipe).to(device).detach(), inside or unchanged
    around = None
    if recipe.layout == "jagged":
        rows = batch, longest = recipe.sizes[:2]
        if rows not in offsets:
            offsets[rows] = jagged_offsets(batch, longest).to(device)
        dense = jagged_values(dense, offsets[rows].cpu())
        # Without max_seqlen, torch pads to the sum of all lengths.
        around = partial(torch.nested.nested_tensor_from_jagged, offsets=offsets[rows], max_seqlen=longest)
    conj, neg = recipe.conj and dtype.is_complex, recipe.neg and dtype is not torch.bool
    # Real numbers that torch negates lazily are those of x.conj().imag, which have gaps between them.
    has_gaps = neg and not dtype.is_complex and recipe.memory == "contiguous"
    lay = partial(in_memory, memory="noncontiguous" if has_gaps else recipe.memory)
    expanded = recipe.memory == "expanded" and dense.dim() > 0
    values = lay((dense[:1] if expanded else dense).to(device))
    return _viewed(values, dense.shape, conj, neg, inside, lay, around)


def _viewed(
    values: Tensor,
    shape: torch.Size,
    conj: bool,
    neg: bool,
    inside: Through | None = None,
    lay: Through = unchanged,
    around: Through | None = None,
) -> tuple[Tensor, Through]:
    """Return a leaf with these values, and the map from it to a view of them.

    shape: that of the view, before `around`. A leaf with other sizes is expanded.
    conj, neg: whether the view is lazily conjugated or negated. The values are so as well, which cancels out.
    inside, lay, around: what is applied first; the memory format of what that and cancelling return; what is last.
    """
    steps = (
        inside,
        torch.conj_physical if conj else None,
        torch.neg if neg else None,
        lay if inside or conj or neg else None,
        (lambda row: row.expand(shape)) if values.shape != shape else None,
        conjugated_view if conj else None,
        negated_view if neg else None,
        around,
    )
    views: list[Through] = [step for step in steps if step is not None]

    def through(leaf: Tensor) -> Tensor:
        for view in views:
            leaf = view(leaf)
        return leaf

    if views == [torch.conj_physical, lay, conjugated_view]:
        # The leaf itself is the conjugated view: torch's batched forward mode has no rule for creating one.
        return through(values).detach(), unchanged
    return values.detach(), through if views else unchanged


@dataclass(frozen=True, eq=False)
class Given:
    """A tensor of the caller, which takes the place of a recipe. It is only ever copied."""

    tensor: Tensor
    grad: bool
    """Whether to differentiate with respect to it, if it has a floating or complex dtype."""
    own: str
    """The dtype of the call that it belongs to."""

    def dtype_in(self, case: str) -> torch.dtype:
        """Return its dtype in a case.

        The dtype of the call becomes that of the case, and so do the real and the complex dtype of the same precision.
        Any other dtype stays as it is.
        """
        name = str(self.tensor.dtype).removeprefix("torch.")
        pairs = {
            complex_of(self.own): complex_of(case),
            real_of(self.own): real_of(case),
            self.own: case,
        }
        dtype: torch.dtype = getattr(torch, pairs.get(name, name))
        return dtype

    def leaf(self, dtype: torch.dtype) -> tuple[Tensor, Through]:
        """Return a copy as a leaf of the given dtype, and the map from the leaf to what the operator gets.

        The operator gets the strides, the layout, and the conjugate and negative bits of the tensor. Elements that
        share memory through `expand` are a single element of the leaf. A real leaf that becomes complex gets random
        imaginary parts in [-1, 1], drawn from the global generator: zeros would hide a missing conjugation.
        """
        tensor = self.tensor.detach()
        if tensor.layout is not torch.strided or type(tensor) is not Tensor:
            return self._converted(tensor.clone(), dtype), unchanged
        once = unexpanded(tensor)
        values = laid_out(self._converted(once.resolve_conj().resolve_neg(), dtype), once.stride())
        return _viewed(values, tensor.shape, tensor.is_conj() and dtype.is_complex, tensor.is_neg())

    def _converted(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        if not self.grad or not dtype.is_complex or values.dtype.is_complex:
            return values.to(dtype)
        if values.layout is not torch.strided:
            return values.to(dtype) * (1 + 0.5j)
        imaginary = 2 * torch.rand(values.shape, dtype=torch.float64) - 1
        return torch.complex(values.to(torch.float64), imaginary.to(values.device)).to(dtype)


def laid_out(values: Tensor, strides: Sequence[int]) -> Tensor:
    """Return a copy of a strided tensor with the given strides, or a contiguous one if elements would overlap."""
    if not values.numel() or overlap(values.shape, strides):
        return values.clone(memory_format=torch.contiguous_format)
    memory = torch.zeros(extent(values.shape, strides), dtype=values.dtype, device=values.device)
    return memory.as_strided(values.shape, strides).copy_(values)
