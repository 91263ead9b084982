"""Directions in which derivatives are looked at, as rows of matrices: units for whole Jacobians, random ones else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Side = Literal["inputs", "outputs"]

KEPT = 128
"""Up to how many coordinates a plan is kept for the next Jacobian of the same size: 3 MB at most."""


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
    """Rows of a batch: moves away from a point of shape (K, N), tangents there (K, N), cotangents there (K, M)."""

    moves: Tensor
    tangents: Tensor
    cotangents: Tensor

    def __getitem__(self, some: slice) -> Rows:
        return Rows(self.moves[some], self.tangents[some], self.cotangents[some])


@dataclass(frozen=True)
class Plan:
    """What a Jacobian of shape (M, N) is made of, whole or projected."""

    every: Rows
    """The stencil and then the rows that stay at the point, with tangents and cotangents, or zeros beyond the last."""
    stencil: Rows
    """Moves of central differences: h u for each direction u, then -h u, then none at all."""
    still: Rows
    """The rows that stay at the point. The stencil shares the first of them."""
    pushed: int
    """How many of them have a tangent."""
    pulled: int
    """How many of them have a cotangent."""


def plan(size: tuple[int, int], step: float, count: int | None = None) -> Plan:
    """Return the rows for a Jacobian of size (M, N): whole, or projected on `count` directions on each side."""
    return (_kept if max(size) <= KEPT else _plan)(size, step, count)


def _plan(size: tuple[int, int], step: float, count: int | None) -> Plan:
    above = directions(size[1], count) * step
    # The units tell what the Jacobian makes of the probe; of projections it has to be asked.
    given = directions if count is None else with_probe
    tangents, cotangents = given(size[1], count, "inputs"), given(size[0], count, "outputs")
    moved, still = 2 * len(above), max(len(tangents), len(cotangents), 1)

    def padded(matrix: Tensor) -> Tensor:
        return functional.pad(matrix, (0, 0, moved, still - len(matrix)))

    moves = functional.pad(torch.cat([above, -above]), (0, 0, 0, still))
    every = Rows(moves, padded(tangents), padded(cotangents))
    return Plan(every, every[: moved + 1], every[moved:], len(tangents), len(cotangents))


_kept = lru_cache(maxsize=64)(_plan)
