"""The engine: claims are held against evidence that is computed once for all checks of a sample."""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.derivatives import beside
from opcheck.derivatives.beside import BESIDE
from opcheck.derivatives.comparison import agree, allowed, blocks, wrong_entries
from opcheck.derivatives.coordinates import place, real_size
from opcheck.derivatives.differences import Differences, kinks
from opcheck.derivatives.engine import Disagreement, Request
from opcheck.derivatives.evidence import BUDGET, Analytical, Evidence, Mode, probe
from opcheck.derivatives.mismatch import Mismatch, find_mismatch
from opcheck.derivatives.point import Point
from opcheck.derivatives.torch_engine import TorchEngine

ORDERS: dict[str, tuple[str, Mode]] = {
    "backward": ("", "reverse"),
    "forward_ad": ("", "forward"),
    "masked": ("", "reverse"),
    "rev_over_rev": ("rev", "reverse"),
    "fwd_over_rev": ("rev", "forward"),
    "rev_over_fwd": ("fwd", "reverse"),
    "fwd_over_fwd": ("fwd", "forward"),
}
"""The checks of Jacobians: of which derivative, and by which mode."""


class BatchedEngine:
    """Holds claims against batched evidence, confirmed one by one before anything is reported."""

    name = "batched"

    def __init__(self, budget: int = BUDGET) -> None:
        self._torch = TorchEngine()
        self._budget = budget
        self._group = ""
        self._points: dict[str, Point] = {}

    def ask(self, check: str, request: Request) -> Disagreement | None:
        """Return why a claim does not hold; None where it holds. See `Engine.ask`."""
        if request.fast_mode or any(leaf.layout is not torch.strided for leaf in request.leaves):
            return self._torch.ask(check, request)
        point = self._point(request)
        if check in ORDERS:
            return _of_jacobian(point, request, check)
        return BESIDE[check](point.evidence(), request)

    def _point(self, request: Request) -> Point:
        """Return what is known about a sample. Evidence of other operators is dropped."""
        group = request.key.rpartition("#")[0]
        if group != self._group or not request.key:
            self._points.clear()
            self._group = group
        key = request.key
        if key not in self._points:
            self._points[key] = Point(request, self._budget)
        return self._points[key]


def _of_jacobian(point: Point, request: Request, check: str) -> Disagreement | None:
    of, mode = ORDERS[check]
    if of != "rev":
        return contradiction(point.evidence(of), mode, request)
    first, *others = request.non_contiguous if request.grad_outputs is None else (False,)
    evidence = point.evidence("rev noncontiguous" if first else "rev")
    found = contradiction(evidence, mode, request)
    if found or check != "rev_over_rev":
        return found
    for _ in others:
        # The whole Jacobian is known to be right: that it is the same one, a random direction tells.
        again = point.evidence("rev noncontiguous")
        if not _same(evidence, again):
            found = contradiction(again, mode, request)
            if found:
                return found
    if request.undefined_grad:
        text = beside.undefined_cotangents(evidence)
        return Disagreement(text) if text else None
    return None


def _same(one: Evidence, other: Evidence) -> bool:
    found, expected, values = other.ordinary_reverse, one.ordinary_reverse, one.value
    rounding = 1e4 * one.unit
    size = float(one.analytical("reverse").jacobian.abs().sum())
    same = torch.allclose(values, other.value, rounding, rounding, equal_nan=True)
    return same and torch.allclose(found, expected, rounding, rounding * size, equal_nan=True)


def contradiction(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Return where the Jacobian by one of the modes contradicts the numerical one; None where it does not."""
    numbers = request.numbers
    analytical = evidence.analytical(mode)
    numerical = evidence.numerical(numbers.eps)
    leaves = evidence.leaves
    atol, rtol = numbers.atol, numbers.rtol
    right = agree(analytical.jacobian, numerical.jacobian, leaves, rtol, atol)
    smooth = torch.allclose(numerical.right, numerical.left, rtol, atol)
    if right and smooth and analytical.holds(1e4 * evidence.unit):
        return None
    return _confirmed(evidence, mode, request)


def _confirmed(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Look again, one point and one direction at a time, before anything is reported."""
    numbers, leaves = request.numbers, evidence.leaves
    analytical = evidence.analytical(mode, looped=True)
    numerical = evidence.numerical(numbers.eps, looped=True)
    bound = allowed(numerical.jacobian, leaves, numbers)
    wrong = wrong_entries(analytical.jacobian, numerical.jacobian, leaves, numbers, bound)
    mismatch = _mismatch(evidence, analytical, numerical, request) if bool(wrong.any()) else None
    if bool((wrong | (numerical.bend.abs() > bound)).any()):
        kinky = kinks(numerical, evidence.numerical(2 * numbers.eps, looped=True), bound)
        if bool(kinky.any()) and not bool((wrong & ~kinky).any()):
            return Disagreement(_at_kink(kinky, evidence), "inconclusive", mismatch)
    if bool(wrong.any()):
        return Disagreement(mismatch.describe() if mismatch else "the Jacobians differ", mismatch=mismatch)
    return _not_linear(analytical, numerical.jacobian, evidence, mode, request)


def _not_linear(
    analytical: Analytical, numerical: Tensor, evidence: Evidence, mode: Mode, request: Request
) -> Disagreement | None:
    """The Jacobian is right for each unit direction. Return why it is not for a sum of them; None where it is."""
    direction = probe(evidence.size[0 if mode == "reverse" else 1])
    off = (analytical.said - analytical.ordinary).abs()
    magnitudes = numerical.abs().T if mode == "reverse" else numerical.abs()
    bound = request.numbers.atol * direction.abs().sum() + request.numbers.rtol * (magnitudes @ direction.abs())
    if bool((off <= bound).all()):
        return None
    what = "backward pass is not linear in the cotangent" if mode == "reverse" else "jvp is not linear in the tangent"
    return Disagreement(f"the {what}: right for each unit vector, off by up to {float(off.max()):.4g} for a random one")


def _mismatch(
    evidence: Evidence, analytical: Analytical, numerical: Differences, request: Request
) -> Mismatch | None:  # fmt: skip
    outputs = evidence.on_graph(lambda found: found)
    n, a = (blocks(matrix, outputs, evidence.leaves) for matrix in (numerical.jacobian, analytical.jacobian))
    return find_mismatch(n, a, outputs, evidence.leaves, request.numbers)


def _at_kink(kinky: Tensor, evidence: Evidence) -> str:
    """Return where one-sided differences disagree: the inputs to move, with their values."""
    columns = kinky.any(dim=0).nonzero().flatten().tolist()
    places = []
    for column in columns[:8]:
        leaf, start = 0, column
        while start >= real_size(evidence.leaves[leaf]):
            start -= real_size(evidence.leaves[leaf])
            leaf += 1
        places.append(f"input {leaf}{place(evidence.leaves[leaf], start)} = {float(evidence.point[column]):.8g}")
    more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
    return (
        "the function has a kink or a jump here, and no derivative: one-sided differences disagree\n"
        f"move the sample away from {', '.join(places)}{more}"
    )
