"""Finds the tolerances of a spec that are wider than the defaults."""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.derivatives import Numbers, default_numbers

WIDTHS = ("atol", "rtol", "nondeterminism")
"""The tolerances that are wider if the number is larger. The step of differences is not one of them."""


def wider_numbers(own: Numbers | None, dtype: torch.dtype) -> dict[str, float]:
    """Return the tolerances of derivatives that are wider than the defaults for a dtype, by name."""
    base = default_numbers(dtype)
    if own is None or base is None:
        return {}
    return {name: getattr(own, name) for name in WIDTHS if getattr(own, name) > getattr(base, name)}


def wider_values(atol: float, rtol: float, dtype: torch.dtype) -> dict[str, float]:
    """Return the tolerances of values that are wider than the defaults of `torch.testing.assert_close`, by name.

    The defaults are not public, so that assert_close is called with two numbers that differ by a tolerance.
    """
    large = torch.tensor(4096.0, dtype=dtype)  # half precision holds it, and the default atol is negligible beside it
    pairs = {"atol": (large * 0, torch.tensor(atol, dtype=dtype)), "rtol": (large, large * (1 + rtol))}
    stated = {"atol": atol, "rtol": rtol}
    return {name: stated[name] for name, (expected, other) in pairs.items() if not _are_close(other, expected)}


def _are_close(actual: Tensor, expected: Tensor) -> bool:
    try:
        torch.testing.assert_close(actual, expected)
    except AssertionError:
        return False
    return True
