"""Tests a claim about derivatives, given by its name, such as `backward` or `fwd_over_rev`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from opcheck.derivatives import by_torch
from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.by_torch import CannotAsk
from opcheck.derivatives.comparison import Comparison
from opcheck.derivatives.coordinates import same
from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.gradients import (
    attributes,
    batching,
    memory_of_cotangents,
    nondeterminism,
    undefined_in,
    undefined_vectors,
)
from opcheck.derivatives.jacobians import compare, digits_lost
from opcheck.derivatives.point import Point, Step
from opcheck.derivatives.request import Extent, Request
from opcheck.derivatives.sparse import DependsOnPattern, are_movable, of_elements
from opcheck.derivatives.uncertainty import excuse_wrong_sign

FIRST: dict[str, tuple[tuple[Step, ...], Mode]] = {
    "backward": ((), "reverse"),
    "masked": ((), "reverse"),
    "forward_ad": ((), "forward"),
    "scalarized_second_order": (("sum",), "reverse"),
}
"""The Jacobians that are not named by their modes: the steps to the derivative, and the mode of its Jacobian."""

OF_GRADIENTS: dict[str, Callable[[Point, Request], Disagreement | None]] = {
    "batched_grad": partial(batching, mode="reverse"),
    "batched_forward_grad": partial(batching, mode="forward"),
    "undefined_grad": undefined_vectors,
    "grad_dtypes": attributes,
    "nondeterminism": nondeterminism,
}
"""The tests of claims about gradients other than their values."""


FURTHER = ("rev_over_fwd", "fwd_over_fwd", "rev_over_rev_over_rev")
"""The derivatives of higher order that are first compared along one direction, unless `Request.whole` names them."""

LEFT_OUT_BY_TORCH = {"backward": memory_of_cotangents, "grad_dtypes": attributes}
"""The tests of those parts of a claim that torch's functions leave out."""


def derivative_named(name: str) -> tuple[tuple[Step, ...], Mode] | None:
    """Return the steps to the derivative that a name stands for, and the mode of its Jacobian; None if there is none.

    `fwd_over_rev` is the Jacobian of the pullback, by forward mode. There may be any number of modes.
    """
    last, *before = name.split("_over_")
    steps: dict[str, Step] = {"rev": "rev", "fwd": "fwd"}
    if not before or not {last, *before} <= set(steps):
        return FIRST.get(name)
    return tuple(steps[mode] for mode in reversed(before)), "reverse" if last == "rev" else "forward"


def check_claim(name: str, request: Request, point: Point | None = None) -> Disagreement | None:
    """Return why a claim does not hold, or None if it does.

    name: the name of a Jacobian, as for `derivative_named`, or a key of OF_GRADIENTS.
    point: the point of the request, if it is known. It may have been made for other tolerances.

    A failure of a batch is confirmed by ordinary calls. torch's own functions test the claim if the request chooses
    them, in fast mode, and if leaves have elements that cannot be moved. Raises CannotAsk if these functions are chosen
    or necessary, but cannot test the claim; passes on the exceptions of the function.
    """
    if request.by_torch:
        return by_torch.check_claim(name, request)
    movable = are_movable(request.leaves)
    if request.fast_mode or not movable:
        try:
            disagreement, left_out = by_torch.check_claim(name, request), LEFT_OUT_BY_TORCH.get(name)
        except CannotAsk:
            if not movable:
                raise
        else:
            return disagreement or (left_out(point or Point.of(request), request) if left_out else None)
    point = point or Point.of(request)
    try:
        if name in OF_GRADIENTS:
            # A sparse tensor cannot carry a tangent, but its elements can.
            return OF_GRADIENTS[name](on_dense_elements(point) if name == "batched_forward_grad" else point, request)
        derivative, mode = jacobian_of(name, point)
        if _is_of_pullback(name):
            return _of_pullback(on_dense_elements(point), request, mode)
        is_dense = all(leaf.layout is torch.strided for leaf in request.leaves)
        if name in FURTHER and name not in request.whole and is_dense:
            one = Comparison.of(derivative.along_one, mode, request.numbers)
            if one.holds_closely:
                return None
            if request.expected and one.is_far_off:  # ordinary calls: no confirmation is needed
                return Disagreement("the derivatives along a random direction differ")
        disagreement = compare(derivative, mode, request)
        return (
            memory_of_cotangents(derivative, request) if disagreement is None and name == "backward" else disagreement
        )
    except DependsOnPattern as error:
        return Disagreement(str(error))


def on_dense_elements(point: Point) -> Point:
    """Return the point itself or, if it has sparse leaves, that of their elements, which can be moved."""
    if point.elements is None:
        assert point.request is not None
        sparse = any(leaf.layout is not torch.strided for leaf in point.leaves)
        point.elements = of_elements(point.request) if sparse else point
    return point.elements


def jacobian_of(name: str, point: Point) -> tuple[Point, Mode]:
    """Return the point of the derivative that a name stands for, and the mode of its Jacobian."""
    place = derivative_named(name)
    assert place is not None, name
    return on_dense_elements(point).derived(*place[0]), place[1]


def extent_compared(name: str, point: Point) -> Extent | None:
    """Return how much of a Jacobian has been compared; None if nothing, or only one direction, has."""
    if derivative_named(name) is None or point.elements is None:
        return None
    extent = jacobian_of(name, point)[0].compared
    if extent is None and _is_of_pullback(name):
        return point.elements.derived("rev with gaps").compared
    return extent


def _is_of_pullback(name: str) -> bool:
    """Return whether a name stands for a Jacobian of the pullback, which is compared for several cotangents."""
    place = derivative_named(name)
    return place is not None and place[0] == ("rev",)


def lost_digits(name: str, request: Request, point: Point) -> Disagreement | None:
    """Return why a Jacobian is wrong, or has fewer digits than arithmetic in its dtype allows; None if neither."""
    derivative, mode = jacobian_of(name, point)
    return compare(derivative, mode, request) or digits_lost(derivative, mode, request)


def lets_wrong_sign_pass(name: str, request: Request, point: Point) -> bool:
    """Return whether the tolerances would accept the negative of a Jacobian.

    False for claims that are not about a Jacobian, and for leaves whose elements cannot be moved. Passes on the
    exceptions of the function.
    """
    if derivative_named(name) is None or not are_movable(request.leaves):
        return False
    derivative, _ = jacobian_of(name, point)
    return excuse_wrong_sign(derivative.numerical(request.numbers.eps).jacobian, request.numbers)


def _of_pullback(point: Point, request: Request, mode: Mode) -> Disagreement | None:
    """Compare the Jacobians of the pullback, for contiguous and non-contiguous cotangents."""
    first, *others = request.non_contiguous if request.grad_outputs is None else (False,)
    derivative = point.derived("rev with gaps" if first else "rev")
    disagreement = compare(derivative, mode, request)
    if disagreement or mode == "forward":
        return disagreement
    # The Jacobian is known to be right. One random direction shows whether it is the same for cotangents with gaps.
    again = point.derived("rev with gaps") if others else derivative
    if not _agree(derivative, again):
        disagreement = compare(again, mode, request)
        if disagreement:
            return disagreement
    return undefined_in(derivative, request, "reverse") if request.undefined_grad else None


def _agree(one: Point, other: Point) -> bool:
    got, expected, values = other.product("reverse"), one.product("reverse"), one.value
    rounding, size = one.rounding, float(one.analytical("reverse").jacobian.abs().sum())
    return same(values, other.value, rounding, rounding) and same(got, expected, rounding, rounding * size)
