"""From a dense tensor to one of another layout, with as many specified elements as a recipe asks for."""

from __future__ import annotations

import torch

from opcheck.spec.values import SPARSE_LAYOUTS
from opcheck.spec.values import Tensor as Recipe


def in_layout(dense: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Return a dense tensor in the layout of a recipe. Which elements are specified is random, from the global generator."""
    if recipe.layout in SPARSE_LAYOUTS:
        return _sparse(dense, recipe)
    if recipe.layout == "mkldnn":
        return dense.to_mkldnn()
    return dense


def jagged_offsets(batch: int, longest: int) -> torch.Tensor:
    """Return the offsets of `batch` rows with different lengths from 1 to `longest`, the longest among them."""
    lengths = torch.randint(1, longest + 1, (batch,))
    if batch:
        lengths[torch.randint(batch, ())] = longest
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])


def _sparse(dense: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    dense_dim = recipe.dense_dim or 0
    sparse_rank = dense.dim() - dense_dim
    block = (recipe.blocksize or (1, 1)) if recipe.layout in ("sparse_bsr", "sparse_bsc") else (1, 1)
    mask = _specified(dense.shape[:sparse_rank], recipe, block)
    # A specified zero would vanish in the conversion.
    kept = torch.where(dense == 0, torch.ones_like(dense), dense) * mask.reshape(*mask.shape, *[1] * dense_dim)
    if recipe.layout == "sparse_coo":
        return kept.to_sparse(sparse_rank).coalesce()
    layout: torch.layout = getattr(torch, recipe.layout)
    blocksize = block if recipe.layout in ("sparse_bsr", "sparse_bsc") else None
    return kept.to_sparse(layout=layout, blocksize=blocksize, dense_dim=dense_dim or None)


def _specified(shape: torch.Size, recipe: Recipe, block: tuple[int, int]) -> torch.Tensor:
    """Return a mask over the sparse dimensions. Compressed layouts need as many elements in each matrix of a batch."""
    if recipe.layout == "sparse_coo":
        return _mask(shape.numel(), recipe.nnz).reshape(shape)
    rows, columns = shape[-2] // block[0], shape[-1] // block[1]
    blocks = _mask(rows * columns, recipe.nnz).reshape(rows, columns)
    matrix = blocks.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return matrix.expand(shape)


def _mask(places: int, nnz: int | None) -> torch.Tensor:
    wanted = (places + 1) // 2 if nnz is None else min(nnz, places)
    mask = torch.zeros(places, dtype=torch.bool)
    mask[torch.randperm(places)[:wanted]] = True
    return mask
