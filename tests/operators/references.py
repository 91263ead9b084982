"""References that are themselves at fault."""

from __future__ import annotations

import torch


def raises(x):
    raise ZeroDivisionError("no such luck")


def returns_none(x):
    return None


def returns_text(x):
    return "0.5"


def returns_nothing(x):
    return ()


def sin_of_tensors(x):
    return torch.sin(x)


def sin_beside_zeros(x):
    return torch.zeros(x.shape, dtype=x.dtype) + x.sin()
