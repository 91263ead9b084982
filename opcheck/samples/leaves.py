"""Makes leaves from recipes or from given tensors, each with the map from the leaf to the operator's argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from opcheck.samples import layouts
from opcheck.samples.draw import draw
from opcheck.samples.inputs import unchanged
from opcheck.samples.structures import STRUCTURES
from opcheck.samples.through import THROUGH
from opcheck.spec.dtypes import FOLLOWING, complex_of, real_of
from opcheck.spec.recipe import Tensor as Recipe
from opcheck.strides import laid_out

Through = Callable[[Tensor], Tensor]
Offsets = dict[tuple[int, ...], Tensor]


def torch_dtype(name: str | None, case: str) -> torch.dtype:
    """Return the dtype that a recipe names; None is the dtype of the case. `real` and `complex` have its precision."""
    own = FOLLOWING[name](case) if name in FOLLOWING else name or case
    dtype: torch.dtype = getattr(torch, own)
    return dtype


def leaf_of(recipe: Recipe, case: str, drawn: str, device: str, offsets: Offsets) -> tuple[Tensor, Through]:
    """Return the leaf of a recipe, and the map from the leaf to the argument of the operator.

    case: name of the dtype of the case.
    drawn: name of the dtype in which numbers are drawn, before they are converted to the dtype of the case.
    offsets: the offsets of jagged tensors, by batch size and longest row. New offsets are added to it, so that tensors
        with the same batch size and longest row share them.
    """
    dtype = torch_dtype(recipe.dtype, case)
    dense = draw(recipe, recipe.sizes, torch_dtype(recipe.dtype, drawn))
    if recipe.structure is not None:
        dense = STRUCTURES[recipe.structure](dense)
    dense = dense.to(dtype)
    inside = THROUGH[recipe.through] if recipe.through else None
    if recipe.layout not in ("strided", "jagged"):
        return layouts.in_layout(dense, recipe).to(device).detach(), inside or unchanged
    around = None
    if recipe.layout == "jagged":
        rows = batch, longest = recipe.sizes[:2]
        if rows not in offsets:
            offsets[rows] = layouts.jagged_offsets(batch, longest).to(device)
        dense = layouts.jagged_values(dense, offsets[rows].cpu())
        # Without max_seqlen, torch pads to the sum of all lengths.
        around = partial(torch.nested.nested_tensor_from_jagged, offsets=offsets[rows], max_seqlen=longest)
    conj, neg = recipe.conj and dtype.is_complex, recipe.neg and dtype is not torch.bool
    # In torch, a real tensor has the negative bit if it is x.conj().imag, which is not contiguous.
    has_gaps = neg and not dtype.is_complex and recipe.memory == "contiguous"
    lay = partial(layouts.in_memory, memory="noncontiguous" if has_gaps else recipe.memory)
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
    """Return a leaf with these values, and the map from the leaf to the argument of the operator.

    shape: shape of the argument, before `around`. A leaf with another shape is expanded to it.
    conj, neg: whether the argument has torch's conjugate or negative bit. The map also conjugates or negates
        physically, so that the values stay the same.
    inside: map that is applied first.
    lay: sets the memory format, after `inside` and the physical conjugation and negation.
    around: map that is applied last.
    """
    steps = (
        inside,
        torch.conj_physical if conj else None,
        torch.neg if neg else None,
        lay if inside or conj or neg else None,
        (lambda row: row.expand(shape)) if values.shape != shape else None,
        layouts.conjugated_view if conj else None,
        layouts.negated_view if neg else None,
        around,
    )
    views: list[Through] = [step for step in steps if step is not None]

    def through(leaf: Tensor) -> Tensor:
        for view in views:
            leaf = view(leaf)
        return leaf

    if views == [torch.conj_physical, lay, layouts.conjugated_view]:
        # The leaf itself is the conjugated view: torch's batched forward mode has no rule for creating one.
        return through(values).detach(), unchanged
    return values.detach(), through if views else unchanged


@dataclass(frozen=True, eq=False)
class Given:
    """A tensor from the caller, in place of a recipe. The operator only gets copies of it."""

    tensor: Tensor
    grad: bool
    """Whether to differentiate with respect to the tensor, if it has a floating or complex dtype."""
    own: str
    """The name of the dtype in which the caller calls the operator."""

    def dtype_in(self, case: str) -> torch.dtype:
        """Return the dtype of the tensor in a case: that of the case, unless the tensor has another precision."""
        name = str(self.tensor.dtype).removeprefix("torch.")
        pairs = {complex_of(self.own): complex_of(case), real_of(self.own): real_of(case), self.own: case}
        dtype: torch.dtype = getattr(torch, pairs.get(name, name))
        return dtype

    def leaf(self, dtype: torch.dtype) -> tuple[Tensor, Through]:
        """Return a copy as a leaf of the given dtype, and the map from the leaf to the argument of the operator.

        The argument has the strides, the layout, and the conjugate and negative bits of the tensor. Elements that share
        memory through `expand` are a single element of the leaf.
        """
        tensor = self.tensor.detach()
        if tensor.layout is not torch.strided or type(tensor) is not Tensor:
            return self._converted(tensor.clone(), dtype), unchanged
        once = layouts.unexpanded(tensor)
        values = laid_out(self._converted(once.resolve_conj().resolve_neg(), dtype), once.stride())
        return _viewed(values, tensor.shape, tensor.is_conj() and dtype.is_complex, tensor.is_neg())

    def _converted(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Return values in a dtype. Reals that become complex get imaginary parts: zeros would hide a missing conj."""
        if not self.grad or not dtype.is_complex or values.dtype.is_complex:
            return values.to(dtype)
        if values.layout is not torch.strided:
            return values.to(dtype) * (1 + 0.5j)
        imaginary = 2 * torch.rand(values.shape, dtype=torch.float64) - 1
        return torch.complex(values.to(torch.float64), imaginary.to(values.device)).to(dtype)
