"""What guards a batch: it is held against ordinary calls to rounding, whatever the tolerance of the comparison."""

import pytest
import torch
from operators import faulty
from operators.asking import Request, check_claim
from operators.closed_forms import leaf

from opcheck.derivatives import Coverage
from opcheck.derivatives.autodiff import Primal
from opcheck.derivatives.point import Point
from opcheck.derivatives.tolerances import DOUBLE

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

REAL = torch.float64
COVERAGES = pytest.mark.parametrize("coverage", [Coverage(), Coverage("projected")], ids=["full", "projected"])


class Scaled(torch.autograd.Function):
    """2x, whose batching rule is off by a factor, as one in single precision is."""

    factor = 1.0

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return Scaled.apply(v)

    @staticmethod
    def jvp(ctx, t):
        return Scaled.apply(t)

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * Scaled.factor * x, in_dims[0]


@COVERAGES
@pytest.mark.parametrize("check", ["backward", "forward_ad"])
@pytest.mark.parametrize("off", [1e-10, 1e-7, 1e-5])
def test_digits_that_a_batching_rule_loses_are_not_those_of_the_derivative(monkeypatch, check, off, coverage):
    monkeypatch.setattr(Scaled, "factor", 1 + off)
    x = leaf(5)
    assert check_claim(check, Request(lambda x: (Scaled.apply(x),), (x,), DOUBLE, coverage=coverage)) is None
    found = Point(Primal(lambda x: (Scaled.apply(x),), (0,)), (x,), coverage=coverage)
    assert not found.analytical("reverse" if check == "backward" else "forward").batched


@pytest.mark.parametrize("check", ["backward", "forward_ad"])
def test_rounding_is_no_reason_to_leave_the_batch(monkeypatch, check):
    monkeypatch.setattr(Scaled, "factor", 1 + 1e-15)
    found = Point(Primal(lambda x: (Scaled.apply(x),), (0,)), (leaf(5),))
    assert found.analytical("reverse" if check == "backward" else "forward").batched


@COVERAGES
@pytest.mark.parametrize("check", ["backward", "forward_ad"])
def test_no_derivative_is_blamed_for_a_wrong_batching_rule_that_no_value_shows(monkeypatch, check, coverage):
    monkeypatch.setattr(Scaled, "factor", 1.5)
    x = torch.full((5,), 1e-8, dtype=REAL, requires_grad=True)  # 2x and 3x are the same to six digits after the point
    assert check_claim(check, Request(lambda x: (Scaled.apply(x),), (x,), DOUBLE, coverage=coverage)) is None


class Tripled(torch.autograd.Function):
    """2x, with a gradient, a tangent and a batching rule of 3x."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return 3 * v

    @staticmethod
    def jvp(ctx, t):
        return 3 * t

    @staticmethod
    def vmap(info, in_dims, x):
        return 3 * x, in_dims[0]


@COVERAGES
@pytest.mark.parametrize("check", ["backward", "forward_ad"])
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-4])
def test_a_wrong_batching_rule_that_agrees_with_a_wrong_derivative_hides_nothing(check, size, coverage):
    x = torch.full((5,), size, dtype=REAL, requires_grad=True)
    found = check_claim(check, Request(lambda x: (Tripled.apply(x),), (x,), DOUBLE, coverage=coverage))
    assert found.kind == "wrong"


# cotangents in other memory


def stride_zero(v):
    return v.dim() > 0 and not any(v.stride())


def with_gaps(v):
    return any(v.stride()) and not v.is_contiguous()


@pytest.mark.parametrize("dtype", [REAL, torch.complex128], ids=["real", "complex"])
@pytest.mark.parametrize(
    ("special", "memory"), [(stride_zero, "an expanded (stride 0)"), (with_gaps, "a non-contiguous")]
)
def test_a_gradient_that_is_wrong_for_one_kind_of_memory_alone_is_found(special, memory, dtype):
    function = faulty.function(faulty.square, lambda x, v: faulty.right_vjp(x, v) * (1.01 if special(v) else 1))
    asked = Request(lambda x: (function(x),), (leaf(2, 3, dtype=dtype),), DOUBLE)
    text = check_claim("backward", asked).text
    assert text.startswith("the gradient of input 0 depends on the memory of the cotangent")
    assert f"{memory} cotangent gives one" in text


# kinks


def bent(steep, height):
    return lambda x: steep * x + height * x.abs()


@COVERAGES
@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (bent(1e-3, 1e-6), None),
        (bent(1e-3, 1e-3), "inconclusive"),
        (bent(1e3, 0.2), None),  # beside a large derivative
        (bent(1e3, 10), "inconclusive"),
        (lambda x: (1e3 * x).sin().abs(), "inconclusive"),  # far away there is nothing like it
    ],
)
def test_a_kink_is_one_where_it_bends_by_more_than_the_tolerance(function, kind, coverage):
    x = torch.zeros(5, dtype=REAL, requires_grad=True)
    found = check_claim("backward", Request(lambda x: (function(x),), (x,), DOUBLE, coverage=coverage))
    assert (found and found.kind) == kind


class BentInBatches(Tripled):
    """2x, whose batching rule has a kink at 0."""

    @staticmethod
    def backward(ctx, v):
        return 2 * v

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x + 10 * x.abs(), in_dims[0]


@COVERAGES
def test_a_kink_of_the_batching_rule_is_none_of_the_function(coverage):
    x = torch.zeros(5, dtype=REAL, requires_grad=True)
    asked = Request(lambda x: (BentInBatches.apply(x),), (x,), DOUBLE, coverage=coverage)
    assert check_claim("backward", asked) is None


# confirmed by ordinary calls


def few(v):
    return 1 + 1e-6 * (v.ne(0).sum() < 2).to(v.dtype)


def test_what_an_undefined_cotangent_or_tangent_gives_is_held_against_an_ordinary_call():
    # Within the tolerance, and yet not what the Jacobian, made of unit vectors, says to rounding.
    function = faulty.function(lambda x: 2 * x, lambda x, v: 2 * v * few(v), lambda x, t: 2 * t * few(t))
    asked = Request(lambda x, y: (function(x), function(y)), (leaf(3), leaf(3, seed=1)), DOUBLE)
    assert check_claim("undefined_grad", asked) is None
