"""Differences converge to closed forms, and tell kinks and jumps from curvature."""

import pytest
import torch
from operators.closed_forms import leaf, numbers, real_jacobian

from opcheck.derivatives.autodiff import Primal
from opcheck.derivatives.coordinates import vector
from opcheck.derivatives.cotangents import directions, probe
from opcheck.derivatives.differences import OtherShapes, batched, differences, looped, stencil
from opcheck.derivatives.uncertainty import error_estimate, kinks

REAL, COMPLEX = torch.float64, torch.complex128
STEP = 1e-6
BATCHES = pytest.mark.parametrize("batch", [0, 1, 4, 1000])


def of(function, *leaves, step=STEP, batch=1000, count=None):
    outputs = function(*leaves)
    points = stencil(vector(leaves), directions(len(vector(leaves)), count), step)
    primal = Primal(function, tuple(range(len(outputs))))
    if batch == 0:
        return differences(looped(primal, leaves, points, len(vector(outputs))), step)
    return differences(batched(primal.rows, points, leaves, batch), step)


def at(*values):
    return torch.tensor(values, dtype=REAL, requires_grad=True)


def mixed(x, z):
    return (x[:, None] * z, (z.conj() * z).real.sum(), x.sin())


@BATCHES
def test_central_differences_are_the_jacobian(batch):
    leaves = leaf(2), numbers(3, dtype=COMPLEX, seed=1).conj().requires_grad_()
    found = of(mixed, *leaves, batch=batch)
    torch.testing.assert_close(found.jacobian, real_jacobian(mixed, leaves), rtol=0, atol=1e-8)


@BATCHES
@pytest.mark.parametrize(
    "make",
    [
        lambda: numbers(3, 2).t(),
        lambda: numbers(1, 2, 2, 1).to(memory_format=torch.channels_last),
        lambda: numbers(2, 6)[:, ::2],
        lambda: numbers(),
        lambda: numbers(0, 3),
    ],
    ids=["transposed", "channels last", "with gaps", "rank 0", "empty"],
)
def test_the_function_is_evaluated_at_tensors_like_the_leaf(make, batch):
    x, seen = make().requires_grad_(), []

    def spy(x):
        seen.append((x.stride(), x.is_contiguous()))
        return (x.exp(),)

    found = of(spy, x, batch=batch)
    torch.testing.assert_close(found.jacobian, torch.diag(x.detach().exp().reshape(-1)), rtol=0, atol=1e-8)
    if x.numel():
        assert set(seen) == {(x.stride(), x.is_contiguous())}


@BATCHES
def test_the_leaf_is_left_alone_even_where_the_output_is_a_view_of_it(batch):
    x = at(1.0, 2.0)
    found = of(lambda x: (x[1:],), x, batch=batch)
    torch.testing.assert_close(found.jacobian, torch.tensor([[0.0, 1.0]], dtype=REAL), rtol=0, atol=1e-9)
    assert x.tolist() == [1.0, 2.0]


def test_one_sided_differences_lie_on_either_side_of_the_central_ones():
    found = of(lambda x: (x**2,), at(3.0), step=1e-3)
    assert found.right.item() == pytest.approx(6 + 1e-3)
    assert found.left.item() == pytest.approx(6 - 1e-3)
    assert found.jacobian.item() == pytest.approx(6, abs=1e-10)


def test_the_bend_is_the_step_times_the_second_derivative():
    found = of(lambda x: (x**2, 5 * x), at(3.0), step=1e-3)
    torch.testing.assert_close(found.bend, torch.tensor([[2e-3], [0.0]], dtype=REAL), rtol=0, atol=1e-11)
    assert found.most_bend == pytest.approx(2e-3)


def test_the_bend_of_nothing_is_zero():
    assert of(lambda x: (x,), leaf(0)).most_bend == 0.0


def test_a_bend_that_is_no_number_is_seen():
    assert of(lambda x: (x.sqrt(), x), at(0.0)).most_bend != of(lambda x: (x.sqrt(), x), at(0.0)).most_bend


def test_differences_along_random_directions_are_the_jacobian_times_these():
    matrix = numbers(4, 6, seed=2)
    found = of(lambda x: (matrix @ x,), leaf(6), count=3)
    torch.testing.assert_close(found.jacobian, matrix @ directions(6, 3).T, rtol=0, atol=1e-8)


# kinks


def kinky(function, x, allowed=1e-5, step=STEP):
    fine, coarse = of(function, x, step=step), of(function, x, step=2 * step)
    return kinks(fine, coarse, torch.full_like(fine.bend, allowed))


@pytest.mark.parametrize(
    "function",
    [torch.abs, torch.relu, lambda x: torch.nn.functional.leaky_relu(x, 0.5), lambda x: x.abs().sqrt()],
    ids=["abs", "relu", "leaky_relu", "a cusp"],
)
def test_a_kink_is_found_where_it_is_and_nowhere_else(function):
    mask = kinky(lambda x: (function(x),), at(-1.0, 0.0, 2.0))
    assert mask.nonzero().tolist() == [[1, 1]]


