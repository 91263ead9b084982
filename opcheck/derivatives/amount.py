"""How much evidence is gathered at a point, and in how much memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Amount:
    """How much evidence is gathered at a point, and in how much memory."""

    jacobian: Literal["full", "projected", "auto"] = "auto"
    """The whole Jacobian, or what it makes of some random directions; auto: the whole up to `largest`."""
    largest: int = 512
    """The most real coordinates of inputs, or of outputs, for which auto means the whole Jacobian."""
    projections: int = 8
    """How many random directions there are on each side."""
    budget: int = 1 << 28
    """Bytes that a batch may take, by the estimate of `Evidence.batch`."""


AUTO = Amount()
