"""A point knows the function and its derivatives, and which modes of each will be asked for."""

import pytest
import torch
from operators.closed_forms import leaf

from opcheck.derivatives import Request, order
from opcheck.derivatives.numbers import DOUBLE
from opcheck.derivatives.point import Point


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
