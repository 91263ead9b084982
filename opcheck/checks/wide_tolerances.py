"""Tells which tolerances of a spec allow more than the defaults."""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.derivatives import Numbers, default_numbers

WIDTHS = ("atol", "rtol", "nondeterminism")
"""The numbers that allow more where they are larger."""


def wider_numbers(own: Numbers | None, dtype: torch.dtype) -> dict[str, float]:
    """Return those tolerances of derivatives that are wider than the defaults for a dtype."""
    base = default_numbers(dtype)
    if own is None or base is None:
        return {}
    return {name: getattr(own, name) for name in WIDTHS if getattr(own, name) > getattr(base, name)}


def wider_values(atol: float, rtol: float, dtype: torch.dtype) -> dict[str, float]:
    """Return those tolerances of values that are wider than the defaults of assert_close, which it alone knows."""
    large = torch.tensor(4096.0, dtype=dtype)  # half precision holds it, and beside it the default of atol is nothing
    pairs = {"atol": (large * 0, torch.tensor(atol, dtype=dtype)), "rtol": (large, large * (1 + rtol))}
    stated = {"atol": atol, "rtol": rtol}
    return {name: stated[name] for name, (expected, other) in pairs.items() if not _are_close(other, expected)}


def _are_close(actual: Tensor, expected: Tensor) -> bool:
    try:
        torch.testing.assert_close(actual, expected)
    except AssertionError:
        return False
    return True
