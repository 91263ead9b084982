"""Layouts of tensors: conversion of dense tensors, with the number of specified elements that a recipe gives."""

from __future__ import annotations

import torch

from opcheck.spec.recipe import SPARSE_LAYOUTS
from opcheck.spec.recipe import Tensor as Recipe

BLOCKED = ("sparse_bsr", "sparse_bsc")


def in_layout(dense: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Return a dense tensor in the layout of a recipe.

    torch's global generator chooses the specified elements. With explicit values or a structure, they are the non-zero
    elements. Raises ValueError if the shape does not suit the layout.
    """
    if recipe.layout in SPARSE_LAYOUTS:
        return _sparse(dense, recipe)
    if recipe.layout == "mkldnn":
        return dense.to_mkldnn()
    return dense


def parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
    """Return the strided tensors that a tensor consists of: itself, or indices and values. None: another layout."""
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return None


def jagged_offsets(batch: int, longest: int) -> torch.Tensor:
    """Return the offsets of `batch` rows with random lengths from 1 to `longest`, at least one of them `longest`."""
    lengths = torch.randint(min(1, longest), longest + 1, (batch,))
    if batch:
        lengths[torch.randint(batch, ())] = longest
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])


def jagged_values(dense: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return the elements of a padded tensor that belong to rows with the given offsets, concatenated."""
    return dense[torch.arange(dense.shape[1]) < offsets.diff().unsqueeze(-1)]


def jagged(values: torch.Tensor, offsets: torch.Tensor, longest: int) -> torch.Tensor:
    """Return the jagged tensor of concatenated rows."""
    # Without max_seqlen, torch pads to the sum of all lengths.
    made: torch.Tensor = torch.nested.nested_tensor_from_jagged(values, offsets, max_seqlen=longest)
    return made


def _sparse(dense: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    dense_dim = recipe.dense_dim or 0
    sparse_rank = dense.dim() - dense_dim
    if recipe.layout != "sparse_coo" and sparse_rank < 2:
        raise ValueError(f"{recipe.layout} needs 2 sparse dimensions, not {sparse_rank}")
    block = recipe.blocksize or (1, 1) if recipe.layout in BLOCKED else None
    if recipe.values is None and recipe.structure is None:
        mask = _specified(dense.shape[:sparse_rank], recipe, block or (1, 1))
        # The conversion would drop a specified zero.
        nonzero = torch.where(dense == 0, torch.ones_like(dense), dense)
        dense = torch.where(mask.reshape((*mask.shape, *[1] * dense_dim)), nonzero, torch.zeros_like(dense))
    if recipe.layout == "sparse_coo":
        return dense.to_sparse(sparse_rank).coalesce()
    layout: torch.layout = getattr(torch, recipe.layout)
    return dense.to_sparse(layout=layout, blocksize=block, dense_dim=dense_dim or None)


def _specified(shape: torch.Size, recipe: Recipe, block: tuple[int, int]) -> torch.Tensor:
    """Return a mask over the sparse dimensions. Compressed layouts need equally many elements per matrix of a batch."""
    if recipe.layout == "sparse_coo":
        return _mask(shape.numel(), recipe.nnz).reshape(shape)
    rows, columns = shape[-2] // block[0], shape[-1] // block[1]
    if (rows * block[0], columns * block[1]) != shape[-2:]:
        raise ValueError(f"blocks of {list(block)} do not tile a matrix of shape {list(shape[-2:])}")
    blocks = _mask(rows * columns, recipe.nnz).reshape(rows, columns)
    matrix = blocks.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return matrix.expand(shape)


def _mask(places: int, nnz: int | None) -> torch.Tensor:
    wanted = (places + 1) // 2 if nnz is None else min(nnz, places)
    mask = torch.zeros(places, dtype=torch.bool)
    mask[torch.randperm(places)[:wanted]] = True
    return mask
