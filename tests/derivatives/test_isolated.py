"""The second look at projections that agree: one wrong entry of a large Jacobian without structure."""

import pytest
import torch
from operators.asking import Request, check_claim

from opcheck.derivatives import Coverage
from opcheck.derivatives.check_claim import derivative_named
from opcheck.derivatives.tolerances import DOUBLE

SIZE = 1000
ERROR = 0.004  # of entry (5, 999), which is zero: projections allow about as much


class Running(torch.autograd.Function):
    """The running sum of sines, which has no independent slices."""

    wrong = 0.0

    @staticmethod
    def forward(x):
        return x.sin().cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @classmethod
    def backward(cls, ctx, v):
        (x,) = ctx.saved_tensors
        gradient = v.flip(0).cumsum(0).flip(0) * x.cos()
        return torch.cat([gradient[:-1], gradient[-1:] + cls.wrong * v[5]])

    @classmethod
    def jvp(cls, ctx, t):
        (x,) = ctx.saved_tensors
        tangent = (t * x.cos()).cumsum(0)
        return torch.cat([tangent[:5], tangent[5:6] + cls.wrong * t[-1], tangent[6:]])


class Wrong(Running):
    wrong = ERROR


def reference(x):
    return (x.sin().cumsum(0),)


def asked(check, function=Wrong, **keys):
    x = torch.linspace(0.1, 1, SIZE, dtype=torch.float64, requires_grad=True)
    request = Request(lambda x: (function.apply(x),), (x,), DOUBLE, leaf_names=("x",), **keys)
    point = request.point
    found = check_claim(check, request, point)
    assert point.derived(*derivative_named(check)[0]).compared == "projected"
    return found


def test_forward_mode_is_compared_with_differences_entry_by_entry():
    found = asked("forward_ad")
    assert "J u at output 0[5] is" in found.text
    assert "1 of 1000 entries of such products differ" in found.text
    assert asked("forward_ad", Running) is None


def test_reverse_mode_is_compared_with_a_differentiable_reference():
    found = asked("backward", reference=reference)
    assert "v J at x[999] is" in found.text
    assert "by the reference" in found.text
    assert "1 of 1000 entries of such products differ" in found.text
    assert asked("backward", Running, reference=reference) is None


def test_without_a_reference_there_is_nothing_to_compare_it_with():
    assert asked("backward") is None


@pytest.mark.parametrize(
    "other",
    [lambda x: (x.cos().cumsum(0),), lambda x: (x.detach().sin().cumsum(0),), lambda x: (x[:5],), lambda x: 1 / 0],
    ids=["another function", "detached", "other shapes", "raises"],
)
def test_a_reference_that_is_none_decides_nothing(other):
    assert asked("backward", Running, reference=other) is None


def test_higher_orders_are_no_business_of_the_reference():
    assert asked("rev_over_rev", Running, reference=reference, coverage=Coverage("projected")) is None


def test_a_spec_with_a_reference_has_it_looked_at(verdict_of):
    keys = 'reference = "torch.cumsum"\njacobian = "projected"\nsupports = { forward_ad = false }'
    samples = "samples = [{ args = [{ shape = [600] }, 0] }]"
    found = verdict_of("operators.isolated.cumsum", "backward", keys=keys, samples=samples)
    assert found.outcome == "failed"
    assert "v J at x[599] is" in found.message
    assert verdict_of("operators.isolated.right_cumsum", "backward", keys=keys, samples=samples).outcome == "passed"
