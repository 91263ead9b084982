"""Calculus: Jacobians by finite differences and by automatic differentiation, compared. Independent of specs."""

from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.extent import AUTO, Coverage, TooLarge
from opcheck.derivatives.refusals import NO_REFUSAL, is_bug_of_opcheck, tried
from opcheck.derivatives.tolerances import Numbers, default_numbers

__all__ = [
    "AUTO",
    "NO_REFUSAL",
    "Coverage",
    "Disagreement",
    "Numbers",
    "TooLarge",
    "default_numbers",
    "is_bug_of_opcheck",
    "tried",
]
