"""A sweep gives values, tangents and gradients of many points at once: those that each point alone gives."""

import pytest
import torch
from operators.closed_forms import leaf, real_jacobian
from operators.faulty import not_batchable

from opcheck.derivatives.autodiff import Primal, Pullback
from opcheck.derivatives.batching import sweep
from opcheck.derivatives.coordinates import vector

REAL, COMPLEX = torch.float64, torch.complex128
BATCHES = pytest.mark.parametrize("batch", [1, 2, 100])


def mixed(x, z):
    return (x[:, None] * z, (z.conj() * z).real.sum(), x.sin())


LEAVES = leaf(2), leaf(3, dtype=COMPLEX, seed=1)
OUTPUTS = mixed(*LEAVES)
M, N = len(vector(OUTPUTS)), len(vector(LEAVES))


def rows(count, size, seed):
    return torch.randn(count, size, dtype=REAL, generator=torch.Generator().manual_seed(seed))


def at(function, leaves, point):
    """Return the value and the Jacobian at a point."""
    x, z = (point[:2].clone(), torch.view_as_complex(point[2:].clone().reshape(3, 2)))
    moved = x.requires_grad_(), z.requires_grad_()
    return vector(function(*moved)), real_jacobian(function, moved)


@BATCHES
def test_each_row_has_a_point_a_tangent_and_a_cotangent_of_its_own(batch):
    points, tangents, cotangents = rows(5, N, 0), rows(5, N, 1), rows(5, M, 2)
    found = sweep(
        Primal(mixed, (0, 1, 2)), LEAVES, points, batch=batch, tangents=tangents, cotangents=cotangents, outputs=OUTPUTS
    )
    for row, point in enumerate(points):
        value, jacobian = at(mixed, LEAVES, point)
        torch.testing.assert_close(found.values[row], value)
        torch.testing.assert_close(found.tangents[row], jacobian @ tangents[row])
        torch.testing.assert_close(found.gradients[row], jacobian.T @ cotangents[row])


@BATCHES
def test_what_is_not_asked_for_is_not_there(batch):
    function, points = Primal(mixed, (0, 1, 2)), rows(3, N, 0)
    plain = sweep(function, LEAVES, points, batch=batch)
    assert plain.tangents is None
    assert plain.gradients is None
    forward = sweep(function, LEAVES, points, batch=batch, tangents=rows(3, N, 1))
    assert forward.gradients is None
    reverse = sweep(function, LEAVES, points, batch=batch, cotangents=rows(3, M, 1), outputs=OUTPUTS)
    assert reverse.tangents is None
    for other in (forward, reverse):
        torch.testing.assert_close(other.values, plain.values)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
def test_the_derivative_of_a_derivative_is_swept_in_both_modes(dtype):
    x, v = leaf(3, dtype=dtype), leaf(3, dtype=dtype, seed=1)
    function = Pullback(Primal(lambda x: (x**3,), (0,)), 1)
    point = vector((x, v)).unsqueeze(0)
    size = point.numel()
    found = sweep(
        function, (x, v), point.repeat(size, 1), batch=100, tangents=torch.eye(size, dtype=REAL),
        cotangents=torch.eye(size // 2, dtype=REAL).repeat(2, 1), outputs=function(x, v),
    )  # fmt: skip
    expected = real_jacobian(lambda x, v: ((3 * x**2).conj() * v,), (x, v))
    torch.testing.assert_close(found.tangents.T, expected)
    torch.testing.assert_close(found.gradients[: size // 2], expected)


def test_an_output_without_derivative_has_tangents_and_gradients_of_zero():
    x = leaf(2)
    function = Primal(lambda x: (torch.zeros(2, dtype=REAL),), (0,))
    ones = torch.ones(1, 2, dtype=REAL)
    found = sweep(
        function, (x,), vector((x,)).unsqueeze(0), batch=1, tangents=ones, cotangents=ones, outputs=function(x)
    )
    assert not found.tangents.any()
    assert not found.gradients.any()


def test_the_points_that_were_given_stay_as_they_are():
    points = rows(3, N, 0)
    before = points.clone()
    sweep(
        Primal(mixed, (0, 1, 2)), LEAVES, points, batch=100, tangents=rows(3, N, 1), cotangents=rows(3, M, 2),
        outputs=OUTPUTS,
    )  # fmt: skip
    assert torch.equal(points, before)
    assert not points.requires_grad


def test_what_cannot_be_batched_is_an_error():
    x = leaf(4)
    with pytest.raises(RuntimeError, match="vmap"):
        sweep(Primal(lambda x: (not_batchable(x),), (0,)), (x,), vector((x,)).repeat(2, 1), batch=2)
