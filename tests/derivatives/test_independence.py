"""The axes along which the slices of a function do not depend on each other are found, and no others are."""

import pytest
import torch
from operators.asking import Request, check_claim
from torch.nn import functional

from opcheck.derivatives import Coverage
from opcheck.derivatives.directions import Axis
from opcheck.derivatives.independence import independent_axes
from opcheck.derivatives.tolerances import DOUBLE


def numbers(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=dtype)


def axes(function, *leaves):
    def values(*given):
        found = function(*given)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    request = Request(
        values, tuple(leaf.clone().requires_grad_() for leaf in leaves), DOUBLE, coverage=Coverage(largest=1)
    )
    found = request.point
    independent = independent_axes(found.at, found.looped_differences, found.unit, found.leaves, found.outputs)
    return [(axis.size, axis.outputs, axis.leaves) for axis in independent]


def batch_norm(x):
    return functional.batch_norm(x, None, None, training=True)


def positive(*shape):
    x = numbers(*shape)
    return x @ x.mT + torch.eye(shape[-1], dtype=x.dtype)


INDEPENDENT = {
    "sin": (torch.sin, [numbers(64, 8)], [(64, (0,), (0,)), (8, (1,), (1,))]),
    "complex sin": (torch.sin, [numbers(4097, dtype=torch.complex128)], [(4097, (0,), (0,))]),
    "of the domain of log": (torch.log, [numbers(600).abs() + 1e-3], [(600, (0,), (0,))]),
    "of the domain of acosh": (torch.acosh, [numbers(600).abs() + 1], [(600, (0,), (0,))]),
    "zeros": (torch.exp, [torch.zeros(600, dtype=torch.float64)], [(600, (0,), (0,))]),
    "two slices": (lambda x: x.cumsum(1), [numbers(2, 300)], [(2, (0,), (0,))]),
    "softmax": (lambda x: x.softmax(1), [numbers(64, 64)], [(64, (0,), (0,))]),
    "a row for each": (lambda x: x.sum(0), [numbers(64, 64)], [(64, (0,), (1,))]),
    "transposed": (lambda x: x.T.exp(), [numbers(64, 8)], [(8, (0,), (1,)), (64, (1,), (0,))]),
    "transposed, square": (lambda x: x.T.exp(), [numbers(64, 64)], [(64, (0,), (1,)), (64, (1,), (0,))]),
    "broadcast": (torch.add, [numbers(64, 8), numbers(8)], [(64, (0,), (0, None)), (8, (1,), (1, 0))]),
    "matmul": (torch.matmul, [numbers(32, 4), numbers(4, 32)], [(32, (0,), (0, None)), (32, (1,), (None, 1))]),
    "batch_norm, by channel": (lambda x: batch_norm(x), [numbers(64, 8)], [(8, (1,), (1,))]),
    "cholesky": (torch.linalg.cholesky, [positive(64, 3, 3)], [(64, (0,), (0,))]),
    "several outputs": (lambda x: x.split([3, 5], 1), [numbers(64, 8)], [(64, (0, 0), (0,))]),
    "flipped rows": (lambda x: x.flip(1), [numbers(64, 8)], [(64, (0,), (0,))]),
    "a diagonal": (torch.diag_embed, [numbers(600)], [(600, (0,), (0,))]),
}  # fmt: skip


@pytest.mark.parametrize(("function", "leaves", "expected"), INDEPENDENT.values(), ids=INDEPENDENT)
def test_independent_axes_are_found(function, leaves, expected):
    assert axes(function, *leaves) == expected


PERMUTATION = torch.randperm(600, generator=torch.Generator().manual_seed(0))
DEPENDENT = {
    "x times its sum": lambda x: x * x.sum(),
    "sum": lambda x: x.sum(),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort().values,
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1),
    "index_select": lambda x: x.index_select(0, PERMUTATION),
    "a faint sum": lambda x: x + 1e-9 * x.sum(),
    "one that needs another": lambda x: torch.cat([x[:599], (x[599] * x[5]).reshape(1)]),
    "the largest": lambda x: x / x.abs().max(),
    "softmax": lambda x: x.softmax(0),
    "batch_norm": lambda x: batch_norm(x.unsqueeze(1)),
    "random": lambda x: x * torch.rand(600, dtype=torch.float64),
    "other shapes": lambda x: x[x > 0],
}


