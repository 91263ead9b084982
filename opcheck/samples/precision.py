"""Structures and maps are computed where decompositions exist: in single or double precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

COMPUTABLE = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def computable(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in for tensors of a dtype: single precision for half, double for whole numbers."""
    if dtype in COMPUTABLE:
        return dtype
    if dtype.is_complex:
        return torch.complex64
    return torch.float32 if dtype.is_floating_point else torch.float64


def precisely(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Let a map of tensors work for every dtype: the result has that of the argument. The shape must stay as well."""

    @wraps(function)
    def mapped(x: Tensor) -> Tensor:
        result = function(x.to(computable(x.dtype)))
        if result.shape != x.shape:
            raise ValueError(f"{function.__name__} changes the shape {list(x.shape)} to {list(result.shape)}")
        return result.to(x.dtype)

    return mapped
