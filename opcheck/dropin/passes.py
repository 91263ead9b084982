"""Directions of backward passes and of calls in forward mode, and steps of differences, as tensors.

They depend only on shapes, dtypes and devices. Those for small tensors are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, wraps
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import tensors_of
from opcheck.derivatives.cotangents import probe, subsets, without

SMALL = 64
"""The maximum number of coordinates for which directions are cached."""

Kinds = tuple[tuple[torch.Size, torch.dtype, torch.device], ...]
"""The shapes, dtypes and devices of some tensors."""
Way = tuple[Collection[int], Collection[int], Collection[int]]
"""How to make a pass, by the indices of tensors: those whose random vectors are zeroed, those that take part, and those
that take part without a vector."""
T = TypeVar("T")


class Pass(NamedTuple):
    """A backward pass, or a call in forward mode."""

    vectors: Tensors
    """A cotangent for each output, or a tangent for each leaf. They may be cached: copy them before use."""
    those: Collection[int]
    """The indices of the tensors that take part."""
    undefined: Collection[int] = ()
    """The indices of those whose cotangent or tangent is undefined. In `vectors` it is zero."""


class Passes(NamedTuple):
    """Passes, and their vectors in real coordinates, as the rows of `directions`."""

    directions: Tensor
    each: tuple[Pass, ...]


def kinds_of(tensors: Sequence[Tensor]) -> Kinds:
    """Return the shapes, dtypes and devices of tensors."""
    return tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors)


def sizes_of(kinds: Kinds) -> list[int]:
    """Return the number of real coordinates of each tensor."""
    return [shape.numel() * (2 if dtype.is_complex else 1) for shape, dtype, _ in kinds]


def _kept(function: Callable[..., T]) -> Callable[..., T]:
    """Cache the results of a function for kinds with few coordinates. The kinds are its first argument."""
    cached = lru_cache(maxsize=256)(function)

    @wraps(function)
    def chosen(kinds: Kinds, *more: object) -> T:
        return (cached if sum(sizes_of(kinds)) <= SMALL else function)(kinds, *more)

    return chosen


@_kept
def backward(outputs: Kinds, looped: bool, undefined: bool) -> Passes:
    """Return backward passes for outputs: if `looped`, for each coordinate, then two for random cotangents and others.

    undefined: whether passes follow in which all cotangents, each one alone, and all but one are undefined.
    """
    every = range(len(outputs))
    ways: list[Way] = [([], every, ()), ([], every, ()), (every, every, ())]  # the same twice, and zeros
    if len(outputs) > 1 and not looped:  # each output alone
        ways += [([k for k in every if k != index], [index], ()) for index in every]
    if undefined:
        ways += [(own, every, own) for own in subsets(len(outputs))]
    return _passes(ways, outputs, looped)


@_kept
def forward(leaves: Kinds, looped: bool, undefined: bool) -> Passes:
    """Return calls in forward mode for leaves: if `looped`, for each coordinate, then one for random tangents.

    undefined: whether calls follow in which one leaf has no tangent.
    """
    every = range(len(leaves))
    ways: list[Way] = [([], every, ())]
    if undefined:
        ways += [([index], every, [index]) for index in every]
    return _passes(ways, leaves, looped)


@_kept
def units(kinds: Kinds) -> tuple[Tensor, Tensors]:
    """Return all unit vectors, as a matrix and as batches of tensors. They may be cached: copy them before use.

    If there is only one coordinate, a random vector follows, so that there are two rows at least.
    """
    size = sum(sizes_of(kinds))
    directions = torch.eye(size, dtype=torch.float64, device="cpu")
    if size == 1:
        directions = torch.cat([directions, probe(size).unsqueeze(0)])
    return directions, tensors_of(directions, plain(kinds))


@_kept
def steps(leaves: Kinds, eps: float) -> tuple[Tensor, Tensors]:
    """Return random weights, and batches of steps: along each coordinate, against it, and along the weights."""
    size = sum(sizes_of(leaves))
    along, weights = torch.eye(size, dtype=torch.float64, device="cpu"), probe(size, 2)
    return weights, tensors_of(torch.cat([along, -along, weights.unsqueeze(0)]).mul_(eps), plain(leaves))


def plain(kinds: Kinds, make: Callable[..., Tensor] = torch.empty) -> Tensors:
    """Return new tensors of some kinds, in contiguous memory."""
    return tuple(make(shape, dtype=dtype, device=device) for shape, dtype, device in kinds)


def _passes(ways: Sequence[Way], kinds: Kinds, looped: bool) -> Passes:
    """Return the passes for some ways. If `looped`, passes for single coordinates of single tensors come first."""
    sizes = sizes_of(kinds)
    random = probe(sum(sizes))
    directions = [without(random, zeroed, sizes) for zeroed, _, _ in ways]
    takes_part = [(those, missing) for _, those, missing in ways]
    if looped:
        directions = [*torch.eye(sum(sizes), dtype=torch.float64, device="cpu"), *directions]
        takes_part = [*(([index], ()) for index, size in enumerate(sizes) for _ in range(size)), *takes_part]
    matrix = torch.stack(directions)
    rows = zip(*(batch.unbind() for batch in tensors_of(matrix, plain(kinds))), strict=True)
    return Passes(matrix, tuple(Pass(row, *own) for row, own in zip(rows, takes_part, strict=True)))
