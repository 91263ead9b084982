"""Special matrices, vectors and indices, each computed from a random tensor of the same shape."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opcheck.samples.results import has_derivative
from opcheck.samples.through import precisely, symmetrize


def positive_definite(base: Tensor) -> Tensor:
    """Return A A^H / n + I, which is Hermitian with eigenvalues of at least 1."""
    return base @ base.mH / max(base.shape[-1], 1) + torch.eye(base.shape[-2], dtype=base.dtype)


def triangular(base: Tensor) -> Tensor:
    """Return a lower triangular matrix whose diagonal elements are at least 1."""
    result = base.tril()
    diagonal = result.diagonal(dim1=-2, dim2=-1)
    diagonal.copy_(diagonal.abs() + 1)
    return result


def upper_triangular(base: Tensor) -> Tensor:
    """Return an upper triangular matrix whose diagonal elements are at least 1."""
    return triangular(base.mT).mT.contiguous()


def orthogonal(base: Tensor) -> Tensor:
    """Return a matrix with orthonormal columns (rows, if there are fewer rows): the Q of a QR decomposition."""
    if base.shape[-2] < base.shape[-1]:
        return orthogonal(base.mT).mT.contiguous()
    columns: Tensor = torch.linalg.qr(base).Q
    return columns


def distinct_singular_values(base: Tensor) -> Tensor:
    """Return a matrix with singular values 1, 2, ..., k, so that its singular vectors are well determined."""
    return _with_singular_values(base, spread=1.0)


def well_conditioned(base: Tensor) -> Tensor:
    """Return a matrix with distinct singular values between 1 and 2."""
    return _with_singular_values(base, spread=1 / max(min(base.shape[-2:]), 1))


def _with_singular_values(base: Tensor, spread: float) -> Tensor:
    u, s, vh = torch.linalg.svd(base, full_matrices=False)
    steps = 1 + spread * torch.arange(s.shape[-1], dtype=s.dtype)
    product: Tensor = (u * steps) @ vh
    return product


def permutation(base: Tensor) -> Tensor:
    """Return 0 to n-1 shuffled along the last dimension for integer dtypes, permutation matrices for others."""
    if not has_derivative(base):
        return torch.rand(base.shape, dtype=torch.float64).argsort(dim=-1).to(base.dtype)
    if base.dim() < 2 or base.shape[-1] != base.shape[-2]:
        raise ValueError(f"a permutation matrix must be square, not of shape {list(base.shape)}")
    return _ones_at(torch.rand(base.shape[:-1], dtype=torch.float64).argsort(dim=-1), base)


def one_hot(base: Tensor) -> Tensor:
    """Return zeros with a single 1 along the last dimension, at a random position."""
    return _ones_at(torch.randint(max(base.shape[-1], 1), base.shape[:-1]), base)


def _ones_at(places: Tensor, base: Tensor) -> Tensor:
    return (places.unsqueeze(-1) == torch.arange(base.shape[-1])).to(base.dtype)


def distinct(base: Tensor) -> Tensor:
    """Return the numbers as they are: they are drawn so that no two are equal."""
    return base


def simplex(base: Tensor) -> Tensor:
    """Return positive numbers that sum to 1 along the last dimension: the softmax of the real parts."""
    return (base.real if base.is_complex() else base).softmax(dim=-1).to(base.dtype)


STRUCTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "hermitian": precisely(symmetrize),
    "permutation": permutation,
    "one_hot": one_hot,
    "distinct": distinct,
} | {
    function.__name__: precisely(function)
    for function in (
        positive_definite, triangular, upper_triangular, orthogonal, distinct_singular_values,
        well_conditioned, simplex,
    )
}  # fmt: skip
