"""Calculus: Jacobians by finite differences and by automatic differentiation, and how they compare. Knows no specs."""

from opcheck.derivatives.amount import AUTO, NO_REFUSAL, Amount, TooLarge
from opcheck.derivatives.batched_engine import BatchedEngine
from opcheck.derivatives.engine import Disagreement, Engine, Request
from opcheck.derivatives.numbers import Numbers, default_numbers
from opcheck.derivatives.point import order
from opcheck.derivatives.torch_engine import TorchEngine

__all__ = [
    "AUTO",
    "NO_REFUSAL",
    "Amount",
    "BatchedEngine",
    "Disagreement",
    "Engine",
    "Numbers",
    "Request",
    "TooLarge",
    "TorchEngine",
    "default_numbers",
    "order",
]
