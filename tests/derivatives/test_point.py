"""A point knows the function and its derivatives, and which modes of each will be asked for."""

import gc
import weakref

import pytest
import torch
from operators import faulty
from operators.closed_forms import leaf, real_jacobian

from opcheck.derivatives import Amount, BatchedEngine, Request, order
from opcheck.derivatives.numbers import DOUBLE
from opcheck.derivatives.point import Point

COMPLEX = torch.complex128
BOTH = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")
MODES = ("reverse", "forward")


def point(*jacobians):
    return Point(Request(lambda x: (x.sin(),), (leaf(3),), DOUBLE, jacobians=jacobians))


@pytest.mark.parametrize(
    ("claimed", "steps", "modes"),
    [
        (("backward",), (), {"reverse"}),
        (("backward", "forward_ad", "grad_dtypes"), (), {"reverse", "forward"}),
        (("backward", "rev_over_rev"), ("rev",), {"reverse"}),
        (("rev_over_rev", "fwd_over_rev"), ("rev",), {"reverse", "forward"}),
        (("rev_over_rev",), ("rev with gaps",), {"reverse"}),
        (("rev_over_rev", "fwd_over_fwd"), ("fwd",), {"forward"}),
        ((), (), {"reverse", "forward"}),
        (("backward",), ("rev",), {"reverse", "forward"}),  # nobody has said
    ],
)
def test_the_modes_are_those_of_the_claims_about_the_same_derivative(claimed, steps, modes):
    assert set(point(*claimed).evidence(*steps).modes) == modes


def test_evidence_is_made_once_for_each_derivative():
    found = point()
    assert found.evidence("rev") is found.evidence("rev")
    assert found.evidence("rev") is not found.evidence("rev with gaps")
    torch.testing.assert_close(found.evidence("rev").leaves[1], found.evidence("rev with gaps").leaves[1])


@pytest.mark.parametrize("name", ["registration", "dice_over_craps", "rev_over_craps", "over", ""])
def test_other_checks_are_about_no_jacobian(name):
    assert order(name) is None


# both orders in one batch


def mixed(x, z):
    return (x[:, None] * z.exp(), (z.conj() * z).real.sum(), x.sin() * x.sum())


FUNCTIONS = {
    "real": (lambda x: (x.sin() * x.sum(),), (leaf(5),)),
    "complex": (lambda z: (z.exp(),), (leaf(3, dtype=COMPLEX),)),
    "several": (mixed, (leaf(2), leaf(3, dtype=COMPLEX, seed=1))),
    "a number": (lambda x, y: ((x * y).sum(),), (leaf(3), leaf(3, seed=1))),
    "linear": (lambda x: (x.cumsum(0),), (leaf(4),)),
}
SHARED = pytest.mark.parametrize("name", FUNCTIONS)


def both_ways(name, jacobians=BOTH, **more):
    """Return points that know what will be asked for, and that do not."""
    function, leaves = FUNCTIONS[name]
    return (Point(Request(function, leaves, DOUBLE, jacobians=some, **more)) for some in (jacobians, ()))


@SHARED
@pytest.mark.parametrize("steps", [(), ("rev",)], ids=["function", "pullback"])
def test_one_batch_for_both_orders_says_what_one_for_each_says(name, steps):
    shared, apart = both_ways(name)
    one, other = shared.evidence(*steps), apart.evidence(*steps)
    assert one.part
    assert not other.part
    for mode in MODES:
        torch.testing.assert_close(
            one.part.rows(mode),
            other.analytical(mode).jacobian.mT if mode == "forward" else other.analytical(mode).jacobian,
        )
        assert one.analytical(mode).batched
        torch.testing.assert_close(one.analytical(mode).jacobian, other.analytical(mode).jacobian)
    torch.testing.assert_close(one.part.differences(1e-6).jacobian, one.numerical(1e-6).jacobian, rtol=0, atol=0)
    torch.testing.assert_close(one.numerical(1e-6).jacobian, other.numerical(1e-6).jacobian, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("claimed", "shared"),
    [
        (BOTH, True),
        (("backward", "rev_over_rev"), True),
        (("forward_ad", "fwd_over_rev"), True),
        (("backward", "forward_ad", "rev_over_rev"), False),  # forward over reverse may well be refused
        (("backward", "forward_ad"), False),
        (("rev_over_rev", "fwd_over_rev"), False),
        ((), False),
    ],
)
def test_both_orders_share_a_batch_where_the_same_modes_are_claimed_of_both(claimed, shared):
    found = point(*claimed)
    assert (found.evidence().part is not None) is shared
    assert (found.evidence("rev").part is not None) is shared
    assert found.evidence("rev with gaps").part is None
    assert found.evidence("rev", "rev").part is None


FAULTY = ("missing_conjugate", "one_wrong_entry", "second_order_lost", "second_order_wrong", "wrong_jvp", "wrong_sign")


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_wrong_is_wrong_whether_or_not_both_orders_share_a_batch(name):
    x = leaf(3, dtype=COMPLEX)
    asked = Request(lambda x: (getattr(faulty, name)(x),), (x,), DOUBLE)

    def kinds(jacobians):
        engine, found = BatchedEngine(), {}
        for check in BOTH:
            try:
                objection = engine.ask(check, asked.with_(jacobians=jacobians, key="one#0"))
                found[check] = objection and objection.kind
            except Exception as error:
                found[check] = type(error).__name__
        return found

    shared = kinds(BOTH)
    assert shared == kinds(())
    assert "wrong" in shared.values()


def refuse(x, v):
    raise RuntimeError("no second derivative")


@pytest.mark.parametrize("dtype", [torch.float64, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize("second", [lambda x, v: v * float("nan"), refuse], ids=["nan", "refused"])
def test_what_is_wrong_with_the_second_order_spoils_no_first_order(second, dtype):
    double = faulty.function(lambda x: 2 * x, second)
    function = faulty.function(faulty.square, lambda x, v: v * double(x).conj())
    x = leaf(3, dtype=dtype)
    found = Point(Request(lambda x: (function(x),), (x,), DOUBLE, jacobians=("backward", "rev_over_rev")))
    shared = found.evidence().part.rows("reverse")
    assert shared is None or bool(shared.isnan().any())
    assert found.evidence().analytical("reverse").batched
    torch.testing.assert_close(found.evidence().analytical("reverse").jacobian, real_jacobian(lambda x: (x * x,), [x]))


def test_where_both_together_are_too_large_each_has_its_own_batch():
    shared, _ = both_ways("real", amount=Amount(largest=5))
    assert shared.evidence().part.rows("reverse") is None
    assert shared.evidence().part.differences(1e-6) is None
    assert shared.evidence().analytical("reverse").batched
    assert shared.evidence().projections is None


def test_evidence_does_not_keep_its_point():
    shared, _ = both_ways("real")
    held, gone = shared.evidence(), weakref.ref(shared)
    assert held.analytical("reverse").batched
    gc.disable()
    try:
        del shared
        assert gone() is None
    finally:
        gc.enable()
