"""A function at some leaves, with the evidence about it and about its derivatives."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import real_size, tensors_of
from opcheck.derivatives.engine import Request
from opcheck.derivatives.evidence import BUDGET, Evidence, probe
from opcheck.derivatives.functions import Differentiable, Primal, Pullback, pushforward


@dataclass
class Point:
    """A function at its leaves, with all evidence about it: of the function itself, and of its derivatives."""

    request: Request
    budget: int = BUDGET
    _evidence: dict[str, Evidence] = field(default_factory=dict)

    def evidence(self, of: str = "") -> Evidence:
        """Return the evidence of a derivative: "" the function, "rev" its pullback, "fwd" its pushforward.

        "rev noncontiguous" is the pullback for the same cotangents with gaps in memory.
        """
        if of not in self._evidence:
            self._evidence[of] = self._first() if not of else self._second(of)
        return self._evidence[of]

    def _first(self) -> Evidence:
        leaves = self.request.leaves
        outputs = self.request.function(*leaves)
        chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
        if not chosen:
            # Nothing has a backward pass: all that could have a derivative must then have none.
            chosen = tuple(i for i, y in enumerate(outputs) if y.is_floating_point() or y.is_complex())
        return Evidence(Primal(self.request.function, chosen), leaves, budget=self.budget)

    def _second(self, of: str) -> Evidence:
        first = self.evidence()
        mode, _, memory = of.partition(" ")
        like = first.on_graph(lambda outputs: outputs) if mode == "rev" else first.leaves
        function: Differentiable = (
            Pullback(first.function, len(first.leaves)) if mode == "rev" else pushforward(first.function)
        )
        given = self.request.grad_outputs if mode == "rev" else None
        if given is None:
            plain = [torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device) for tensor in like]
            given = tensors_of(probe(sum(map(real_size, like)), 1), plain)
        if memory:
            given = tuple(_with_gaps(v) for v in given)
        linear = tuple(v.detach().requires_grad_() for v in given)
        return Evidence(function, (*first.leaves, *linear), budget=self.budget)


def _with_gaps(tensor: Tensor) -> Tensor:
    return torch.stack((torch.zeros_like(tensor), tensor), dim=-1)[..., 1]
