"""A derivative along one random direction: a few ordinary calls, where the whole Jacobian takes a batch of them.

It is enough where everything is right, as almost always. What it doubts, the whole Jacobian decides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.coordinates import probe
from opcheck.derivatives.differences import differences, looped
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.question import Numbers
from opcheck.derivatives.rule import ACCURATE

CLOSE = 0.01
"""The part of the tolerance that is left to a product with a random direction, which adds up what many entries say."""


def holds_along_one(evidence: Evidence, mode: Mode, numbers: Numbers) -> bool:
    """Tell whether J u by forward mode, or v^T J u by reverse mode, equals the numerical one for random u and v.

    Far closer than the tolerance for entries of the Jacobian allows, and without a kink. Passes on the exceptions of
    the derivative.
    """
    outputs, inputs = evidence.size
    u, v = _direction(inputs, 1), _direction(outputs, 2)
    found = evidence.jvp(u) if mode == "forward" else (evidence.vjp(v) @ u).reshape(1)
    points = evidence.point + torch.stack([u, -u, torch.zeros_like(u)]) * numbers.eps
    moved = differences(looped(evidence.function, evidence.leaves, points, len(points)), numbers.eps)
    along, bend = moved.jacobian[:, 0], moved.bend[:, 0]
    expected = along if mode == "forward" else (v @ along).reshape(1)
    allowed = min(ACCURATE, numbers.atol) + CLOSE * numbers.rtol * expected.abs()
    bent = bend.abs() > numbers.atol + numbers.rtol * along.abs()
    return bool(((found - expected).abs() <= allowed).all()) and not bool(bent.any())


def _direction(size: int, number: int) -> Tensor:
    """Return a random direction of shape (size,), each coordinate in [-1, -0.5] or [0.5, 1]: no entry is lost."""
    numbers = probe(size, number)
    return torch.where(numbers < 0, -1.0, 1.0) * (1 + numbers.abs()) / 2
