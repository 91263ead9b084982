"""The numbers of a tensor: random within bounds, or explicit."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import torch
from torch.testing import make_tensor

from opcheck.spec.values import Tensor

MARGIN = 0.1
"""Distance that values keep from excluded points, far above the step of any finite difference."""

SPREAD = 2.0
"""Default bounds are -SPREAD and SPREAD: large enough for every regime, small enough for exp and tan."""

WHOLE = 10
"""Likewise for whole numbers."""

GAP = 0.1
"""Least distance of `distinct` values, in units of their mean distance."""

TRIES = 1000


def draw(recipe: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a CPU tensor of a shape and dtype with the values that a recipe asks for.

    Random numbers come from torch's global generator, which the caller seeds. Values too close to an excluded point
    (of whole numbers: on it), or to each other where they are to be distinct, are drawn anew.
    """
    if recipe.values is not None:
        # Whole numbers wrap around where the dtype is too small for them.
        through = dtype if _is_number(dtype) or dtype is torch.bool else torch.int64
        return torch.tensor(_listed(recipe.values), dtype=through).to(dtype)
    low, high = _bounds(recipe, dtype)
    distinct, points = recipe.structure == "distinct", _points(recipe, low, high, dtype)
    if distinct and low is not None and high is not None and not _is_number(dtype):
        return _different(shape, dtype, int(low), int(high), points)

    def fresh() -> torch.Tensor:
        made: torch.Tensor = make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)
        return made

    values = fresh()
    if not points and not distinct:
        return values
    for _ in range(TRIES):
        wrong = _near(values, points)
        if distinct and low is not None and high is not None:
            wrong |= _crowded(values, GAP * (high - low) / max(values.numel(), 1))
        if not wrong.any():
            return values
        values = torch.where(wrong, fresh(), values)
    raise ValueError(f"no values between {low} and {high} keep a distance of {MARGIN} from {points}")


def _is_number(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _listed(values: Any) -> Any:
    return [_listed(item) for item in values] if isinstance(values, tuple) else values


def _bounds(recipe: Tensor, dtype: torch.dtype) -> tuple[float | None, float | None]:
    """Return the bounds, (None, None) for booleans. A missing one is the default, or moves clear of the other."""
    if dtype is torch.bool:
        return None, None
    edge = SPREAD if _is_number(dtype) else WHOLE
    low, high = recipe.low, recipe.high
    if low is None:
        low = -edge if high is None or high > -edge / 2 else high - 2 * edge
    if high is None:
        high = edge if low < edge / 2 else low + 2 * edge
    if _is_number(dtype):
        return low, high
    # Whole numbers within the bounds and the dtype; an interval between two of them gives the next one above.
    limits = torch.iinfo(dtype)
    first = min(max(ceil(low), limits.min), limits.max)
    return first, min(max(ceil(high), first + 1), limits.max + 1)


def _points(recipe: Tensor, low: float | None, high: float | None, dtype: torch.dtype) -> tuple[float, ...]:
    """Return the points to stay away from: none where that would leave no whole number, and none for booleans."""
    if recipe.exclude is None or low is None or high is None:
        return ()
    points = recipe.exclude if isinstance(recipe.exclude, tuple) else (recipe.exclude,)
    few = not _is_number(dtype) and high - low <= len(points)
    return () if few and set(range(int(low), int(high))) <= set(points) else points


def _near(values: torch.Tensor, points: Sequence[float]) -> torch.Tensor:
    """Mark the values that are too close to a point."""
    near = torch.zeros(values.shape, dtype=torch.bool)
    if not points:
        return near
    if not _is_number(values.dtype):
        return torch.isin(values.to(torch.int64), torch.tensor([point for point in points if point == int(point)]))
    exact = values.to(torch.complex128 if values.is_complex() else torch.float64)
    for point in points:
        near |= (exact - point).abs() < MARGIN
    return near


def _crowded(values: torch.Tensor, gap: float) -> torch.Tensor:
    """Mark the values (of complex numbers: the real parts) that follow another one too closely."""
    real = (values.real if values.is_complex() else values).to(torch.float64).flatten()
    ordered, order = real.sort()
    crowded = torch.zeros(real.shape, dtype=torch.bool)
    crowded[order[1:]] = ordered.diff() < gap
    return crowded.reshape(values.shape)


def _different(
    shape: tuple[int, ...], dtype: torch.dtype, low: int, high: int, points: Sequence[float]
) -> torch.Tensor:
    """Return different whole numbers; past the upper bound where there are too few below it."""
    count = torch.Size(shape).numel()
    choices = [number for number in range(low, min(high, low + 10 * count)) if number not in points]
    choices += range(high, high + count - len(choices))
    chosen = torch.randperm(len(choices))[:count]
    return torch.tensor(choices, dtype=torch.int64)[chosen].reshape(shape).to(dtype)