@pytest.mark.parametrize(
    "function",
    [torch.floor, torch.ceil, lambda x: torch.heaviside(x, x * 0), torch.sign],
    ids=["floor", "ceil", "heaviside", "sign"],
)
def test_a_jump_is_found_where_it_is_and_nowhere_else(function):
    mask = kinky(lambda x: (function(x) + x,), at(-0.5, 0.0, 0.25))
    assert mask.nonzero().tolist() == [[1, 1]]


def test_a_tie_is_a_kink_in_each_of_the_inputs_that_tie():
    mask = kinky(lambda x: (x.amax(),), at(1.0, 1.0, 0.5))
    assert mask.tolist() == [[True, True, False]]


def test_a_kink_beside_the_point_is_a_kink_where_the_differences_step_over_it():
    assert kinky(lambda x: ((x - STEP / 20).abs(),), at(0.0)).all()
    assert not kinky(lambda x: ((x - 3 * STEP).abs(),), at(0.0)).any()


@pytest.mark.parametrize(
    "function",
    [lambda x: (100 * x).exp(), lambda x: 1e3 * x**2, lambda x: 1e6 * x**3, lambda x: 1 / x, lambda x: (1e4 * x).sin()],
    ids=["exp(100x)", "1000x^2", "10^6x^3", "1/x", "sin(10000x)"],
)
def test_curvature_is_no_kink(function):
    x = at(0.3, 0.01)
    fine = of(lambda x: (function(x),), x)
    assert fine.most_bend > 1e-5  # or there would be nothing to tell apart
    assert not kinky(lambda x: (function(x),), x).any()


@pytest.mark.parametrize(
    "function",
    [lambda x: x.sgn() * x.abs().sqrt(), lambda x: x.clamp(min=0).sqrt(), torch.sqrt],
    ids=["on both sides", "on one side", "and no number on the other side"],
)
def test_an_infinite_slope_is_neither_kink_nor_jump(function):
    assert not kinky(lambda x: (function(x),), at(0.0)).any()


def test_a_kink_within_what_is_allowed_is_none():
    assert not kinky(lambda x: (1e-6 * x.abs(),), at(0.0)).any()


# error estimates


@pytest.mark.parametrize("step", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize(
    ("function", "third"),
    [(torch.sin, 1), (torch.exp, 4.6), (lambda x: 1e3 * x.log(), 2e3 / 0.5**3)],
    ids=["sin", "exp", "1000 log"],
)
def test_the_estimate_bounds_the_error_and_not_by_much(function, third, step):
    x = leaf(20)
    value = function(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    fine, coarse = (of(lambda x: (function(x),), x, step=h) for h in (step, 2 * step))
    error = (fine.jacobian - torch.diag(slope)).abs()
    estimate = error_estimate(fine, [coarse], torch.finfo(torch.float64).eps)
    assert bool((error <= estimate + 1e-13).all())
    rounding = 1e-15 * float(value.detach().abs().max()) / step
    assert float(estimate.max()) <= step**2 * third + rounding


# directions


def test_directions_are_units_or_random_ones_that_stay_the_same():
    assert torch.equal(directions(3), torch.eye(3, dtype=REAL))
    random = directions(5, 4)
    assert random.shape == (4, 5)
    assert random.abs().max() <= 1
    assert random.abs().min() >= 0.5
    assert torch.equal(random, directions(5, 4))
    assert torch.linalg.matrix_rank(random) == 4
    assert not torch.equal(probe(5), probe(5, 1))


def test_random_directions_leave_the_generator_of_the_function_alone():
    torch.manual_seed(0)
    probe(7)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1))


def test_a_stencil_is_a_step_up_and_a_step_down_along_each_direction_and_no_step():
    assert stencil(torch.zeros(2, dtype=REAL), directions(2), 0.5).tolist() == [
        [0.5, 0],
        [0, 0.5],
        [-0.5, 0],
        [0, -0.5],
        [0, 0],
    ]


@pytest.mark.parametrize("side", [-1, 1])
def test_curvature_on_one_side_alone_is_no_kink(side):
    def function(x):
        return (torch.where(side * x > 0, 1e6 * x**2, 0 * x),)

    assert of(function, at(0.0)).most_bend > 1e-5
    assert not kinky(function, at(0.0)).any()


def test_outputs_of_other_shapes_nearby_have_no_differences():
    with pytest.raises(OtherShapes, match="the shapes of the outputs depend on the numbers"):
        of(lambda x: (x[x > 0],), at(0.0, 1.0), batch=0)
    assert of(lambda x: (x[x > 0],), at(-1.0, 1.0), batch=0).jacobian.tolist() == [[0.0, pytest.approx(1.0)]]
