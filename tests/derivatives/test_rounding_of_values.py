"""Where values are so large that their rounding exceeds the tolerance, a larger step decides."""

import pytest
import torch
from operators import faulty
from operators.asking import Request, check_claim

from opcheck.derivatives import Coverage
from opcheck.derivatives.tolerances import DOUBLE, Numbers
from opcheck.derivatives.uncertainty import passes_negated

BOTH = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
LARGE = 1e6
"""Values of this size have a rounding of 1e-10, and differences with a step of 1e-6 are off by 1e-4."""


def ask(check, function, leaf, **more):
    return check_claim(check, Request(lambda x: (function(x),), (leaf,), DOUBLE, **more))


def factors(dtype, rows=()):
    return torch.arange(2.0, 10.0, dtype=torch.float64).to(dtype).expand(*rows, 8).clone().requires_grad_()


def constant(gradient, domain=float("inf")):
    """Return a function of rounding: its values are LARGE, its derivative is zero, and said to be `gradient`.

    domain: how far from 0.3 it is defined.
    """

    def value(x):
        if bool(((x - 0.3).abs() > domain).any()):
            raise ValueError("outside of the domain")
        grains = 1.5e-10 * torch.sin(1e9 * torch.view_as_real(x.to(torch.complex128)).sum(-1))
        return LARGE + grains.to(x.dtype)

    return faulty.function(value, lambda x, v: gradient * v)


def where(dtype, size=3):
    return torch.full((size,), 0.3, dtype=dtype, requires_grad=True)


@BOTH
def test_zeros_beside_large_values_hold(dtype):
    for check in ("rev_over_rev", "fwd_over_rev"):
        assert ask(check, torch.prod, factors(dtype)) is None


@BOTH
def test_a_right_derivative_holds_where_rounding_hides_it(dtype):
    assert ask("backward", constant(0.0), where(dtype)) is None


@BOTH
@pytest.mark.parametrize("gradient", [3e-5, 2e-4, 1e-3, 1.0])
def test_a_wrong_derivative_is_found_behind_the_rounding(dtype, gradient):
    found = ask("backward", constant(gradient), where(dtype))
    assert found is not None
    assert found.kind == "wrong"


@BOTH
@pytest.mark.parametrize("gradient", [0.5, 1.0])
def test_where_rounding_hides_everything_nothing_is_judged(dtype, gradient):
    large = 1e15 * (1 + 1j) if dtype.is_complex else 1e15
    found = ask("backward", faulty.function(lambda x: x + large, lambda x, v: gradient * v), where(dtype))
    assert found.kind == "inconclusive"
    assert "values as large as 1e+15 are rounded by more than differences may be off" in found.text


def recurrence(x, g, factor=1.0):
    """h[t] = exp(g[t]) h[t - 1] + x[t]: late values are large, and strongly curved in early g."""
    h, outputs = torch.zeros_like(x[0]), []
    for own, gate in zip(x, g, strict=True):
        h = gate.exp() * h + own
        outputs.append(h)
    y = torch.stack(outputs)
    return factor * y + (1 - factor) * y.detach()


@pytest.mark.parametrize(("factor", "kind"), [(1.0, "inconclusive"), (1.5, "wrong")])
def test_between_rounding_and_curvature_nothing_is_judged(factor, kind):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, dtype=torch.float64, generator=generator).requires_grad_()
    g = (0.9 * torch.rand(64, dtype=torch.float64, generator=generator)).requires_grad_()
    request = Request(lambda x, g: (recurrence(x, g, factor),), (x, g), DOUBLE)
    found = check_claim("backward", request, request.point)
    assert found.kind == kind, found.text


@BOTH
def test_a_derivative_that_no_rounding_explains_is_wrong_beside_any_value(dtype):
    found = ask("backward", faulty.function(lambda x: x + 1e15, lambda x, v: 1e12 * v), where(dtype))
    assert found.kind == "wrong"


@BOTH
def test_nothing_is_excused_where_no_larger_step_can_be_taken(dtype):
    assert ask("backward", constant(0.0, domain=5e-6), where(dtype)) is not None


# Of v J u a projection leaves e |v| |u| / sqrt(n) for errors e of n entries on the diagonal: it notices larger ones.
@pytest.mark.parametrize(
    ("jacobian", "gradient", "is_right"),
    [("auto", 0.0, True), ("auto", 2e-4, False), ("projected", 0.0, True), ("projected", 4e-4, False)],
)
def test_in_slices_and_projections_likewise(jacobian, gradient, is_right):
    function = faulty.function(lambda x: (LARGE + x) - x, lambda x, v: gradient * v)
    leaf = torch.linspace(0.1, 0.9, 3000, dtype=torch.float64).requires_grad_()
    request = Request(lambda x: (function(x),), (leaf,), DOUBLE, coverage=Coverage(jacobian=jacobian))
    point = request.point
    found = check_claim("backward", request, point)
    assert point.compared == ("structured" if jacobian == "auto" else "projected")
    assert (found is None) is is_right


def test_rows_of_large_products_hold():
    request = Request(lambda x: (x.prod(1),), (factors(torch.float64, [200]),), DOUBLE)
    point = request.point
    assert check_claim("rev_over_rev", request, point) is None
    assert point.derived("rev").compared == "structured"


@pytest.mark.parametrize(
    ("atol", "rtol", "jacobian", "excused"),
    [
        (1e-5, 1e-3, [1.0, 2.0], False),
        (5.0, 0.0, [1.0, -2.0], True),
        (5.0, 0.0, [1.0, 3.0], False),
        (0.0, 2.0, [1.0, 3.0], True),
        (1.0, 1.0, [1.0, 0.5], True),
        (1.0, 1.0, [1.0, 1.5], False),
        (5.0, 2.0, [0.0, 0.0], False),
    ],
)
def test_tolerances_that_let_the_negative_of_a_jacobian_pass_say_nothing(atol, rtol, jacobian, excused):
    numbers = Numbers(eps=1e-6, atol=atol, rtol=rtol)
    assert passes_negated(torch.tensor([jacobian], dtype=torch.float64), numbers) is excused
