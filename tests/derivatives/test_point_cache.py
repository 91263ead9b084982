"""A point knows a function and its derivatives, and what it knows does not depend on who else asks."""

import pytest
import torch
from operators import faulty
from operators.asking import Request, check_claim
from operators.closed_forms import Counted, leaf, real_jacobian

from opcheck.derivatives.check_claim import derivative_named, extent_compared, lets_wrong_sign_pass
from opcheck.derivatives.gradients import memory_of_cotangents
from opcheck.derivatives.tolerances import DOUBLE, Numbers

COMPLEX = torch.complex128
JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")


def test_evidence_is_made_once_for_each_derivative():
    found = Request(lambda x: (x.sin(),), (leaf(3),), DOUBLE).point
    assert found.derived("rev") is found.derived("rev")
    assert found.derived("rev") is not found.derived("rev with gaps")
    torch.testing.assert_close(found.derived("rev").leaves[1], found.derived("rev with gaps").leaves[1])


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("backward", ((), "reverse")),
        ("forward_ad", ((), "forward")),
        ("fwd_over_rev", (("rev",), "forward")),
        ("rev_over_fwd", (("fwd",), "reverse")),
        ("fwd_over_rev_over_rev", (("rev", "rev"), "forward")),
        ("rev_over_fwd_over_rev", (("rev", "fwd"), "reverse")),
    ],
)
def test_a_jacobian_is_named_by_its_modes_the_last_one_first(name, place):
    assert derivative_named(name) == place


@pytest.mark.parametrize("name", ["registration", "dice_over_craps", "rev_over_craps", "over", ""])
def test_other_checks_are_about_no_jacobian(name):
    assert derivative_named(name) is None


def kinds(function, checks, dtype):
    """Return what one point says to some claims about a function, one after another."""
    request, found = Request(lambda x: (function(x),), (leaf(3, dtype=dtype),), DOUBLE), {}
    point = request.point
    for check in checks:
        try:
            disagreement = check_claim(check, request, point)
            found[check] = disagreement and disagreement.kind
        except Exception as error:
            found[check] = type(error).__name__
    return found


FAULTY = ("missing_conjugate", "one_wrong_entry", "second_order_lost", "second_order_wrong", "wrong_jvp", "wrong_sign")
OTHERS = {
    "another function without a graph": lambda x: x.sin() if torch.is_grad_enabled() else 2 * x.sin(),
    "right": lambda x: x.sin() * x.sum(),
}
FUNCTIONS = {**{name: getattr(faulty, name) for name in FAULTY}, **OTHERS}


@pytest.mark.parametrize("dtype", [torch.float64, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_verdict_is_the_same_alone_and_after_others_in_any_order(name, dtype):
    function = FUNCTIONS[name]
    every = kinds(function, JACOBIANS, dtype)
    assert kinds(function, JACOBIANS[::-1], dtype) == every
    assert {check: kinds(function, [check], dtype)[check] for check in JACOBIANS} == every
    assert any(every.values()) is (name != "right") or dtype is not COMPLEX  # a missing conj() shows in complex alone


def refuse(x, v):
    raise RuntimeError("no second derivative")


@pytest.mark.parametrize("dtype", [torch.float64, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize("second", [lambda x, v: v * float("nan"), refuse], ids=["nan", "refused"])
def test_what_is_wrong_with_the_second_order_spoils_no_first_order(second, dtype):
    double = faulty.function(lambda x: 2 * x, second)
    function = faulty.function(faulty.square, lambda x, v: v * double(x).conj())
    x = leaf(3, dtype=dtype)
    found = Request(lambda x: (function(x),), (x,), DOUBLE).point
    assert found.analytical("reverse").batched
    torch.testing.assert_close(found.analytical("reverse").jacobian, real_jacobian(lambda x: (x * x,), [x]))


def test_evidence_serves_all_claims_but_what_needs_a_graph_makes_its_own():
    function = Counted(lambda x: (x.sin(),))
    request, costs = Request(function, (leaf(3),), DOUBLE), []
    point = request.point
    for claim in ("backward", "backward", "batched_grad"):
        before = function.calls
        assert check_claim(claim, request, point) is None
        costs.append(function.calls - before)
    assert costs[0] > 3
    assert costs[1:] == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float64, COMPLEX], ids=["real", "complex"])
def test_the_memory_of_cotangents_belongs_to_backward_alone(dtype):
    function, x = faulty.wrong_for_noncontiguous_cotangents, leaf(2, 3, dtype=dtype)
    asked = Request(lambda x: (function(x),), (x,), DOUBLE)
    assert "depends on the memory of the cotangent" in check_claim("backward", asked).text
    assert check_claim("masked", asked) is None
    assert check_claim("nondeterminism", asked) is None


def test_nothing_is_called_where_no_memory_of_cotangents_applies():
    function = Counted(lambda x: (x.sin(),))
    asked = Request(function, (leaf(3),), DOUBLE)
    point = asked.point
    assert point.value.shape == (3,)
    before = function.calls
    assert memory_of_cotangents(point, ("channels_last",)) is None
    assert function.calls == before
    assert memory_of_cotangents(point, ("noncontiguous",)) is None
    assert function.calls > before


def test_a_wide_tolerance_excuses_jacobians_alone():
    wide = Request(lambda x: (x.sin(),), (leaf(3),), Numbers(1e-6, 100.0, 100.0))
    assert lets_wrong_sign_pass("backward", wide.point, wide.numbers) is True
    assert lets_wrong_sign_pass("grad_dtypes", wide.point, wide.numbers) is False
    assert lets_wrong_sign_pass("backward", wide.point, DOUBLE) is False


@pytest.mark.parametrize("gaps", [(False,), (True,), (False, True)])
def test_how_much_was_compared_is_known_for_each_kind_of_cotangents(gaps):
    asked = Request(lambda x: (x.sin(),), (leaf(3),), DOUBLE, non_contiguous=gaps)
    point = asked.point
    assert extent_compared("rev_over_rev", point) is None
    assert check_claim("rev_over_rev", asked, point) is None
    assert extent_compared("rev_over_rev", point) == "full"
    assert extent_compared("grad_dtypes", point) is None


def test_to_say_how_much_was_compared_takes_no_call():
    calls = []
    x = torch.rand(2, 3).to_mkldnn().requires_grad_()
    point = Request(lambda x: calls.append(x) or (x.to_dense(),), (x,), DOUBLE).point
    assert extent_compared("backward", point) is None
    assert len(calls) == 1
