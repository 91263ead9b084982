"""Kinds of matrices, vectors and indices, each made from random numbers of the wanted shape."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def hermitian(base: Tensor) -> Tensor:
    """(A + A^H) / 2: symmetric for real dtypes."""
    return (base + base.mH) / 2


def positive_definite(base: Tensor) -> Tensor:
    """A A^H / n + I: Hermitian with eigenvalues of at least 1."""
    return base @ base.mH / max(base.shape[-1], 1) + torch.eye(base.shape[-2], dtype=base.dtype)


def triangular(base: Tensor) -> Tensor:
    """Lower triangular, the diagonal moved away from zero."""
    return base.tril(-1) + torch.diag_embed(base.diagonal(dim1=-2, dim2=-1).abs() + 1).to(base.dtype)


def upper_triangular(base: Tensor) -> Tensor:
    """Upper triangular, the diagonal moved away from zero."""
    return triangular(base.mT).mT.contiguous()


def orthogonal(base: Tensor) -> Tensor:
    """Orthonormal columns (or rows, where there are fewer): the Q of a QR decomposition."""
    if base.shape[-2] < base.shape[-1]:
        return orthogonal(base.mT).mT.contiguous()
    return torch.linalg.qr(base).Q


def distinct_singular_values(base: Tensor) -> Tensor:
    """Singular values 1, 2, ..., k: singular vectors are then well determined."""
    return _with_singular_values(base, spread=1.0)


def well_conditioned(base: Tensor) -> Tensor:
    """Singular values between 1 and 2, all different."""
    return _with_singular_values(base, spread=1 / max(min(base.shape[-2:]), 1))


def _with_singular_values(base: Tensor, spread: float) -> Tensor:
    u, s, vh = torch.linalg.svd(base, full_matrices=False)
    steps = 1 + spread * torch.arange(s.shape[-1], dtype=s.dtype)
    return (u * steps) @ vh


def permutation(base: Tensor) -> Tensor:
    """Integer dtypes: 0 to n-1 shuffled along the last dimension. Others: permutation matrices."""
    order = torch.rand(base.shape[:-1] if _is_number(base) else base.shape).argsort(dim=-1)
    if not _is_number(base):
        return order.to(base.dtype)
    return torch.nn.functional.one_hot(order, base.shape[-1]).to(base.dtype)


def _is_number(base: Tensor) -> bool:
    return base.is_floating_point() or base.is_complex()


def one_hot(base: Tensor) -> Tensor:
    """One 1 among zeros along the last dimension."""
    size = base.shape[-1]
    return torch.nn.functional.one_hot(torch.randint(size, base.shape[:-1]), size).to(base.dtype)


def distinct(base: Tensor) -> Tensor:
    """No two elements closer than a tenth of the mean distance: no ties in sorting, maxima and medians."""
    count = base.numel()
    if not _is_number(base):
        return torch.randperm(count).reshape(base.shape).to(base.dtype)
    steps = (torch.randperm(count) + 0.45 * (torch.rand(count) - 0.5)).reshape(base.shape)
    return ((2 * steps + 1) * (2.0 / max(count, 1)) - 2.0).to(base.dtype)


def simplex(base: Tensor) -> Tensor:
    """Positive numbers that sum to 1 along the last dimension."""
    return base.softmax(dim=-1)


STRUCTURES: dict[str, Callable[[Tensor], Tensor]] = {
    function.__name__: function
    for function in (
        hermitian, positive_definite, triangular, upper_triangular, orthogonal, distinct_singular_values,
        well_conditioned, permutation, one_hot, distinct, simplex,
    )
}  # fmt: skip
