"""Calculus: Jacobians by finite differences and by automatic differentiation, and how they compare. Knows no specs."""

from opcheck.derivatives.batched_engine import BatchedEngine, order
from opcheck.derivatives.disagreement import Disagreement, Engine
from opcheck.derivatives.question import AUTO, NO_REFUSAL, Coverage, Numbers, Request, TooLarge, default_numbers
from opcheck.derivatives.torch_engine import TorchEngine

__all__ = [
    "AUTO",
    "NO_REFUSAL",
    "BatchedEngine",
    "Coverage",
    "Disagreement",
    "Engine",
    "Numbers",
    "Request",
    "TooLarge",
    "TorchEngine",
    "default_numbers",
    "order",
]
