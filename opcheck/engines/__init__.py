"""Engines: they answer claims about derivatives, with evidence of our own or by torch's functions."""

from opcheck.engines.batched_engine import BatchedEngine, order
from opcheck.engines.torch_engine import TorchEngine

__all__ = ["BatchedEngine", "TorchEngine", "order"]
