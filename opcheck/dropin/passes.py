"""Directions of backward passes and of calls in forward mode, and steps of differences, as tensors.

They depend on nothing but shapes and dtypes. Those for small tensors are kept for the next call.
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
"""Up to how many coordinates directions are kept."""

Kinds = tuple[tuple[torch.Size, torch.dtype, torch.device], ...]
"""The shapes, dtypes and devices of some tensors."""
Way = tuple[Collection[int], Collection[int], Collection[int]]
"""The numbers of the tensors whose random vectors are zeroed, of those that take part, and of those of them that have
no vector."""
T = TypeVar("T")


class Pass(NamedTuple):
    """A backward pass, or a call in forward mode."""

    vectors: Tensors
    """A cotangent for each output, or a tangent for each leaf. Whoever uses them makes copies."""
    those: Collection[int]
    """The numbers of the tensors that take part."""
    undefined: Collection[int] = ()
    """Those of them that have no cotangent or tangent. It is zero in the vectors."""


class Passes(NamedTuple):
    """Some passes, and their vectors in real coordinates, as the rows of a matrix."""

    directions: Tensor
    each: tuple[Pass, ...]


def kinds_of(tensors: Sequence[Tensor]) -> Kinds:
    """Return the kinds of some tensors."""
    return tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors)


def sizes_of(kinds: Kinds) -> list[int]:
    """Return the numbers of real coordinates."""
    return [shape.numel() * (2 if dtype.is_complex else 1) for shape, dtype, _ in kinds]


def _kept(function: Callable[..., T]) -> Callable[..., T]:
    """Keep the results of a function of kinds and other things, if they are small."""
    cached = lru_cache(maxsize=256)(function)

    @wraps(function)
    def chosen(kinds: Kinds, *more: object) -> T:
        return (cached if sum(sizes_of(kinds)) <= SMALL else function)(kinds, *more)

    return chosen


@_kept
def backward(outputs: Kinds, looped: bool, undefined: bool) -> Passes:
    """Return backward passes for outputs of some kinds.

    In order: if `looped`, one for each coordinate of an output; a random cotangent, twice; zeros; each of several
    outputs alone. If `undefined`, also those in which all, each one, and all but one cotangent are undefined.
    """
    every = range(len(outputs))
    ways: list[Way] = [([], every, ()), ([], every, ()), (every, every, ())]
    if len(outputs) > 1 and not looped:
        ways += [([k for k in every if k != index], [index], ()) for index in every]
    if undefined:
        ways += [(own, every, own) for own in subsets(len(outputs))]
    return _passes(ways, outputs, looped)


@_kept
def forward(leaves: Kinds, looped: bool, undefined: bool) -> Passes:
    """Return calls in forward mode for leaves of some kinds: of each coordinate if looped, and a random one.

    If `undefined`, those in which each of the leaves has no tangent.
    """
    every = range(len(leaves))
    ways: list[Way] = [([], every, ())]
    if undefined:
        ways += [([index], every, [index]) for index in every]
    return _passes(ways, leaves, looped)


@_kept
def units(kinds: Kinds) -> tuple[Tensor, Tensors]:
    """Return all unit vectors, as a matrix and as batches of tensors. Users make copies of these.

    There are at least two: a random one follows where there is only one coordinate.
    """
    size = sum(sizes_of(kinds))
    directions = torch.eye(size, dtype=torch.float64)
    if size == 1:
        directions = torch.cat([directions, probe(size).unsqueeze(0)])
    return directions, tensors_of(directions, _plain(kinds))


@_kept
def steps(leaves: Kinds, eps: float) -> tuple[Tensor, Tensors]:
    """Return steps up and down along each coordinate, and a random one, as batches; its weights come first."""
    size = sum(sizes_of(leaves))
    along, weights = torch.eye(size, dtype=torch.float64), probe(size, 2)
    return weights, tensors_of(torch.cat([along, -along, weights.unsqueeze(0)]).mul_(eps), _plain(leaves))


def _plain(kinds: Kinds) -> Tensors:
    return tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in kinds)


def _passes(ways: Sequence[Way], kinds: Kinds, looped: bool) -> Passes:
    """Return passes by some ways. If looped, there are those for each coordinate of a tensor alone before them."""
    sizes = sizes_of(kinds)
    random = probe(sum(sizes))
    directions = [without(random, zeroed, sizes) for zeroed, _, _ in ways]
    takes_part = [(those, missing) for _, those, missing in ways]
    if looped:
        directions = [*torch.eye(sum(sizes), dtype=torch.float64), *directions]
        takes_part = [*(([index], ()) for index, size in enumerate(sizes) for _ in range(size)), *takes_part]
    matrix = torch.stack(directions)
    rows = zip(*(batch.unbind() for batch in tensors_of(matrix, _plain(kinds))), strict=True)
    return Passes(matrix, tuple(Pass(row, *own) for row, own in zip(rows, takes_part, strict=True)))
