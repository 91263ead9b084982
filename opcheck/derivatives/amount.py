"""How much evidence is gathered at a point, and in how much memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

MATRICES = 32
"""How many matrices of the size of a whole Jacobian are assumed to be in memory at a time: directions, values at the
stencil, the Jacobian by each mode, and what a comparison makes of them. Measured: 22 to 37."""


class TooLarge(Exception):
    """More than the settings allow. The text says what, and which setting allows more."""


NO_REFUSAL = (TooLarge, MemoryError, torch.OutOfMemoryError)
"""Exceptions that say nothing about what a function supports."""


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
    """Bytes that a batch may take, by the estimate of `Evidence.batch`, and a whole Jacobian that is asked for."""

    def allow_whole(self, size: tuple[int, int]) -> None:
        """Raise TooLarge where the budget does not allow for a whole Jacobian of some shape."""
        needed = 8 * MATRICES * size[0] * size[1]
        if needed > self.budget:
            raise TooLarge(
                f"the whole Jacobian of shape {tuple(size)} takes about {_mebibytes(needed)} MiB, at most "
                f"{_mebibytes(self.budget)} are allowed (batch_memory of [tool.opcheck]): make the sample smaller, or "
                'choose jacobian = "projected"'
            )


def _mebibytes(count: int) -> int:
    return -(-count >> 20)


AUTO = Amount()
