"""Two Jacobians agree where |a - n| <= atol + rtol |n|, the modulus taken over both parts of a complex input."""

import pytest
import torch
from operators import faulty
from operators.asking import Request, check_claim
from operators.closed_forms import leaf

from opcheck.derivatives import Coverage, Numbers
from opcheck.derivatives.coordinates import largest_difference, same
from opcheck.derivatives.tolerances import DOUBLE
from opcheck.derivatives.uncertainty import allowed, excess

REAL, COMPLEX = torch.float64, torch.complex128
NAN, INFINITE = float("nan"), float("inf")
NUMBERS = Numbers(eps=1e-6, atol=0.5, rtol=0.01)
TWO_REAL, ONE_COMPLEX = [leaf(2)], [leaf(1, dtype=COMPLEX)]


def t(*rows):
    return torch.tensor(rows, dtype=REAL)


def wrong(analytical, numerical, leaves):
    return excess(analytical, numerical, leaves, NUMBERS) > 0


def judged_right(analytical, numerical, leaves):
    return not bool(wrong(analytical, numerical, leaves).any())


@pytest.mark.parametrize(
    ("off", "right"),
    [([0.0, 0.0], True), ([1.49, 0.0], True), ([1.51, 0.0], False), ([0.0, 0.49], True), ([0.0, 0.51], False),
     ([-1.51, 0.0], False), ([0.0, NAN], False), ([INFINITE, 0.0], False)],
)  # fmt: skip
def test_a_real_entry_is_measured_by_itself(off, right):
    numerical = t([100.0, 0.0])
    assert judged_right(numerical + t(off), numerical, TWO_REAL) is right


@pytest.mark.parametrize(
    ("off", "right"),
    [
        ([1.49, 0.0], True),
        ([0.0, 1.49], True),  # a small imaginary part is measured beside its real part
        ([0.0, 1.51], False),
        ([1.2, 1.2], False),  # each part by itself would be allowed
        ([1.0, 1.0], True),
        ([0.0, NAN], False),
    ],
)
def test_a_complex_entry_is_measured_by_its_modulus(off, right):
    numerical = t([100.0, 0.0])
    assert judged_right(numerical + t(off), numerical, ONE_COMPLEX) is right


@pytest.mark.parametrize(("off", "right"), [([0, 0.6, 0, 0], False), ([0, 0, 0, 0.6], True), ([0.6, 0, 0, 0], True)])
def test_beside_each_other_each_input_has_its_own_measure(off, right):
    numerical = t([100.0, 0.0, 100.0, 0.0])
    leaves = [*TWO_REAL, *ONE_COMPLEX]
    assert judged_right(numerical + t(off), numerical, leaves) is right
    swapped = torch.cat([numerical[:, 2:], numerical[:, :2]], 1)
    off = t([*off[2:], *off[:2]])
    assert judged_right(swapped + off, swapped, [*ONE_COMPLEX, *TWO_REAL]) is right


def test_what_is_allowed_is_of_the_numerical_entry():
    assert allowed(t([100.0, -200.0]), TWO_REAL, NUMBERS).tolist() == [[1.5, 2.5]]
    assert allowed(t([30.0, -40.0]), ONE_COMPLEX, NUMBERS).tolist() == [[1.0, 1.0]]
    assert not judged_right(t([0.0, 0.0]), t([0.6, 0.0]), TWO_REAL)
    assert judged_right(t([1000.0, 0.0]), t([1010.5, 0.0]), TWO_REAL)
    assert not judged_right(t([1010.7, 0.0]), t([1000.0, 0.0]), TWO_REAL)


def test_the_excess_is_what_lies_beyond_the_tolerance():
    assert excess(t([2.0, 0.4]), t([1.0, 0.0]), TWO_REAL, NUMBERS).tolist() == [[pytest.approx(0.49), 0.0]]
    assert excess(t([3.0, 4.0]), t([0.0, 0.0]), ONE_COMPLEX, NUMBERS).tolist() == [[4.5, 4.5]]
    assert excess(t([NAN, INFINITE]), t([0.0, 0.0]), TWO_REAL, NUMBERS).tolist() == [[INFINITE, INFINITE]]


def test_of_a_complex_entry_the_parts_that_differ_are_marked():
    numerical = t([0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0])
    analytical = t([0.0, 0.0, 0.1, 9.0], [0.0, 0.0, 0.0, 9.0])
    both_parts, one_part = [False, False, True, True], [False, False, False, True]
    assert wrong(analytical, numerical, [leaf(2, dtype=COMPLEX)]).tolist() == [both_parts, one_part]
    assert wrong(analytical, numerical, [leaf(4)]).tolist() == [one_part, one_part]
    beside = [leaf(1), leaf(1), leaf(1, dtype=COMPLEX)]
    assert wrong(analytical, numerical, beside).tolist() == [both_parts, one_part]


@pytest.mark.parametrize(
    ("analytical", "numerical", "right"),
    [(INFINITE, INFINITE, True), (-INFINITE, INFINITE, False), (1.0, INFINITE, False), (INFINITE, 1.0, False),
     (NAN, INFINITE, False), (NAN, NAN, False), (1.0, NAN, False)],
)  # fmt: skip
def test_what_is_infinite_agrees_with_itself_alone_and_no_number_with_nothing(analytical, numerical, right):
    assert judged_right(t([analytical, 0.0]), t([numerical, 0.0]), TWO_REAL) is right


@pytest.mark.parametrize("coverage", [Coverage(), Coverage("projected")], ids=["full", "projected"])
def test_a_finite_gradient_is_wrong_where_differences_are_infinite(coverage):
    function = faulty.function(lambda x: torch.where(x > 1, INFINITE, x), lambda x, v: v)
    x = torch.tensor([0.5, 1.0, 0.7], dtype=REAL, requires_grad=True)
    found = check_claim("backward", Request(lambda x: (function(x),), (x,), DOUBLE, coverage=coverage))
    assert found is not None
    assert found.kind in ("wrong", "inconclusive")


def gradient_off_by(off):
    """100 z, with a gradient that is off."""
    return faulty.function(lambda z: 100 * z, lambda z, v: v * (100 + off))


@pytest.mark.parametrize(("off", "right"), [(0.09j, True), (0.11j, False), (0.08 + 0.08j, False)])
def test_so_it_is_for_gradients_of_complex_inputs(off, right):
    request = Request(lambda z: (gradient_off_by(off)(z),), (leaf(3, dtype=COMPLEX),), DOUBLE)
    found = check_claim("backward", request)
    assert (found is None) is right


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [(1.0, 1.0, True), (1.0, 1.05, True), (1.0, 1.3, False), (100.0, 109.0, True), (100.0, 112.0, False),
     (NAN, NAN, True), (NAN, 1.0, False), (1.0, NAN, False), (INFINITE, INFINITE, True), (INFINITE, 1.0, False)],
)  # fmt: skip
def test_the_same_up_to_rounding(one, other, is_same):
    assert same(t([one, 0.0]), t([other, 0.0]), 0.1, 0.1) is is_same


def test_the_largest_difference():
    assert largest_difference(t([1.0, -2.0]), t([1.5, -5.0])) == 3.0
    assert largest_difference(t([]), t([])) == 0.0
    assert largest_difference(t([NAN, 0.0]), t([1.0, 0.0])) != largest_difference(t([NAN, 0.0]), t([1.0, 0.0]))
