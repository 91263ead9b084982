"""Calculus: Jacobians by finite differences and by automatic differentiation, compared. Independent of specs."""

from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.request import AUTO, NO_REFUSAL, Coverage, Request, TooLarge, is_bug_of_opcheck, tried
from opcheck.derivatives.tolerances import Numbers, default_numbers

__all__ = [
    "AUTO",
    "NO_REFUSAL",
    "Coverage",
    "Disagreement",
    "Numbers",
    "Request",
    "TooLarge",
    "default_numbers",
    "is_bug_of_opcheck",
    "tried",
]
