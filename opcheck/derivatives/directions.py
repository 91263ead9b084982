"""Directions in which derivatives are looked at, as rows of matrices: units for whole Jacobians, random ones else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Side = Literal["inputs", "outputs"]

SMALL = 64
"""Up to how many coordinates rows are kept for the next Jacobian of the same size."""


@lru_cache(maxsize=256)
def probe(size: int, number: int = 0) -> Tensor:
    """Return a random direction of shape (size,) with coordinates in [-1, 1): the same one whenever it is asked for."""
    generator = torch.Generator().manual_seed(1000 * size + number)
    return torch.rand(size, generator=generator, dtype=torch.float64) * 2 - 1


@lru_cache(maxsize=64)
def directions(size: int, count: int | None = None, side: Side = "inputs") -> Tensor:
    """Return the unit vectors, of shape (size, size), or `count` random directions, of shape (count, size).

    Those of inputs and outputs have nothing to do with each other, also where there are as many of both.
    """
    if count is None:
        return torch.eye(size, dtype=torch.float64)
    first = 100 if side == "inputs" else 200
    return torch.stack([probe(size, first + number) for number in range(count)])


@lru_cache(maxsize=64)
def with_probe(size: int, count: int | None = None, side: Side = "inputs") -> Tensor:
    """Return the directions and, in the last row, the probe."""
    return torch.cat([directions(size, count, side), probe(size).unsqueeze(0)])


@dataclass(frozen=True)
class Rows:
    """The rows of the one batch that a Jacobian of shape (M, N) is made of: moves, tangents, cotangents.

    The first are h u for each direction u, then come -h u; the others stay at the point, the first of them with a
    tangent, a cotangent, or both. What a row does not need is zero.
    """

    moves: Tensor
    """Of shape (K, N)."""
    tangents: Tensor
    """Of shape (K, N)."""
    cotangents: Tensor
    """Of shape (K, M)."""
    count: int
    """How many directions differences are taken along."""
    pushed: int
    """How many rows have a tangent."""
    pulled: int
    """How many rows have a cotangent."""

    @property
    def stencil(self) -> Tensor:
        """The moves of central differences: h u for each direction, then -h u, then none at all."""
        return self.moves[: 2 * self.count + 1]


def rows(size: tuple[int, int], step: float, count: int | None = None) -> Rows:
    """Return the rows for a Jacobian of some size (M, N): whole, or projected on `count` directions on each side."""
    return (_kept if max(size) <= SMALL else _rows)(size, step, count)


def _rows(size: tuple[int, int], step: float, count: int | None) -> Rows:
    above = directions(size[1], count) * step
    # The units tell what the Jacobian makes of the probe; of projections it has to be asked.
    given = directions if count is None else with_probe
    tangents, cotangents = given(size[1], count, "inputs"), given(size[0], count, "outputs")
    still = max(len(tangents), len(cotangents), 1)

    def padded(matrix: Tensor) -> Tensor:
        return functional.pad(matrix, (0, 0, 2 * len(above), still - len(matrix)))

    moves = functional.pad(torch.cat([above, -above]), (0, 0, 0, still))
    return Rows(moves, padded(tangents), padded(cotangents), len(above), len(tangents), len(cotangents))


_kept = lru_cache(maxsize=64)(_rows)
