"""Maps onto manifolds, each against its definition in NumPy, and differentiable."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch.autograd import forward_ad
from torch.testing import make_tensor

from opcheck.samples.through import THROUGH
from opcheck.spec.recipe import Through

DTYPES = [torch.float64, torch.complex128]
EVERY = [*DTYPES, torch.float32, torch.complex64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
SHAPES = [(3, 3), (2, 3, 3), (1, 1)]
ROWS = ["log_simplex", "simplex", "unit_norm"]

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(1)
    return make_tensor(shape, dtype=dtype, device="cpu", low=-2, high=2)


def pairs(
    name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> list[tuple[NDArray[np.generic], NDArray[np.generic]]]:
    """Matrices before and after."""
    x = drawn(shape, dtype)
    y = THROUGH[name](x)
    assert (y.shape, y.dtype) == (x.shape, dtype)
    square = (-1, *shape[-2:])
    return list(zip(x.reshape(square).numpy(), y.reshape(square).resolve_conj().numpy(), strict=True))


def adjoint(matrix: NDArray[np.generic]) -> NDArray[np.generic]:
    return matrix.conj().T


def test_every_map_of_the_format_exists_and_no_other() -> None:
    assert set(THROUGH) == set(get_args(Through))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", get_args(Through))
def test_every_map_is_differentiable_in_both_modes_and_batched(name: str, dtype: torch.dtype) -> None:
    x = drawn((2, 2, 2), dtype).requires_grad_()
    assert torch.autograd.gradcheck(THROUGH[name], (x,), check_forward_ad=True, check_batched_grad=True)


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("name", get_args(Through))
def test_every_map_keeps_every_dtype(name: str, dtype: torch.dtype) -> None:
    assert THROUGH[name](drawn((2, 3, 3), dtype)).dtype is dtype


@pytest.mark.parametrize("name", get_args(Through))
@pytest.mark.parametrize("shape", [(0, 0), (0, 2, 2), (2, 0, 0)])
def test_every_map_takes_empty_tensors(name: str, shape: tuple[int, ...]) -> None:
    assert THROUGH[name](torch.ones(shape)).shape == shape


@pytest.mark.parametrize("name", ["symmetrize", "positive_definite", "orthogonal"])
@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (2, 3), (3,)])
def test_what_needs_a_square_matrix_refuses_other_shapes(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, RuntimeError, IndexError)):
        THROUGH[name](torch.ones(shape, dtype=torch.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
class TestMatrices:
    def test_symmetrize_gives_the_hermitian_part(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        for x, y in pairs("symmetrize", shape, dtype):
            assert np.array_equal(y, (x + adjoint(x)) / 2)

    def test_tril_and_triu_give_the_triangles(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        for name, expected in (("tril", np.tril), ("triu", np.triu)):
            for x, y in pairs(name, shape, dtype):
                assert np.array_equal(y, expected(x))

    def test_positive_diagonal_gives_a_cholesky_factor(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        for x, y in pairs("positive_diagonal", shape, dtype):
            np.testing.assert_allclose(np.diagonal(y), np.exp(np.diagonal(x).real), rtol=1e-12)
            assert np.array_equal(y - np.diag(np.diagonal(y)), np.tril(x, -1))
            np.testing.assert_allclose(np.linalg.cholesky(y @ adjoint(y)), y, atol=1e-10)

    def test_positive_definite_adds_the_identity_to_a_square(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        for x, y in pairs("positive_definite", shape, dtype):
            np.testing.assert_allclose(y, x @ adjoint(x) + np.eye(shape[-1]), rtol=1e-12)
            assert np.linalg.eigvalsh(y).min() > 1 - 1e-12

    def test_orthogonal_gives_the_cayley_transform_of_the_skew_part(
        self, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        one = np.eye(shape[-1])
        for x, y in pairs("orthogonal", shape, dtype):
            skew = (x - adjoint(x)) / 4
            np.testing.assert_allclose(y, np.linalg.solve(one - skew, one + skew), atol=1e-12)
            np.testing.assert_allclose(y @ adjoint(y), one, atol=1e-12)
            assert dtype.is_complex or np.linalg.det(y) > 0
        for x, y in ((x, THROUGH["orthogonal"](torch.tensor(x / 100))) for x, _ in pairs("orthogonal", shape, dtype)):
            np.testing.assert_allclose(y, scipy.linalg.expm((x - adjoint(x)) / 200), atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", get_args(Through))
def test_gradients_keep_their_digits_if_cotangents_are_large(name: str, dtype: torch.dtype) -> None:
    x = torch.rand(4, 4, dtype=dtype).requires_grad_()
    y = THROUGH[name](x)
    v = torch.rand_like(y)
    (small,), (large,) = (torch.autograd.grad(y, x, scale * v, retain_graph=True) for scale in (1, 2**20))
    torch.testing.assert_close(large / 2**20, small, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", get_args(Through))
def test_tangents_have_the_gradient_of_the_gradient(name: str) -> None:
    x, tangent = torch.rand(2, 4, 4, dtype=torch.float64)
    v = torch.rand_like(x)
    leaf = x.clone().requires_grad_()
    with forward_ad.dual_level():
        pushed = forward_ad.unpack_dual(THROUGH[name](forward_ad.make_dual(leaf, tangent))).tangent
        (actual,) = torch.autograd.grad(pushed, leaf, v) if pushed.requires_grad else (torch.zeros_like(x),)
    (gradient,) = torch.autograd.grad(THROUGH[name](leaf), leaf, v, create_graph=True)
    expected = torch.autograd.grad(gradient, leaf, tangent)[0] if gradient.requires_grad else torch.zeros_like(x)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 3), (2, 3, 1)])
def test_positive_diagonal_takes_matrices_that_are_not_square(shape: tuple[int, ...]) -> None:
    for x, y in pairs("positive_diagonal", shape, torch.float64):
        assert np.array_equal(np.tril(y, -1), np.tril(x, -1))
        assert np.array_equal(y, np.tril(y))
        np.testing.assert_allclose(np.diagonal(y), np.exp(np.diagonal(x)), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "rank"), [((4, 4), 2), ((5, 4), 2), ((2, 4), 1), ((3, 3), 1), ((2, 4, 6), 2)])
def test_low_rank_gives_half_the_rank(shape: tuple[int, ...], rank: int, dtype: torch.dtype) -> None:
    for x, y in pairs("low_rank", shape, dtype):
        assert np.linalg.matrix_rank(y) == rank
        np.testing.assert_allclose(y, x @ adjoint(x[:rank]) @ x[:rank], rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 1)])
class TestRows:
    def test_simplex_gives_probabilities(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        for x, y in pairs("simplex", (1, *shape), dtype):
            powers = np.exp(x.real)
            np.testing.assert_allclose(y, powers / powers.sum(-1, keepdims=True), rtol=1e-12)

    def test_log_simplex_gives_their_logarithms(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        for x, y in pairs("log_simplex", (1, *shape), dtype):
            np.testing.assert_allclose(y, x.real - np.log(np.exp(x.real).sum(-1, keepdims=True)), atol=1e-12)
            np.testing.assert_allclose(np.exp(y).sum(-1), 1, rtol=1e-12)

    def test_unit_norm_gives_rows_of_length_1(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        for x, y in pairs("unit_norm", (1, *shape), dtype):
            np.testing.assert_allclose(y, x / np.linalg.norm(x, axis=-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("name", ROWS)
def test_maps_of_rows_take_numbers(name: str) -> None:
    expected = {"log_simplex": 0.0, "simplex": 1.0, "unit_norm": -1.0}
    assert THROUGH[name](torch.tensor(-0.5)).item() == expected[name]