@pytest.mark.parametrize("function", DEPENDENT.values(), ids=DEPENDENT)
def test_a_function_of_which_slices_depend_on_others_has_no_axes(function):
    assert axes(function, numbers(600)) == []


WITHOUT_A_DERIVATIVE = {
    "the neighbour's sign": lambda x: x * (x.roll(1) > 0),
    "the sign of one": lambda x: x * (x[300] > 0),
    "whether one is large": lambda x: torch.where(x[0].abs() > 0.5, x, 2 * x),
}


@pytest.mark.parametrize("function", WITHOUT_A_DERIVATIVE.values(), ids=WITHOUT_A_DERIVATIVE)
def test_a_dependence_without_a_derivative_at_the_point_does_not_count(function):
    """The Jacobian is block-diagonal all the same."""
    assert axes(function, numbers(600)) == [(600, (0,), (0,))]


def test_a_function_that_raises_for_other_inputs_has_no_axes():
    x = numbers(600)

    def picky(y):
        if not torch.equal(x, y):
            raise ValueError("no")
        return y.sin()

    assert axes(picky, x) == []


def test_any_two_slices_are_told_apart():
    """One slice that depends on one other one, whichever they are."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        one, other = torch.randperm(4097, generator=generator)[:2].tolist()

        def function(x, one=one, other=other):
            y = x.sin()
            y[one] += 1e-3 * x[other]
            return y

        assert axes(function, numbers(4097)) == []


def extent(function, *leaves, steps=(), **coverage):
    request = Request(lambda *x: (function(*x),), leaves, DOUBLE, coverage=Coverage(**coverage))
    return request.point.derived(*steps).directions.extent


def leaf(*shape):
    return numbers(*shape).requires_grad_()


def test_what_is_compared_is_full_then_structured_then_projected():
    assert extent(torch.sin, leaf(512)) == "full"
    assert extent(torch.sin, leaf(513)) == "structured"
    assert extent(lambda x: x.cumsum(0), leaf(513)) == "projected"
    assert extent(torch.sin, leaf(513), jacobian="projected") == "projected"
    assert extent(torch.sin, leaf(513), jacobian="full") == "full"


def test_the_gradient_is_a_function_with_axes_of_its_own():
    assert extent(torch.sin, leaf(300), steps=("rev",)) == "structured"
    assert extent(lambda x: x.softmax(1), leaf(256, 4), steps=("rev",)) == "structured"
    # The gradient of a weight is a sum over all slices.
    assert extent(functional.linear, leaf(256, 4), leaf(3, 4), steps=("rev",)) == "projected"


def test_slices_that_are_too_large_are_projected():
    assert extent(lambda x: x.softmax(1), leaf(4, 512)) == "structured"
    assert extent(lambda x: x.softmax(1), leaf(4, 513)) == "projected"
    assert extent(lambda x: x.softmax(1), leaf(4, 512), memory=1 << 20) == "projected"


@pytest.mark.parametrize("check", ["backward", "forward_ad"])
def test_a_function_taken_for_independent_that_is_not_is_never_called_wrong(check, monkeypatch):
    """No entry turns out to be wrong, when each is looked at by itself: projections decide."""
    false = (Axis(600, (0,), (0,)),)
    monkeypatch.setattr("opcheck.derivatives.point.independent_axes", lambda *_: false)
    request = Request(lambda x: (x * x.sum(),), (leaf(600),), DOUBLE)
    point = request.point
    assert point.directions.extent == "structured"
    assert check_claim(check, request, point) is None
    assert point.compared == "projected"
