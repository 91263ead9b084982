"""The numbers of a tensor: random within bounds, or explicit."""

from __future__ import annotations

from math import ceil
from typing import Any

import torch
from torch.testing import make_tensor

from opcheck.spec.values import Tensor

MARGIN = 0.1
"""Distance that values keep from excluded points, far above the step of any finite difference."""

SPREAD = 2.0
"""Default bounds are -SPREAD and SPREAD: large enough for every regime, small enough for exp and tan."""


def draw(recipe: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a CPU tensor of a shape and dtype with the values that a recipe asks for.

    Random numbers come from torch's global generator, which the caller seeds.
    """
    if recipe.values is not None:
        return torch.tensor(_listed(recipe.values), dtype=dtype)
    low, high = _bounds(recipe, dtype)
    values: torch.Tensor = make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)
    points = recipe.exclude if isinstance(recipe.exclude, tuple) else (recipe.exclude,)
    for point in points:
        if point is not None and (dtype.is_floating_point or dtype.is_complex):
            values = _away_from(values, point)
    return values


def _listed(values: Any) -> Any:
    return [_listed(item) for item in values] if isinstance(values, tuple) else values


def _bounds(recipe: Tensor, dtype: torch.dtype) -> tuple[float | None, float | None]:
    if dtype is torch.bool:
        return None, None
    if dtype.is_floating_point or dtype.is_complex:
        low, high = recipe.low, recipe.high
        if low is None:
            low = -SPREAD if high is None or high > -SPREAD else high - 2 * SPREAD
        return low, low + 2 * SPREAD if high is None and low >= SPREAD / 2 else SPREAD if high is None else high
    # Whole numbers within the bounds; an interval between two of them gives the next one above.
    least = 0 if dtype is torch.uint8 else -9
    low = max(least, ceil(recipe.low)) if recipe.low is not None else least
    high = ceil(recipe.high) if recipe.high is not None else 10
    return low, max(high, low + 1)


def _away_from(values: torch.Tensor, point: float) -> torch.Tensor:
    offset = values - point
    distance = offset.abs()
    direction = torch.where(distance == 0, torch.ones_like(offset), offset / distance.clamp_min(1e-12))
    moved = (point + direction * (distance + MARGIN)).to(values.dtype)
    return torch.where(distance < MARGIN, moved, values)
