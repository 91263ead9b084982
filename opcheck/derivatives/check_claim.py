"""Tests a claim about derivatives, given by its name, such as `backward` or `fwd_over_rev`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from opcheck.derivatives.autodiff import Function, Mode
from opcheck.derivatives.comparison import Comparison
from opcheck.derivatives.coordinates import are_strided, same
from opcheck.derivatives.differences import OtherShapes
from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.extent import Extent
from opcheck.derivatives.gradients import attributes, batching, memory_of_cotangents, nondeterminism, undefined_in
from opcheck.derivatives.jacobians import compare, digits_lost, unlike_reference
from opcheck.derivatives.point import Point, Step
from opcheck.derivatives.sparse import DependsOnPattern, are_movable
from opcheck.derivatives.tolerances import Numbers
from opcheck.derivatives.uncertainty import passes_negated

FIRST: dict[str, tuple[tuple[Step, ...], Mode]] = {
    "backward": ((), "reverse"),
    "masked": ((), "reverse"),
    "forward_ad": ((), "forward"),
    "scalarized_second_order": (("sum",), "reverse"),
}
"""The Jacobians that are not named by their modes: the steps to the derivative, and the mode of its Jacobian."""
OF_PULLBACK: tuple[Step, ...] = ("rev",)
WITH_GAPS: tuple[Step, ...] = ("rev with gaps",)
"""The steps to the pullback, whose Jacobian is compared for several cotangents."""
FURTHER = ("rev_over_fwd", "fwd_over_fwd", "rev_over_rev_over_rev")
"""The derivatives of higher order that are first compared along one direction, unless they are named as `whole`."""


def derivative_named(name: str) -> tuple[tuple[Step, ...], Mode] | None:
    """Return the steps to the derivative that a name stands for, and the mode of its Jacobian; None if there is none.

    `fwd_over_rev` is the Jacobian of the pullback, by forward mode. There may be any number of modes.
    """
    last, *before = name.split("_over_")
    steps: dict[str, Step] = {"rev": "rev", "fwd": "fwd"}
    if not before or not {last, *before} <= set(steps):
        return FIRST.get(name)
    return tuple(steps[mode] for mode in reversed(before)), "reverse" if last == "rev" else "forward"


def derivative_of(name: str) -> tuple[tuple[Step, ...], Mode]:
    """Return the steps and the mode of a derivative: see `derivative_named`."""
    place = derivative_named(name)
    assert place is not None, name
    return place


def check_claim(
    name: str, point: Point, numbers: Numbers, *, expected: bool = False, forward_ad: bool = True,
    undefined_grad: bool = True, non_contiguous: Sequence[bool] = (False, True), whole: Collection[str] = (),
    reference: Function | None = None,
) -> Disagreement | None:  # fmt: skip
    """Return why a claim about a function at a point does not hold, or None if it does.

    name: the name of a Jacobian, as for `derivative_named`, or of a claim about gradients other than their values.
    expected: whether a disagreement is expected, so that confirming its worst entry is enough.
    forward_ad: whether the function is claimed to support forward mode. If not, `undefined_grad` tests reverse mode
        only.
    undefined_grad: whether second order includes undefined cotangents.
    non_contiguous: for second order: whether generated cotangents have gaps in memory. Each of these values is tested.
    whole: the names of derivatives of `FURTHER` whose whole Jacobians are compared. For others, a look along one
        random direction comes first: the whole Jacobian is compared only if the look fails.
    reference: for `backward`: another function of the leaves with the same outputs, which autograd can differentiate.

    A failure of a batch is confirmed by ordinary calls. Passes on the exceptions of the function.
    """
    try:
        match name:
            case "batched_grad":
                return batching(point, "reverse")
            case "batched_forward_grad":  # a sparse tensor cannot carry a tangent, but its elements can
                return batching(point.derived(), "forward")
            case "undefined_grad":
                disagreement = undefined_in(point, "reverse")
                return disagreement or (undefined_in(point, "forward") if forward_ad else None)
            case "grad_dtypes":
                return attributes(point)
            case "nondeterminism":
                return nondeterminism(point, numbers.nondeterminism)
        steps, mode = derivative_of(name)
        if steps == OF_PULLBACK:
            gaps = tuple(non_contiguous) if point.cotangents is None else (False,)
            return _of_pullback(point, mode, numbers, gaps, undefined_grad, expected)
        derivative = point.derived(*steps)
        is_dense = are_strided(point.leaves)
        if name in FURTHER and name not in whole and is_dense:
            one = Comparison(derivative.along_one, mode, numbers)
            if one.holds_closely:
                return None
            if expected and one.is_far_off:  # ordinary calls: no confirmation is needed
                return Disagreement("the derivatives along a random direction differ")
        disagreement = compare(derivative, mode, numbers, expected=expected)
        if disagreement is None and reference is not None:
            disagreement = unlike_reference(derivative, reference, numbers)
        return memory_of_cotangents(derivative) if disagreement is None and name == "backward" else disagreement
    except DependsOnPattern as error:
        return Disagreement(str(error))
    except OtherShapes as error:
        return Disagreement(f"{error}\nmove the sample away from there", "inconclusive")


def extent_compared(name: str, point: Point) -> Extent | None:
    """Return how much of a Jacobian has been compared; None if nothing, or only one direction, has."""
    place = derivative_named(name)
    if place is None:
        return None
    steps: list[tuple[Step, ...]] = [place[0], WITH_GAPS] if place[0] == OF_PULLBACK else [place[0]]
    made = (point.made.get(own, None if own else point) for own in steps)
    return next((one.compared for one in made if one is not None and one.compared), None)


def lost_digits(name: str, point: Point, numbers: Numbers) -> Disagreement | None:
    """Return why a Jacobian is wrong, or has fewer digits than arithmetic in its dtype allows; None if neither."""
    steps, mode = derivative_of(name)
    derivative = point.derived(*steps)
    return compare(derivative, mode, numbers) or digits_lost(derivative, mode, numbers)


def lets_wrong_sign_pass(name: str, point: Point, numbers: Numbers) -> bool:
    """Return whether the tolerances would accept the negative of a Jacobian.

    False for claims that are not about a Jacobian, and for leaves whose elements cannot be moved. Passes on the
    exceptions of the function.
    """
    place = derivative_named(name)
    if place is None or not are_movable(point.leaves):
        return False
    return passes_negated(point.derived(*place[0]).numerical(numbers.eps).jacobian, numbers)


def _of_pullback(
    point: Point, mode: Mode, numbers: Numbers, gaps: Sequence[bool], undefined_grad: bool, expected: bool
) -> Disagreement | None:
    """Compare the Jacobians of the pullback, for contiguous and non-contiguous cotangents."""
    derivative = point.derived(*(WITH_GAPS if gaps[0] else OF_PULLBACK))
    disagreement = compare(derivative, mode, numbers, expected=expected)
    if disagreement or mode == "forward":
        return disagreement
    # The Jacobian is known to be right. One random direction shows whether it is the same for cotangents with gaps.
    again = point.derived(*WITH_GAPS) if len(gaps) > 1 else derivative
    if not _agree(derivative, again):
        disagreement = compare(again, mode, numbers, expected=expected)
        if disagreement:
            return disagreement
    return undefined_in(derivative, "reverse") if undefined_grad else None


def _agree(one: Point, other: Point) -> bool:
    got, expected, values = other.product("reverse"), one.product("reverse"), one.value
    rounding, size = one.rounding, float(one.analytical("reverse").jacobian.abs().sum())
    return same(values, other.value, rounding, rounding) and same(got, expected, rounding, rounding * size)
