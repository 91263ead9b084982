"""Two Jacobians as the comparison hands them to those who look for their differences."""

from opcheck.derivatives.disagreement import Names, Pair
from opcheck.derivatives.tolerances import DOUBLE
from opcheck.derivatives.uncertainty import excess


def pair(numerical, analytical, outputs, leaves, numbers=DOUBLE, names=None):
    """Return a pair of Jacobians. Without names, outputs and leaves are called by their numbers."""
    above, below = (
        tuple(f"{what} {k}" for k in range(len(some))) for what, some in (("output", outputs), ("input", leaves))
    )
    names = names or Names(above, below)
    beyond = excess(analytical, numerical, leaves, numbers)
    return Pair(numerical, analytical, beyond, outputs, leaves, names)
