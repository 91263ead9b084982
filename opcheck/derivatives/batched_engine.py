"""The engine: claims are held against evidence that is computed once for all checks of a sample."""

from __future__ import annotations

import torch

from opcheck.derivatives.beside import BESIDE, beyond_torch, undefined_cotangents
from opcheck.derivatives.comparison import same
from opcheck.derivatives.contradiction import contradiction
from opcheck.derivatives.engine import Disagreement, Request
from opcheck.derivatives.evidence import Evidence, Mode
from opcheck.derivatives.point import Point, order
from opcheck.derivatives.torch_engine import SPARSE, TorchEngine

OF_GRADIENTS = ("batched_grad", "nondeterminism", "undefined_grad", "grad_dtypes")
"""The checks that look at gradients alone. They need no move of an input, which sparse ones are not made for."""


class BatchedEngine:
    """Holds claims against batched evidence, confirmed one by one before anything is reported."""

    name = "batched"

    def __init__(self) -> None:
        self._torch = TorchEngine()
        self._group = ""
        self._points: dict[str, Point] = {}

    def ask(self, check: str, request: Request) -> Disagreement | None:
        """Return why a claim does not hold; None where it holds. See `Engine.ask`."""
        known = (torch.strided, *SPARSE) if check in OF_GRADIENTS else (torch.strided,)
        if request.fast_mode or any(leaf.layout not in known for leaf in request.leaves):
            return self._torch.ask(check, request)
        point = self._point(request)
        place = order(check)
        if place is None:
            return BESIDE[check](point.evidence(), request)
        if check == "rev_over_rev" or check == "fwd_over_rev":
            return _of_pullback(point, request, place[1], check)
        found = contradiction(point.evidence(*place[0]), place[1], request, check if place[0] else "")
        held = found is None or found.kind == "low accuracy"
        return (beyond_torch(check, point.evidence()) or found) if held else found

    def _point(self, request: Request) -> Point:
        """Return what is known about a sample. Evidence of other operators is dropped."""
        group = request.key.rpartition("#")[0]
        if group != self._group or not request.key:
            self._points.clear()
            self._group = group
        known = self._points.get(request.key)
        if known is None or not _is_same(known.request, request):
            known = self._points[request.key] = Point(request)
        return known


def _is_same(one: Request, other: Request) -> bool:
    """Tell whether two requests of the same key are about the same tensors. They may allow for different errors."""
    if (one.masked, one.amount) != (other.masked, other.amount) or one.grad_outputs is not other.grad_outputs:
        return False
    return len(one.leaves) == len(other.leaves) and all(a is b for a, b in zip(one.leaves, other.leaves, strict=True))


def _of_pullback(point: Point, request: Request, mode: Mode, name: str) -> Disagreement | None:
    """Compare the Jacobians of the pullback, for cotangents in each kind of memory."""
    first, *others = request.non_contiguous if request.grad_outputs is None else (False,)
    evidence = point.evidence("rev with gaps" if first else "rev")
    found = contradiction(evidence, mode, request, name)
    if found or mode == "forward":
        return found
    for _ in others:
        # The whole Jacobian is known to be right: that it is the same one, a random direction tells.
        again = point.evidence("rev with gaps")
        if not _agree(evidence, again):
            found = contradiction(again, mode, request, name)
            if found:
                return found
    text = undefined_cotangents(evidence) if request.undefined_grad else ""
    return Disagreement(text) if text else None


def _agree(one: Evidence, other: Evidence) -> bool:
    found, expected, values = other.ordinary_reverse, one.ordinary_reverse, one.value
    rounding = 1e4 * one.unit
    size = float(one.analytical("reverse").jacobian.abs().sum())
    return same(values, other.value, rounding, rounding) and same(found, expected, rounding, rounding * size)
