"""Two Jacobians as the comparison hands them to those who look for their differences."""

from opcheck.derivatives.compare import excess
from opcheck.derivatives.disagreement import Pair
from opcheck.derivatives.question import DOUBLE


def pair(numerical, analytical, outputs, leaves, numbers=DOUBLE):
    beyond = excess(analytical, numerical, leaves, numbers)
    return Pair(numerical, analytical, beyond, outputs, leaves)
