"""Pullbacks and pushforwards equal closed forms, at one point and in batches, and so do their compositions."""

import itertools

import pytest
import torch
from operators.asking import Request
from operators.closed_forms import (
    SECOND_ORDER,
    flat,
    leaf,
    numbers,
    of_the_second_in_reverse,
    quartic,
    real_jacobian,
    unflat,
)

from opcheck.derivatives.autodiff import Primal, Pullback, gradient_sum, pushforward
from opcheck.derivatives.tolerances import DOUBLE

# torch.func scripts its decompositions when forward mode is first used.
pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
STEPS = pytest.mark.parametrize("steps", list(SECOND_ORDER), ids="_then_".join)


def mixed(x, z):
    """Two inputs and three outputs of several dtypes and shapes, none of them holomorphic in all inputs."""
    return (x[:, None] * z, (z.conj() * z).real.sum(), x.sin())


MIXED = (leaf(2), leaf(3, dtype=COMPLEX, seed=1))


def primal(function, count=1):
    return Primal(function, tuple(range(count)))


def derived(function, steps, counts):
    """Return the derivative that some steps lead to; `counts`: how many arguments each of the functions has."""
    for step, count in zip(steps, counts, strict=True):
        function = Pullback(function, count) if step == "rev" else pushforward(function)
    return function


def arguments(count, dtype, *, batch=(), grad=True):
    made = [numbers(*batch, 2, 2, dtype=dtype, seed=seed) for seed in range(count)]
    return [x.requires_grad_() for x in made] if grad else made


def close(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_primal_is_the_function_restricted_to_some_outputs():
    both = Primal(lambda x: (x, x + 1, x + 2), (0, 2))
    close(both(torch.zeros(2)), (torch.zeros(2), torch.full((2,), 2.0)))
    close(both.rows(torch.zeros(3, 2)), (torch.zeros(3, 2), torch.full((3, 2), 2.0)))


@BOTH
def test_a_pullback_is_the_conjugated_derivative_times_the_cotangent(dtype):
    x, v = arguments(2, dtype)
    close(Pullback(primal(quartic), 1)(x, v), ((4 * x**3).conj() * v,))


@BOTH
def test_a_pushforward_is_the_derivative_times_the_tangent(dtype):
    x, t = arguments(2, dtype)
    close(pushforward(primal(quartic))(x, t), (4 * x**3 * t,))


def test_with_several_inputs_and_outputs_both_are_the_jacobian():
    jacobian = real_jacobian(mixed, MIXED)
    outputs = mixed(*MIXED)
    cotangents = unflat(numbers(jacobian.shape[0], seed=3), outputs)
    tangents = unflat(numbers(jacobian.shape[1], seed=4), MIXED)
    pulled = Pullback(primal(mixed, 3), 2)(*MIXED, *cotangents)
    pushed = pushforward(primal(mixed, 3))(*MIXED, *tangents)
    close([flat(pulled)], [jacobian.T @ flat(cotangents)])
    close([flat(pushed)], [jacobian @ flat(tangents)])
    assert [g.dtype for g in pulled] == [REAL, COMPLEX]
    assert [t.dtype for t in pushed] == [COMPLEX, REAL, REAL]


@pytest.mark.parametrize("make", [lambda f: Pullback(f, 2), pushforward], ids=["pullback", "pushforward"])
def test_what_is_not_used_has_a_derivative_of_zero(make):
    function = make(primal(lambda x, y: (x * 2, torch.ones(2, dtype=REAL)), 2))
    x, y, v, w = (numbers(2, seed=seed) for seed in range(4))
    expected = torch.zeros(2, dtype=REAL)
    close(function(x, y, v, w), (2 * v, expected))
    batches = [torch.stack([a, a]) for a in (x, y, v, w)]
    close(function.rows(*batches), (torch.stack([2 * v] * 2), torch.stack([expected] * 2)))


def test_where_nothing_is_used_all_derivatives_are_zero():
    constant = primal(lambda x: (torch.ones(2, dtype=REAL),))
    for make in (lambda f: Pullback(f, 1), pushforward):
        assert not make(constant)(numbers(2), numbers(2))[0].any()


@BOTH
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)], ids=str)
def test_rank_zero_and_no_elements_are_shapes_like_others(shape, dtype):
    x, v = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1)
    close(Pullback(primal(quartic), 1)(x, v), ((4 * x**3).conj() * v,))
    close(pushforward(primal(quartic))(x, v), (4 * x**3 * v,))


@BOTH
@STEPS
def test_the_second_derivative_is_the_closed_form(steps, dtype):
    function = derived(primal(quartic), steps, (1, 2))
    given = arguments(4 if steps[1] == "fwd" else 3, dtype)
    close(function(*given), SECOND_ORDER[steps](*given))


