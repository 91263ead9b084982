"""Matrices, vectors and indices, each against its definition in NumPy."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.testing import make_tensor

from opcheck.samples.structures import STRUCTURES
from opcheck.spec.recipe import Structure

DTYPES = [torch.float64, torch.complex128]
EVERY = [*DTYPES, torch.float32, torch.complex64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
SQUARE = [(3, 3), (2, 3, 3), (1, 1), (0, 0), (0, 2, 2)]
SHAPES = [*SQUARE, (4, 2), (2, 4), (2, 2, 3), (0, 2), (2, 0)]
SQUARE_ONLY = ["hermitian", "positive_definite", "permutation"]


def structured(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    base = make_tensor(shape, dtype=dtype, device="cpu")
    result = STRUCTURES[name](base)
    assert (result.shape, result.dtype) == (base.shape, dtype)
    return result


def matrices(x: torch.Tensor) -> list[NDArray[np.generic]]:
    return list(x.reshape(-1, *x.shape[-2:]).numpy()) if x.numel() else []


def test_every_structure_of_the_format_is_made_and_no_other() -> None:
    assert set(STRUCTURES) == set(get_args(Structure))


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("name", get_args(Structure))
def test_every_dtype_has_every_structure(name: str, dtype: torch.dtype) -> None:
    assert structured(name, (2, 3, 3), dtype).shape == (2, 3, 3)


@pytest.mark.parametrize("name", get_args(Structure))
def test_the_global_generator_alone_decides(name: str) -> None:
    assert torch.equal(structured(name, (3, 3), torch.float64), structured(name, (3, 3), torch.float64))


@pytest.mark.parametrize("name", SQUARE_ONLY)
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (3, 1), (2, 1, 3)])
def test_what_must_be_square_refuses_other_shapes(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        structured(name, shape, torch.float64)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", SQUARE)
def test_a_hermitian_matrix_is_its_own_adjoint(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for matrix in matrices(structured("hermitian", shape, dtype)):
        assert np.array_equal(matrix, matrix.conj().T)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARE)
def test_the_eigenvalues_of_a_positive_definite_matrix_are_at_least_1(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for matrix in matrices(structured("positive_definite", shape, dtype)):
        np.testing.assert_allclose(matrix, matrix.conj().T, rtol=1e-12)
        assert np.linalg.eigvalsh(matrix).min() >= 1 - 1e-12


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_triangular_matrix_has_zeros_above_and_a_diagonal_of_at_least_1(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for matrix in matrices(structured("triangular", shape, dtype)):
        assert np.array_equal(matrix, np.tril(matrix))
        assert np.diagonal(matrix).real.min() >= 1
        assert np.all(np.diagonal(matrix).imag == 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_upper_triangular_matrix_has_zeros_below_and_a_diagonal_of_at_least_1(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for matrix in matrices(structured("upper_triangular", shape, dtype)):
        assert np.array_equal(matrix, np.triu(matrix))
        assert np.diagonal(matrix).real.min() >= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_columns_of_an_orthogonal_matrix_are_orthonormal_or_its_rows_where_there_are_fewer(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for matrix in matrices(structured("orthogonal", shape, dtype)):
        tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.conj().T
        np.testing.assert_allclose(tall.conj().T @ tall, np.eye(tall.shape[1]), atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_distinct_singular_values_are_1_2_3_and_so_on(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for matrix in matrices(structured("distinct_singular_values", shape, dtype)):
        count = min(matrix.shape)
        np.testing.assert_allclose(np.linalg.svd(matrix, compute_uv=False), np.arange(count, 0, -1), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_well_conditioned_matrix_has_different_singular_values_between_1_and_2(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for matrix in matrices(structured("well_conditioned", shape, dtype)):
        singular = np.linalg.svd(matrix, compute_uv=False)
        assert singular.min() >= 1 - 1e-12
        assert singular.max() <= 2
        assert len(singular) == 1 or np.diff(-singular).min() > 1 / (2 * len(singular))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize("shape", SQUARE)
def test_a_permutation_matrix_has_one_1_in_each_row_and_column(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    made = structured("permutation", shape, dtype).to(torch.complex128)
    for matrix in matrices(made):
        assert np.array_equal(matrix @ matrix.T, np.eye(matrix.shape[0]))
        assert set(matrix.ravel()) <= {0, 1}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (0,), (2, 0), ()])
def test_a_permutation_of_whole_numbers_shuffles_the_last_dimension(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    made = structured("permutation", shape, dtype)
    size = shape[-1] if shape else 1
    assert np.array_equal(np.sort(np.atleast_1d(made.numpy())), np.broadcast_to(np.arange(size), shape or (1,)))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 0), (0, 2)])
def test_a_one_hot_tensor_has_one_1_in_each_row(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    made = structured("one_hot", shape, dtype).to(torch.complex128).numpy()
    assert set(made.ravel()) <= {0, 1}
    assert np.array_equal(made.sum(-1), np.ones(shape[:-1]) if shape[-1] else np.zeros(shape[:-1]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4,), (2, 3), (1,), ()])
def test_a_point_of_the_simplex_is_positive_and_sums_to_1(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    made = np.atleast_1d(structured("simplex", shape, dtype).numpy())
    assert made.real.min() > 0
    assert np.all(made.imag == 0)
    np.testing.assert_allclose(made.sum(-1), np.ones(shape[:-1]), rtol=1e-12)
