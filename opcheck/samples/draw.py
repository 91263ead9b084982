"""The values of a tensor: random within bounds, or explicit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import ceil

import torch
from torch.testing import make_tensor

from opcheck.spec.recipe import MARGIN, Tensor, points_of

SPREAD = 2.0
"""The default bounds are -SPREAD and SPREAD: large enough for every regime, small enough for exp and tan."""

WHOLE = 10
"""The default bounds of integers are -WHOLE (included) and WHOLE (excluded)."""

GAP = 0.1
"""The minimum distance between `distinct` values, as a fraction of their mean distance."""

EXACT = 2**53
"""Integers up to this are exact in double precision."""

TRIES = 1000

FULL = 4
"""At most FULL / eps values can be distinct, with eps as in `torch.finfo`: half of the values between -2^k and 2^k have
a magnitude above 2^(k-1), where a dtype has only 2 / eps numbers."""


def draw(recipe: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a CPU tensor of the given shape and dtype, with values as in the recipe.

    Random numbers come from torch's global generator, which the caller seeds. Values too close to an excluded point
    (for integers: equal to it), or to each other if they must be distinct, are redrawn. Raises ValueError if no values
    that satisfy the recipe are found.
    """
    if recipe.values is not None:
        # Integers wrap around if the dtype is too small.
        through = dtype if _is_number(dtype) or dtype is torch.bool else torch.int64
        return torch.tensor(recipe.values, dtype=through).to(dtype)
    if dtype is torch.bool:
        return make_tensor(shape, dtype=dtype, device="cpu")
    low, high = _bounds(recipe, dtype)
    points, distinct = _points(recipe, low, high, dtype), recipe.structure == "distinct"
    if distinct and not _is_number(dtype):
        return _different(shape, dtype, int(low), int(high), points)

    if distinct and torch.Size(shape).numel() * torch.finfo(dtype).eps > FULL:
        raise ValueError(f"{torch.Size(shape).numel():,} numbers of {dtype} cannot be distinct: it has too few")

    def fresh() -> torch.Tensor:
        if recipe.normal:
            return _normal(*recipe.normal, shape, dtype)
        return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)

    values = fresh()
    gap = GAP * (high - low) / max(values.numel(), 1)
    for _ in range(TRIES):
        wrong = [_near(values, point) for point in points] + ([_crowded(values, gap)] if distinct else [])
        if not any(mask.any() for mask in wrong):
            if recipe.contains:
                values.view(-1)[: len(recipe.contains)] = torch.tensor(recipe.contains, dtype=torch.float64).to(dtype)
            return values
        values = torch.where(reduce(torch.logical_or, wrong), fresh(), values)
    raise ValueError(f"no values between {low} and {high} keep a distance of {MARGIN} from {points}")


def _normal(mean: float, std: float, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return normal values, drawn in double precision. For complex dtypes, std^2 is the mean of |z - mean|^2."""
    values = mean + std * torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    if not _is_number(dtype):
        limits = torch.iinfo(dtype)
        values = values.round().clamp(max(limits.min, -EXACT), min(limits.max, EXACT))
    return values.to(dtype)


def _is_number(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _bounds(recipe: Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """Return the lower and the upper bound. A missing one is the default, moved if it is too close to the given one."""
    edge = SPREAD if _is_number(dtype) else WHOLE
    low, high = recipe.low, recipe.high
    if recipe.normal:
        mean, std = recipe.normal
        low, high = mean - 2 * std, mean + 2 * std
    if low is None and recipe.dtype == "integer":
        low = 0.0 if high is None or high > 0 else high - edge
    if low is None and recipe.dtype is not None and not _is_number(dtype) and high is not None and high > 0:
        low = 0.0  # integers are often indices and sizes
    if low is None:
        low = -edge if high is None or high > -edge / 2 else high - 2 * edge
    if high is None:
        high = edge if low < edge / 2 else low + 2 * edge
    if _is_number(dtype):
        return low, high
    # Clip to the range of the dtype. If there is no integer between the bounds, take the next one above.
    limits = torch.iinfo(dtype)
    first = min(max(ceil(low), limits.min), limits.max)
    return first, min(max(ceil(high), first + 1), limits.max + 1)


def _points(recipe: Tensor, low: float, high: float, dtype: torch.dtype) -> tuple[float, ...]:
    """Return the points to avoid; no points if they exclude all integers between the bounds."""
    points = points_of(recipe.exclude)
    few = not _is_number(dtype) and high - low <= len(points)
    return () if few and set(range(int(low), int(high))) <= set(points) else points


def _near(values: torch.Tensor, point: float) -> torch.Tensor:
    """Return a mask of the values that are too close to a point."""
    away = (values.to(torch.complex128 if values.is_complex() else torch.float64) - point).abs()
    return away < MARGIN if _is_number(values.dtype) else away == 0


def _crowded(values: torch.Tensor, gap: float) -> torch.Tensor:
    """Return a mask of the values (for complex numbers: real parts) that are too close to the next smaller one."""
    real = (values.real if values.is_complex() else values).to(torch.float64).flatten()
    ordered, order = real.sort()
    crowded = torch.zeros(real.shape, dtype=torch.bool)
    crowded[order[1:]] = ordered.diff() < gap
    return crowded.reshape(values.shape)


def _different(
    shape: tuple[int, ...], dtype: torch.dtype, low: int, high: int, points: Sequence[float]
) -> torch.Tensor:
    """Return distinct integers. Some exceed the upper bound if there are too few below it."""
    count = torch.Size(shape).numel()
    choices = [number for number in range(low, min(high, low + 10 * count)) if number not in points]
    choices += range(high, high + count - len(choices))
    chosen = torch.randperm(len(choices))[:count]
    return torch.tensor(choices, dtype=torch.int64)[chosen].reshape(shape).to(dtype)
