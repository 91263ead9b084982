"""Memory of tensors: layouts, memory formats, lazy views, and copies that preserve them.

The functions on strided tensors are differentiable and work under vmap, except `own`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.spec.recipe import BLOCKED
from opcheck.spec.recipe import Tensor as Recipe
from opcheck.strides import MEMORIES, with_gaps


def components(tensor: Tensor) -> tuple[Tensor, ...] | None:
    """Return the strided tensors that make up a tensor: itself, or indices and values. None for any other layout."""
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return None


def equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two strided tensors have the same shape and elements. `torch.equal` does not support complex32."""
    if torch.complex32 in (one.dtype, other.dtype):
        return one.shape == other.shape and bool((one == other).all())
    return torch.equal(one, other)


def share_memory(one: Tensor, other: Tensor) -> bool:
    """Return whether two strided tensors have elements in the same storage. False for other layouts."""
    if not one.layout is other.layout is torch.strided or not one.numel() or not other.numel():
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def in_memory(dense: Tensor, memory: str) -> Tensor:
    """Return a tensor with the same values in a memory format; contiguous for `expanded`, see `leaf_of`."""
    way = MEMORIES.get(memory)
    return way.make(dense) if way is not None and way.keeps else dense.contiguous()


def contiguous(x: Tensor) -> Tensor:
    """Return a contiguous copy in memory of its own. Tensors of other layouts than strided are returned unchanged."""
    if x.layout is not torch.strided:
        return x
    return x.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def conjugated_view(x: Tensor) -> Tensor:
    """Return the conjugate as a lazily conjugated view. Real tensors are returned unchanged."""
    return x.conj() if x.is_complex() else x


def negated_view(x: Tensor) -> Tensor:
    """Return the negative as a lazily negated view. Boolean tensors are returned unchanged."""
    if x.dtype is torch.bool:
        return x
    try:
        return torch._neg_view(x)
    except RuntimeError:  # vmap does not support lazy negation
        return -x


def own(x: Tensor) -> Tensor:
    """Return a copy with the same strides, so that a write to it changes no other tensor.

    It is a leaf that requires grad if `x` does, and a lazy view if `x` is. Expanded tensors, to which nobody can write,
    are returned as they are.
    """
    if x.layout is torch.strided and 0 in x.stride():
        return x
    bare = x.detach()
    bare = torch._neg_view(bare) if x.is_neg() else bare
    copy = copied(bare.conj()).conj() if x.is_conj() else copied(bare)
    copy = torch._neg_view(copy) if x.is_neg() else copy
    return copy.requires_grad_() if x.requires_grad else copy  # torch.func transforms reject requires_grad_


def copied(x: Tensor) -> Tensor:
    """Return a copy that is not a view, since autograd tracks in-place changes of the base of a view.

    It has the same strides, unless the tensor is expanded or lazily conjugated.
    """
    clone = x.clone()  # not copy_(), whose backward pass does not accept sparse gradients
    if x.layout is not torch.strided or 0 in x.stride() or x.is_conj() or clone.stride() == x.stride():
        return clone
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)


def unexpanded(x: Tensor) -> Tensor:
    """Return a view with size 1 in each expanded dim (stride 0), so that no element occurs twice."""
    return x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.stride())]


def writable(x: Tensor) -> Tensor:
    """Return a copy that an in-place operator may write to. It is non-contiguous if `x` is neither dense nor expanded.

    Lazy conjugation and negation are resolved, since derivatives of a write to a lazy view cannot be batched.
    """
    if x.layout is not torch.strided:
        return x.clone()
    copy = x.resolve_conj().resolve_neg().clone()
    gaps = copy.stride() != x.stride() and 0 not in x.stride()
    return with_gaps(copy) if gaps else copy


def in_layout(dense: Tensor, recipe: Recipe) -> Tensor:
    """Return a dense tensor converted to the layout of a recipe, sparse or mkldnn.

    The specified elements of a sparse layout are chosen by torch's global generator; if the recipe has explicit values
    or a structure, they are the non-zero elements.
    """
    if recipe.layout == "mkldnn":
        return dense.to_mkldnn()
    dense_dim = recipe.dense_dim or 0
    sparse_rank = dense.dim() - dense_dim
    block = recipe.blocksize or (1, 1) if recipe.layout in BLOCKED else None
    if recipe.values is None and recipe.structure is None:
        mask = _specified(dense.shape[:sparse_rank], recipe, block or (1, 1))
        # The conversion would drop a specified zero.
        nonzero = torch.where(dense == 0, torch.ones_like(dense), dense)
        dense = torch.where(mask.reshape((*mask.shape, *[1] * dense_dim)), nonzero, torch.zeros_like(dense))
    if recipe.layout == "sparse_coo":
        sparse = dense.to_sparse(sparse_rank).coalesce()
        return sparse if recipe.coalesced else _uncoalesced(sparse)
    layout: torch.layout = getattr(torch, recipe.layout)
    return dense.to_sparse(layout=layout, blocksize=block, dense_dim=dense_dim or None)


def _uncoalesced(sparse: Tensor) -> Tensor:
    """Return a COO tensor with the same elements, half of which are sums of two values."""
    indices, values = sparse.indices(), sparse.values()
    twice = (values.shape[0] + 1) // 2
    part = torch.ones_like(values[:twice])
    indices = torch.cat([indices, indices[:, :twice]], 1)
    values = torch.cat([values[:twice] - part, values[twice:], part])
    return torch.sparse_coo_tensor(indices, values, sparse.shape, is_coalesced=False, check_invariants=False)


def _specified(shape: torch.Size, recipe: Recipe, block: tuple[int, int]) -> Tensor:
    """Return the mask of the specified elements, of the shape of the sparse dimensions.

    All matrices of a batch have the same mask, since compressed layouts need the same number of elements in each.
    """
    if recipe.layout == "sparse_coo":
        return _mask(shape, recipe.nnz)
    blocks = _mask(torch.Size((shape[-2] // block[0], shape[-1] // block[1])), recipe.nnz)
    return blocks.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1).expand(shape)


def _mask(shape: torch.Size, nnz: int | None) -> Tensor:
    places = shape.numel()
    mask = torch.zeros(places, dtype=torch.bool)
    mask[torch.randperm(places)[: (places + 1) // 2 if nnz is None else nnz]] = True
    return mask.reshape(shape)


def jagged_offsets(batch: int, longest: int) -> Tensor:
    """Return the offsets of `batch` rows with random lengths from 1 to `longest`, at least one of them `longest`."""
    lengths = torch.randint(min(1, longest), longest + 1, (batch,))
    if batch:
        lengths[torch.randint(batch, ())] = longest
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])


def jagged_values(dense: Tensor, offsets: Tensor) -> Tensor:
    """Return the elements of a padded tensor that belong to rows with the given offsets, concatenated."""
    return dense[torch.arange(dense.shape[1]) < offsets.diff().unsqueeze(-1)]
