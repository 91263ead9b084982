"""A function at some leaves, with the evidence about it and about its derivatives."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

import torch

from opcheck.derivatives.amount import TooLarge
from opcheck.derivatives.coordinates import real_size, tensors_of, with_gaps
from opcheck.derivatives.directions import probe
from opcheck.derivatives.engine import Request
from opcheck.derivatives.evidence import MODES, Evidence, Mode, Part
from opcheck.derivatives.functions import Differentiable, Primal, Pullback, Tensors, gradient_sum, pushforward

Step = Literal["rev", "rev with gaps", "fwd", "sum"]
"""From a function to the next: its pullback, for cotangents that may have gaps in memory, its pushforward, or the sum
of its gradients for cotangents of ones."""


FIRST: dict[str, tuple[tuple[Step, ...], Mode]] = {
    "backward": ((), "reverse"),
    "masked": ((), "reverse"),
    "forward_ad": ((), "forward"),
    "scalarized_second_order": (("sum",), "reverse"),
}
"""The checks of Jacobians that are not named by their modes: of which derivative, and by which mode."""


@lru_cache(maxsize=64)
def order(check: str) -> tuple[tuple[Step, ...], Mode] | None:
    """Return of which derivative a check looks at the Jacobian, and by which mode; None: it looks at something else.

    `fwd_over_rev` is about that of the pullback, by forward mode; there may be any number of modes.
    """
    last, *before = check.split("_over_")
    steps: dict[str, Step] = {"rev": "rev", "fwd": "fwd"}
    if not before or not {last, *before} <= set(steps):
        return FIRST.get(check)
    return tuple(steps[name] for name in reversed(before)), "reverse" if last == "rev" else "forward"


@dataclass
class Point:
    """A function at its leaves, with all evidence about it: of the function itself, and of its derivatives."""

    request: Request
    _evidence: dict[tuple[Step, ...], Evidence] = field(default_factory=dict)

    def evidence(self, *steps: Step) -> Evidence:
        """Return the evidence of the function (no steps), or of the derivative that some steps lead to."""
        if steps not in self._evidence:
            self._evidence[steps] = self._derived(steps) if steps else self._first()
            self._evidence[steps].part = self._part(steps)
        return self._evidence[steps]

    def _first(self) -> Evidence:
        leaves = self.request.leaves
        outputs = self.request.function(*leaves)
        chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
        if not chosen:
            # Nothing has a backward pass: all that could have a derivative must then have none.
            chosen = tuple(i for i, y in enumerate(outputs) if y.is_floating_point() or y.is_complex())
        graph = tuple(outputs[index] for index in chosen)
        return self._about(Primal(self.request.function, chosen), leaves, (), graph)

    def _about(
        self, function: Differentiable, leaves: Tensors, steps: tuple[Step, ...], graph: Tensors | None = None
    ) -> Evidence:  # fmt: skip
        modes = self._modes(steps) or MODES
        return Evidence(function, leaves, amount=self.request.amount, graph=graph, modes=modes)

    def _modes(self, steps: tuple[Step, ...]) -> set[Mode]:
        """Return the modes in which a derivative will be asked for; none where nobody has said."""
        claimed = tuple("rev" if step == "rev with gaps" else step for step in steps)
        return {place[1] for place in map(order, self.request.jacobians) if place and place[0] == claimed}

    def _derived(self, steps: tuple[Step, ...]) -> Evidence:
        base, step = self.evidence(*steps[:-1]), steps[-1]
        if step == "sum":
            return self._about(gradient_sum(base.function, base.outputs, len(base.leaves)), base.leaves, steps)
        reverse = step != "fwd"
        like = base.outputs if reverse else base.leaves
        function: Differentiable
        function = Pullback(base.function, len(base.leaves)) if reverse else pushforward(base.function)
        given = self.request.grad_outputs if reverse and base is self.evidence() else None
        if given is None:
            plain = [torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device) for tensor in like]
            given = tensors_of(probe(sum(map(real_size, like)), 1), plain)
        if step == "rev with gaps":
            given = tuple(with_gaps(v) for v in given)
        linear = tuple(v.detach().requires_grad_() for v in given)
        return self._about(function, (*base.leaves, *linear), steps)

    def _part(self, steps: tuple[Step, ...]) -> Part | None:
        """Return what the function and its pullback are of both in one, where the same modes are claimed of both."""
        modes = self._modes(())
        if steps not in ((), ("rev",)) or not modes or modes != self._modes(("rev",)):
            return None
        outputs, inputs = self.evidence().size
        point = weakref.ref(self)  # evidence that held its point would keep the memory of both

        def both() -> Evidence | None:
            found = point()
            return found._both if found else None

        return Part(both, slice(None), slice(outputs, None)) if steps else Part(both, slice(inputs), slice(outputs))

    @cached_property
    def _both(self) -> Evidence | None:
        """The function and its pullback as one function (x, v) -> (y, J^T v); None where there is no pullback."""
        first, second = self.evidence(), self.evidence("rev")
        try:
            graph = (*first.outputs, *second.outputs)
        except Exception:
            return None  # whoever asks about the pullback will hear of it
        function = Pullback(first.function, len(first.leaves), with_outputs=True)
        both = Evidence(function, second.leaves, amount=self.request.amount, graph=graph, modes=first.modes)
        try:
            return both if both.projections is None else None
        except TooLarge:
            return None