@BOTH
@STEPS
def test_a_batch_of_second_derivatives_is_the_closed_form_of_each(steps, dtype):
    function = derived(primal(quartic), steps, (1, 2))
    given = arguments(4 if steps[1] == "fwd" else 3, dtype, batch=(3,))
    close(function.rows(*given), SECOND_ORDER[steps](*given))


@BOTH
def test_the_third_derivative_in_reverse_mode_throughout_is_the_closed_form(dtype):
    function = derived(primal(quartic), ("rev", "rev", "rev"), (1, 2, 3))
    given = arguments(5, dtype)
    close(function(*given), of_the_second_in_reverse(*given))
    given = arguments(5, dtype, batch=(3,))
    close(function.rows(*given), of_the_second_in_reverse(*given))


@BOTH
@pytest.mark.parametrize("mode", ["reverse", "forward"])
@STEPS
def test_a_third_derivative_in_any_mix_of_modes_is_the_jacobian_of_the_closed_form(steps, mode, dtype):
    evidence = point(quartic, leaf(2, dtype=dtype)).derived(*steps)
    expected = real_jacobian(SECOND_ORDER[steps], evidence.leaves)
    for _ in range(2):
        torch.testing.assert_close(evidence.analytical(mode).jacobian, expected, rtol=1e-10, atol=1e-10)
        evidence = evidence.without_batches()


@BOTH
@STEPS
def test_second_derivatives_are_the_same_where_no_gradients_are_recorded(steps, dtype):
    function = derived(primal(quartic), steps, (1, 2))
    given = arguments(4 if steps[1] == "fwd" else 3, dtype, grad=False)
    with torch.no_grad():
        found, batched = function(*given), function.rows(*(a.unsqueeze(0) for a in given))
    close(found, SECOND_ORDER[steps](*given))
    close([batch[0] for batch in batched], SECOND_ORDER[steps](*given))


def point(function, *leaves):
    return Request(function, leaves, DOUBLE).point


FUNCTIONS = {
    "mixed": (mixed, MIXED, 3),
    "transposed": (lambda x: ((x @ x).exp() / 9,), (numbers(2, 2).t().requires_grad_(),), 1),
    "channels last": (
        lambda x: (x * x.sum((2, 3), keepdim=True),),
        (numbers(1, 2, 2, 1).to(memory_format=torch.channels_last).requires_grad_(),),
        1,
    ),
    "conjugated": (lambda z: (z * z.abs(),), (numbers(2, dtype=COMPLEX).conj().requires_grad_(),), 1),
    "rank 0": (lambda x, y: (x.exp() * y.sum(),), (leaf(), leaf(3)), 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("steps", list(itertools.product(("rev", "fwd"), repeat=2)), ids="_then_".join)
def test_rows_are_what_a_loop_gives(name, steps):
    function, leaves, outputs = FUNCTIONS[name]
    first_order = len(leaves) + (outputs if steps[0] == "rev" else len(leaves))
    second_outputs = len(leaves) if steps[0] == "rev" else outputs
    composed = derived(primal(function, outputs), steps, (len(leaves), first_order))
    like = [*leaves, *(function(*leaves) if steps[0] == "rev" else leaves)]
    if steps[1] == "rev":
        like += list(leaves if steps[0] == "rev" else function(*leaves))[:second_outputs]
    else:
        like += like
    batches = [numbers(3, *a.shape, dtype=a.dtype, seed=seed).requires_grad_() for seed, a in enumerate(like)]
    rows = composed.rows(*batches)
    loop = [composed(*(batch[index] for batch in batches)) for index in range(3)]
    close(rows, [torch.stack(found) for found in zip(*loop, strict=True)])


def test_the_sum_of_gradients_is_a_number_whose_gradient_is_the_hessian_times_ones():
    x = leaf(3)
    total = lambda x: (x.prod() * x).sum()  # noqa: E731
    function = gradient_sum(primal(lambda x: (total(x),)), (total(x),), 1)
    hessian = torch.func.hessian(total)(x.detach())
    (found,) = function(x)
    close([found], [torch.func.grad(total)(x.detach()).sum()])
    close(torch.autograd.grad(found, x), [hessian.sum(0)])
    close(function.rows(torch.stack([x, x])), [found.expand(2)])


def test_the_sum_of_complex_gradients_adds_real_and_imaginary_parts():
    z = leaf(2, dtype=COMPLEX)
    function = gradient_sum(primal(quartic), quartic(z), 1)
    expected = flat([(4 * z**3).conj()]).sum()
    close(function(z), [expected])
    close(function.rows(z.unsqueeze(0)), [expected.reshape(1)])
