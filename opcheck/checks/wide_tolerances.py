"""Finds the tolerances of a spec that are wider than the defaults."""

from __future__ import annotations

import torch

from opcheck.derivatives import Numbers
from opcheck.spec.claims import Tolerance

DOUBLE, SINGLE = Tolerance(rtol=1e-7, atol=1e-7), Tolerance(rtol=1.3e-6, atol=1e-5)
HALF = Tolerance(rtol=1e-3, atol=1e-5)
OF_VALUES = {
    torch.float64: DOUBLE,
    torch.complex128: DOUBLE,
    torch.float32: SINGLE,
    torch.complex64: SINGLE,
    torch.float16: HALF,
    torch.complex32: HALF,
    torch.bfloat16: Tolerance(rtol=1.6e-2, atol=1e-5),
}
"""The defaults of `torch.testing.assert_close`, from its documentation."""
EXACT = Tolerance()
"""Tolerances of zero, as for integers."""


def wider(own: Numbers | Tolerance | None, base: Numbers | Tolerance | None) -> dict[str, float]:
    """Return the tolerances that are wider than the defaults `base`, by name.

    The step of differences is not one of them. None: the dtype is too coarse for finite differences.
    """
    names = ("atol", "rtol", "nondeterminism") if own and base else ()
    return {name: getattr(own, name) for name in names if (getattr(own, name) or 0.0) > (getattr(base, name) or 0.0)}
