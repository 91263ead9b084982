"""The default engine: compares claims with evidence that is computed once for all checks of a sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import torch

from opcheck.derivatives.autodiff import Differentiable, Mode, Primal, Pullback, gradient_sum, pushforward
from opcheck.derivatives.compare import contradiction
from opcheck.derivatives.coordinates import same, vectors_like, with_gaps
from opcheck.derivatives.direction import holds_along_one
from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.evidence import MODES, Evidence
from opcheck.derivatives.gradients import GRADIENT_CLAIMS, attributes, memory_of_cotangents, undefined_cotangents
from opcheck.derivatives.precision import lost_digits
from opcheck.derivatives.question import Extent, Request
from opcheck.derivatives.rule import excuses_wrong_sign
from opcheck.derivatives.sparse import DependsOnPattern, OfSparse, are_movable, of_elements
from opcheck.engines.torch_engine import TorchEngine

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

REVERSE: tuple[Mode, ...] = ("reverse",)

OF_GRADIENTS = ("batched_grad", "nondeterminism", "undefined_grad", "grad_dtypes")
"""The checks that look at gradients alone: they move no input, and are asked about sparse ones as they are."""


@lru_cache(maxsize=64)
def order(check: str) -> tuple[tuple[Step, ...], Mode] | None:
    """Return which derivative a check takes the Jacobian of, and by which mode; None if it is not about a Jacobian.

    `fwd_over_rev` takes that of the pullback, by forward mode. There may be any number of modes.
    """
    last, *before = check.split("_over_")
    steps: dict[str, Step] = {"rev": "rev", "fwd": "fwd"}
    if not before or not {last, *before} <= set(steps):
        return FIRST.get(check)
    return tuple(steps[name] for name in reversed(before)), "reverse" if last == "rev" else "forward"


@dataclass
class Point:
    """A function at its leaves, with the evidence about it and about its derivatives."""

    request: Request
    kind: type[Evidence] = Evidence
    compared: Extent | None = None
    """How much of a Jacobian the last comparison is about."""
    _evidence: dict[tuple[Step, ...], Evidence] = field(default_factory=dict)

    def evidence(self, *steps: Step) -> Evidence:
        """Return the evidence for the function itself (no steps) or for one of its derivatives."""
        if steps not in self._evidence:
            self._evidence[steps] = self._derived(steps) if steps else self._first()
        return self._evidence[steps]

    def contradiction(self, evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
        """Return where a Jacobian contradicts the numerical one, or None. See `compare.contradiction`."""
        found = contradiction(evidence, mode, request)
        self.compared = evidence.extent
        return found

    def _first(self) -> Evidence:
        request = self.request
        outputs = request.function(*request.leaves)
        chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
        if not chosen:
            # Nothing has a backward pass: all that could have a derivative must then have none.
            chosen = tuple(i for i, y in enumerate(outputs) if y.is_floating_point() or y.is_complex())
        tested = tuple(outputs[index] for index in chosen)
        function = Primal(request.function, chosen)
        return self.kind(function, request.leaves, coverage=request.coverage, outputs=tested, modes=self._modes)

    @property
    def _modes(self) -> tuple[Mode, ...]:
        return MODES if self.request.forward_ad else REVERSE

    def _derived(self, steps: tuple[Step, ...]) -> Evidence:
        base, step, coverage = self.evidence(*steps[:-1]), steps[-1], self.request.coverage
        if step == "sum":
            total = gradient_sum(base.function, base.outputs, len(base.leaves))
            return self.kind(total, base.leaves, coverage=coverage, modes=REVERSE)
        reverse = step != "fwd"
        like = base.outputs if reverse else base.leaves
        function: Differentiable
        function = Pullback(base.function, len(base.leaves)) if reverse else pushforward(base.function)
        given = self.request.grad_outputs if reverse and base is self.evidence() else None
        if given is None:
            given = vectors_like(like, 1)
        if step == "rev with gaps":
            given = tuple(with_gaps(v) for v in given)
        linear = tuple(v.detach().requires_grad_() for v in given)
        return self.kind(function, (*base.leaves, *linear), coverage=coverage, modes=self._modes)


class BatchedEngine:
    """Compares claims with batched evidence. Every objection is confirmed one by one before it is reported."""

    name = "batched"

    def __init__(self) -> None:
        self.compared: Extent | None = None
        self._torch = TorchEngine()
        self._group = ""
        self._points: dict[tuple[str, bool, bool], tuple[Request, Point]] = {}

    def ask(self, check: str, request: Request) -> Disagreement | None:
        """Return why a claim does not hold, or None if it does. See `Engine.ask`."""
        self.compared = None
        try:
            return self._answer(check, request)
        except DependsOnPattern as error:
            return Disagreement(str(error))

    def excuses_wrong_sign(self, check: str, request: Request) -> bool:
        """Tell whether the tolerances of a check would let the negative of its Jacobian pass.

        Passes on the exceptions of the function. A check of no Jacobian, or of tensors that cannot be moved, has none.
        """
        place = order(check)
        if place is None or not are_movable(request.leaves):
            return False
        sparse = any(leaf.layout is not torch.strided for leaf in request.leaves)
        evidence = self._point(request, by_elements=sparse).evidence(*place[0])
        return excuses_wrong_sign(evidence.numerical(request.numbers.eps).jacobian, request.numbers)

    def _answer(self, check: str, request: Request) -> Disagreement | None:
        if request.fast_mode or not are_movable(request.leaves):
            return self._by_torch(check, request)
        sparse = any(leaf.layout is not torch.strided for leaf in request.leaves)
        point = self._point(request, by_elements=sparse and check not in OF_GRADIENTS)
        point.compared = None
        found = self._of_point(check, point, request, sparse)
        self.compared = point.compared
        return found

    def _of_point(self, check: str, point: Point, request: Request, sparse: bool) -> Disagreement | None:
        if check == "accuracy":
            return _accuracy(point, request)
        place = order(check)
        if place is None:
            return GRADIENT_CLAIMS[check](point.evidence(), request)
        if check == "rev_over_rev" or check == "fwd_over_rev":
            return _of_pullback(point, request, place[1])
        evidence = point.evidence(*place[0])
        if request.along_one(check) and not sparse and holds_along_one(evidence, place[1], request.numbers):
            return None
        found = point.contradiction(evidence, place[1], request)
        return memory_of_cotangents(point.evidence(), request) if found is None and check == "backward" else found

    def _by_torch(self, check: str, request: Request) -> Disagreement | None:
        """Ask torch, and add what its functions leave out of a check."""
        found = self._torch.ask(check, request)
        if found is None and check == "backward":
            return memory_of_cotangents(Point(request).evidence(), request)
        if found is None and check == "grad_dtypes":
            return attributes(Point(request).evidence(), request)
        return found

    def _point(self, request: Request, *, by_elements: bool) -> Point:
        """Return the evidence for a sample. Evidence for other operators is dropped.

        by_elements: whether sparse leaves are replaced by their elements.
        """
        group = request.key.rpartition("#")[0]
        if group != self._group or not request.key:
            self._points.clear()
            self._group = group
        place = request.key, request.masked, by_elements
        asked, point = self._points.get(place, (None, None))
        if asked is None or point is None or not _is_same(asked, request):
            point = Point(of_elements(request), OfSparse) if by_elements else Point(request)
            self._points[place] = request, point
        return point


def _is_same(one: Request, other: Request) -> bool:
    """Tell whether two requests with the same key are about the same tensors. Their tolerances may differ."""
    if (one.masked, one.coverage) != (other.masked, other.coverage) or one.grad_outputs is not other.grad_outputs:
        return False
    return len(one.leaves) == len(other.leaves) and all(a is b for a, b in zip(one.leaves, other.leaves, strict=True))


def _accuracy(point: Point, request: Request) -> Disagreement | None:
    """Return that a Jacobian is wrong or has lost digits, or None."""
    place = order(request.derivative)
    assert place is not None
    evidence, mode = point.evidence(*place[0]), place[1]
    return point.contradiction(evidence, mode, request) or lost_digits(evidence, mode, request)


def _of_pullback(point: Point, request: Request, mode: Mode) -> Disagreement | None:
    """Compare the Jacobians of the pullback, for contiguous and non-contiguous cotangents."""
    first, *others = request.non_contiguous if request.grad_outputs is None else (False,)
    evidence = point.evidence("rev with gaps" if first else "rev")
    found = point.contradiction(evidence, mode, request)
    if found or mode == "forward":
        return found
    for _ in others:
        # The whole Jacobian is known to be right: that it is the same one, a random direction tells.
        again = point.evidence("rev with gaps")
        if not _agree(evidence, again):
            found = point.contradiction(again, mode, request)
            if found:
                return found
    return undefined_cotangents(evidence, request) if request.undefined_grad else None


def _agree(one: Evidence, other: Evidence) -> bool:
    found, expected, values = other.ordinary_reverse, one.ordinary_reverse, one.value
    rounding = 1e4 * one.unit
    size = float(one.analytical("reverse").jacobian.abs().sum())
    return same(values, other.value, rounding, rounding) and same(found, expected, rounding, rounding * size)
