"""Runs structures and maps in single or double precision, in which decompositions exist."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

COMPUTABLE = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def computable(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: single precision for half precision, double for integers."""
    if dtype in COMPUTABLE:
        return dtype
    if dtype.is_complex:
        return torch.complex64
    return torch.float32 if dtype.is_floating_point else torch.float64


def precisely(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Make a map of tensors work for every dtype. The result has the dtype of the argument.

    The map raises ValueError if it changes the shape.
    """

    @wraps(function)
    def mapped(x: Tensor) -> Tensor:
        result = function(x.to(computable(x.dtype)))
        if result.shape != x.shape:
            raise ValueError(f"{function.__name__} changes the shape {list(x.shape)} to {list(result.shape)}")
        return result.to(x.dtype)

    return mapped
