"""A point knows a function and its derivatives, and what it knows does not depend on who else asks."""

import pytest
import torch
from operators import faulty
from operators.closed_forms import leaf, real_jacobian

from opcheck.derivatives import Request
from opcheck.derivatives.question import DOUBLE
from opcheck.engines import BatchedEngine, order
from opcheck.engines.batched_engine import Point

COMPLEX = torch.complex128
JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")


@pytest.mark.parametrize(
    ("forward_ad", "steps", "modes"),
    [
        (True, (), ("reverse", "forward")),
        (False, (), ("reverse",)),
        (True, ("rev",), ("reverse", "forward")),
        (False, ("rev with gaps",), ("reverse",)),
        (True, ("sum",), ("reverse",)),
    ],
)
def test_the_modes_are_those_that_the_function_is_claimed_to_support(forward_ad, steps, modes):
    asked = Request(lambda x: (x.sin(),), (leaf(3),), DOUBLE, forward_ad=forward_ad)
    assert tuple(Point(asked).evidence(*steps).modes) == modes


def test_evidence_is_made_once_for_each_derivative():
    found = Point(Request(lambda x: (x.sin(),), (leaf(3),), DOUBLE))
    assert found.evidence("rev") is found.evidence("rev")
    assert found.evidence("rev") is not found.evidence("rev with gaps")
    torch.testing.assert_close(found.evidence("rev").leaves[1], found.evidence("rev with gaps").leaves[1])


@pytest.mark.parametrize("name", ["registration", "dice_over_craps", "rev_over_craps", "over", ""])
def test_other_checks_are_about_no_jacobian(name):
    assert order(name) is None


def kinds(function, checks, dtype):
    """Return what one engine says to some checks of a function, one after another."""
    engine, found = BatchedEngine(), {}
    asked = Request(lambda x: (function(x),), (leaf(3, dtype=dtype),), DOUBLE, key="one#0")
    for check in checks:
        try:
            objection = engine.ask(check, asked)
            found[check] = objection and objection.kind
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
    found = Point(Request(lambda x: (function(x),), (x,), DOUBLE))
    assert found.evidence().analytical("reverse").batched
    torch.testing.assert_close(found.evidence().analytical("reverse").jacobian, real_jacobian(lambda x: (x * x,), [x]))
