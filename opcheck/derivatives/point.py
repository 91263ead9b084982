"""A function at its leaves: the evidence about it and its derivatives, and what it says against claims about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import torch

from opcheck.derivatives import by_torch
from opcheck.derivatives.autodiff import Differentiable, Mode, Primal, Pullback, gradient_sum, pushforward
from opcheck.derivatives.by_torch import CannotAsk
from opcheck.derivatives.compare import along_one, contradiction, lost_digits
from opcheck.derivatives.coordinates import same
from opcheck.derivatives.cotangents import vectors_like, with_gaps
from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.errors import excuses_wrong_sign
from opcheck.derivatives.evidence import MODES, Evidence
from opcheck.derivatives.gradients import GRADIENT_CLAIMS, attributes, memory_of_cotangents, undefined_cotangents
from opcheck.derivatives.question import Extent, Request
from opcheck.derivatives.sparse import DependsOnPattern, OfSparse, are_movable, of_elements

Step = Literal["rev", "rev with gaps", "fwd", "sum"]
"""From a function to the next: its pullback, for cotangents that may have gaps in memory, its pushforward, or the sum
of its gradients for cotangents of ones."""

FIRST: dict[str, tuple[tuple[Step, ...], Mode]] = {
    "backward": ((), "reverse"),
    "masked": ((), "reverse"),
    "forward_ad": ((), "forward"),
    "scalarized_second_order": (("sum",), "reverse"),
}
"""The Jacobians that are not named by their modes: of which derivative, and by which mode."""

REVERSE: tuple[Mode, ...] = ("reverse",)


@lru_cache(maxsize=64)
def steps_of(name: str) -> tuple[tuple[Step, ...], Mode] | None:
    """Return which derivative a name stands for, and by which mode its Jacobian is taken; None if it is no Jacobian.

    `fwd_over_rev` is the Jacobian of the pullback, by forward mode. There may be any number of modes.
    """
    last, *before = name.split("_over_")
    steps: dict[str, Step] = {"rev": "rev", "fwd": "fwd"}
    if not before or not {last, *before} <= set(steps):
        return FIRST.get(name)
    return tuple(steps[mode] for mode in reversed(before)), "reverse" if last == "rev" else "forward"


@dataclass
class Point:
    """A function at its leaves, with the evidence about it and its derivatives. Each is made once, on first use."""

    request: Request
    kind: type[Evidence] = Evidence
    """What makes evidence. The drop-in moves the leaves themselves."""
    compared: Extent | None = None
    """How much of a Jacobian the last comparison is about; None if it was about none."""
    _evidence: dict[tuple[bool, tuple[Step, ...]], Evidence] = field(default_factory=dict)

    def objection(self, name: str, request: Request | None = None) -> Disagreement | None:
        """Return why a claim about derivatives does not hold, or None if it does.

        name: of a Jacobian, as for `steps_of`, or of a claim about gradients, as in GRADIENT_CLAIMS.
        request: the same function and leaves with other tolerances; default: that of the point.

        Every objection is confirmed one by one before it is made. Fast mode, and leaves whose elements cannot be moved,
        are left to torch. Raises CannotAsk if it cannot tell; passes on the exceptions of the function.
        """
        request = request or self.request
        self.compared = None
        movable = are_movable(request.leaves)
        if request.fast_mode or not movable:
            try:
                return self._by_torch(name, request)
            except CannotAsk:
                if not movable:
                    raise
        try:
            if name in GRADIENT_CLAIMS:
                # A sparse tensor has no tangent.
                return GRADIENT_CLAIMS[name](self.evidence(elements=name == "batched_forward_grad"), request)
            return self._of_jacobian(name, request)
        except DependsOnPattern as error:
            return Disagreement(str(error))

    def lost_digits(self, name: str, request: Request) -> Disagreement | None:
        """Return why a Jacobian is wrong, or has fewer digits than arithmetic in its dtype allows; None if neither."""
        steps, mode = _known(name)
        evidence = self.evidence(*steps)
        return self._contradiction(evidence, mode, request) or lost_digits(evidence, mode, request)

    def excuses_wrong_sign(self, name: str, request: Request) -> bool:
        """Tell whether the tolerances would let the negative of a Jacobian pass.

        A claim about no Jacobian, or about tensors that cannot be moved, has none. Passes on the exceptions of the
        function.
        """
        place = steps_of(name)
        if place is None or not are_movable(request.leaves):
            return False
        return excuses_wrong_sign(self.evidence(*place[0]).numerical(request.numbers.eps).jacobian, request.numbers)

    def evidence(self, *steps: Step, elements: bool = True) -> Evidence:
        """Return the evidence for the function itself (no steps) or for one of its derivatives.

        elements: whether sparse leaves are replaced by their elements, which can be moved.
        """
        elements = elements and any(leaf.layout is not torch.strided for leaf in self.request.leaves)
        if (elements, steps) not in self._evidence:
            self._evidence[elements, steps] = self._derived(steps, elements) if steps else self._first(elements)
        return self._evidence[elements, steps]

    def _of_jacobian(self, name: str, request: Request) -> Disagreement | None:
        steps, mode = _known(name)
        if name in ("rev_over_rev", "fwd_over_rev"):
            return self._of_pullback(request, mode)
        evidence = self.evidence(*steps)
        strided = all(leaf.layout is torch.strided for leaf in request.leaves)
        if request.along_one(name) and strided:
            one = along_one(evidence, mode, request.numbers)
            if one.holds_closely:
                return None
            if request.expected and one.is_far_off:  # ordinary calls: no confirmation is needed
                return Disagreement("the derivatives along a random direction differ")
        disagreement = self._contradiction(evidence, mode, request)
        return memory_of_cotangents(evidence, request) if disagreement is None and name == "backward" else disagreement

    def _of_pullback(self, request: Request, mode: Mode) -> Disagreement | None:
        """Compare the Jacobians of the pullback, for contiguous and non-contiguous cotangents."""
        first, *others = request.non_contiguous if request.grad_outputs is None else (False,)
        evidence = self.evidence("rev with gaps" if first else "rev")
        disagreement = self._contradiction(evidence, mode, request)
        if disagreement or mode == "forward":
            return disagreement
        for _ in others:
            # The whole Jacobian is known to be right: that it is the same one, a random direction tells.
            again = self.evidence("rev with gaps")
            if not _agree(evidence, again):
                disagreement = self._contradiction(again, mode, request)
                if disagreement:
                    return disagreement
        return undefined_cotangents(evidence, request) if request.undefined_grad else None

    def _contradiction(self, evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
        disagreement = contradiction(evidence, mode, request)
        self.compared = evidence.extent
        return disagreement

    def _by_torch(self, name: str, request: Request) -> Disagreement | None:
        """Ask torch, and add what its functions leave out of a claim."""
        disagreement = by_torch.objection(name, request)
        if disagreement is None and name == "backward":
            return memory_of_cotangents(self.evidence(elements=False), request)
        if disagreement is None and name == "grad_dtypes":
            return attributes(self.evidence(elements=False), request)
        return disagreement

    def _first(self, elements: bool) -> Evidence:
        request = of_elements(self.request) if elements else self.request
        outputs = request.function(*request.leaves)
        chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
        if not chosen:
            # Nothing has a backward pass: all that could have a derivative must then have none.
            chosen = tuple(i for i, y in enumerate(outputs) if y.is_floating_point() or y.is_complex())
        tested = tuple(outputs[index] for index in chosen)
        function, kind = Primal(request.function, chosen), OfSparse if elements else self.kind
        return kind(function, request.leaves, coverage=request.coverage, outputs=tested, modes=self._modes)

    @property
    def _modes(self) -> tuple[Mode, ...]:
        return MODES if self.request.forward_ad else REVERSE

    def _derived(self, steps: tuple[Step, ...], elements: bool) -> Evidence:
        base, step, coverage = self.evidence(*steps[:-1], elements=elements), steps[-1], self.request.coverage
        kind = OfSparse if elements else self.kind
        if step == "sum":
            total = gradient_sum(base.function, base.outputs, len(base.leaves))
            return kind(total, base.leaves, coverage=coverage, modes=REVERSE)
        reverse = step != "fwd"
        like = base.outputs if reverse else base.leaves
        function: Differentiable
        function = Pullback(base.function, len(base.leaves)) if reverse else pushforward(base.function)
        vectors = self.request.grad_outputs if reverse and len(steps) == 1 else None
        if vectors is None:
            vectors = vectors_like(like, 1)
        if step == "rev with gaps":
            vectors = tuple(with_gaps(v) for v in vectors)
        linear = tuple(v.detach().requires_grad_() for v in vectors)
        return kind(function, (*base.leaves, *linear), coverage=coverage, modes=self._modes)


def _known(name: str) -> tuple[tuple[Step, ...], Mode]:
    place = steps_of(name)
    assert place is not None, name
    return place


def _agree(one: Evidence, other: Evidence) -> bool:
    got, expected, values = other.ordinary_reverse, one.ordinary_reverse, one.value
    rounding = 1e4 * one.unit
    size = float(one.analytical("reverse").jacobian.abs().sum())
    return same(values, other.value, rounding, rounding) and same(got, expected, rounding, rounding * size)
