"""Cotangents and tangents: reproducible random directions, as real coordinates and as tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import real_size, tensors_of

Side = Literal["inputs", "outputs", "nearby"]

_untyped: Any = torch._C._functions  # as in torch's gradcheck: no public function passes on an undefined cotangent


def probe(size: int, number: int = 0) -> Tensor:
    """Return a random direction of shape (size,) with coordinates in [-1, 1). It depends on the arguments only."""
    return _kept(size, number).clone()


FIRST: dict[Side, int] = {"inputs": 100, "outputs": 200, "nearby": 400}
"""The number of the first random direction for each side."""
FEW = 512
"""The size up to which the directions of all samples are cached; of larger ones, only those of one sample."""


def _numbers(size: int, number: int, away_from_zero: bool) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(1000 * size + number)
    numbers = torch.rand(size, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
    return (numbers + torch.where(numbers < 0, -1.0, 1.0)) / 2 if away_from_zero else numbers


_few, _many = lru_cache(maxsize=1024)(_numbers), lru_cache(maxsize=4)(_numbers)


def _kept(size: int, number: int, away_from_zero: bool = False) -> Tensor:
    return (_few if size <= FEW else _many)(size, number, away_from_zero)


def vectors_like(tensors: Sequence[Tensor], number: int = 0) -> tuple[Tensor, ...]:
    """Return a random direction as tensors of the given shapes and dtypes, in contiguous memory. See `probe`."""
    plain = [torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device) for tensor in tensors]
    return tensors_of(probe(sum(map(real_size, plain)), number), plain)


def directions(size: int, count: int | None = None, side: Side = "inputs") -> Tensor:
    """Return the unit vectors, of shape (size, size), or `count` random directions, of shape (count, size).

    Coordinates of random directions are in [-1, -0.5] or [0.5, 1], so that each entry has an effect. The directions of
    inputs, of outputs, and to nearby points are independent of each other, even if the sizes are equal.
    """
    if count is None:
        return torch.eye(size, dtype=torch.float64, device="cpu")
    return torch.stack([_kept(size, FIRST[side] + number, away_from_zero=True) for number in range(count)])


def without(direction: Tensor, missing: Collection[int], sizes: Iterable[int]) -> Tensor:
    """Return a direction with zeros in place of the tensors whose indices are in `missing`.

    sizes: the real sizes of all tensors.
    """
    pieces = torch.split(direction, [*sizes])
    return torch.cat([piece * 0 if index in missing else piece for index, piece in enumerate(pieces)])


def undefined(output: Tensor) -> Tensor:
    """Return an output whose backward pass receives an undefined cotangent."""
    marked: Tensor = _untyped.UndefinedGrad()(output) if output.requires_grad else output
    return marked


def subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the subsets of `count` tensors to treat alike, as indices: all of them, each one, all but one, and halves.

    The halves are those where a bit of the index is 0, and those where it is 1: of any two tensors, one is among them
    without the other. Fewer than four tensors have no other subsets than those of one, and of all but one.
    """
    every = tuple(range(count))
    yield every
    if count > 1:
        yield from ((index,) for index in every)
    if count > 2:
        yield from (tuple(k for k in every if k != index) for index in every)
    if count > 3:
        for bit in range((count - 1).bit_length()):
            yield from (tuple(k for k in every if k >> bit & 1 == half) for half in (0, 1))
