"""How much of a Jacobian is computed, and in how much memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MATRICES = 32
"""The number of matrices of the size of the whole Jacobian that are assumed to be in memory at a time: directions,
values at the stencil, the Jacobian by each mode, and temporaries of the comparison. Measured: 22 to 37."""

COMPRESSED = 16
"""The number of matrices of shape (directions, coordinates) that are assumed to be in memory at a time, where one
direction serves many slices (see `Coverage.allows_compressed`)."""

COPIES = 16
"""The number of tensors of the size of inputs and outputs that an operator is assumed to need at a time."""


class TooLarge(Exception):
    """A sample needs more memory than the settings allow. The message states how much, and which setting to raise."""


Extent = Literal["full", "structured", "projected"]
"""How much of a Jacobian is compared. full: all entries; structured: all entries that can be nonzero where slices of
the inputs are independent; projected: random projections."""


@dataclass(frozen=True)
class Coverage:
    """How much of a Jacobian is computed, and in how much memory."""

    jacobian: Literal["full", "projected", "auto"] = "auto"
    """full: the whole Jacobian; projected: its products with random directions; auto: the whole Jacobian up to
    `largest`, above that all entries that can be nonzero if slices of the inputs are independent, else products."""
    largest: int = 512
    """The largest number of real coordinates, of inputs and of outputs, for which auto means the whole Jacobian."""
    projections: int = 8
    """The number of random directions on each side."""
    memory: int = 1 << 28
    """The maximum number of bytes of a batch, as estimated by `chunk`, and of a Jacobian that is full or compressed."""

    def number_of_directions(self, size: tuple[int, int]) -> int | None:
        """Return the number of random directions on each side of a Jacobian of shape (M, N); None for a whole one.

        Raises TooLarge if "full" is requested and does not fit into `memory`.
        """
        needed = 8 * MATRICES * size[0] * size[1]
        if self.jacobian == "full" and needed > self.memory:
            raise TooLarge(
                f"the whole Jacobian of shape {tuple(size)} takes about {_mebibytes(needed)} MiB, at most "
                f"{_mebibytes(self.memory)} are allowed (batch_memory of [tool.opcheck]): make the sample smaller, or "
                'choose jacobian = "projected"'
            )
        if self.jacobian == "full":
            return None
        return None if self.jacobian == "auto" and max(size) <= self.largest else self.projections

    def allows_compressed(self, size: tuple[int, int], *directions: int) -> bool:
        """Return whether all entries of a Jacobian of shape (M, N) may be computed with these numbers of directions."""
        return max(directions) <= self.largest and 8 * COMPRESSED * max(size) * max(directions) <= self.memory

    def chunk(self, size: tuple[int, int]) -> int:
        """Return the number of points to evaluate per batch, for a Jacobian of shape (M, N)."""
        return max(1, self.memory // (8 * COPIES * max(1, sum(size))))


def _mebibytes(count: int) -> int:
    return -(-count >> 20)


AUTO = Coverage()
