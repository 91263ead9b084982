"""Differentiable maps applied inside the tested function, so that finite differences stay on the manifold."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opcheck.samples.precision import precisely


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose, not lazy: torch's batched forward mode has no rule for conjugated views."""
    return x.mT.conj_physical() if x.is_complex() else x.mT


def symmetrize(x: Tensor) -> Tensor:
    """(A + A^H) / 2."""
    return (x + adjoint(x)) / 2


def tril(x: Tensor) -> Tensor:
    """The lower triangle."""
    return x.tril()


def triu(x: Tensor) -> Tensor:
    """The upper triangle."""
    return x.triu()


def positive_diagonal(x: Tensor) -> Tensor:
    """The lower triangle with a real diagonal of exp(d): the Cholesky factors."""
    diagonal = _real(x.diagonal(dim1=-2, dim2=-1)).exp().to(x.dtype)
    return x.tril(-1).diagonal_scatter(diagonal, dim1=-2, dim2=-1)


def positive_definite(x: Tensor) -> Tensor:
    """A A^H + I."""
    return x @ adjoint(x) + torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)


def low_rank(x: Tensor) -> Tensor:
    """A A[:k]^H A[:k] with k half the rows (at least 1): a matrix of rank k, of the same shape."""
    rows = x[..., : max(1, min(x.shape[-2:]) // 2), :]
    return x @ adjoint(rows) @ rows


def log_simplex(x: Tensor) -> Tensor:
    """log_softmax (of the real part): logarithms of probabilities."""
    return _real(x).log_softmax(dim=-1).to(x.dtype)


def simplex(x: Tensor) -> Tensor:
    """Softmax (of the real part): probabilities."""
    return _real(x).softmax(dim=-1).to(x.dtype)


def _real(x: Tensor) -> Tensor:
    return x.real if x.is_complex() else x


def orthogonal(x: Tensor) -> Tensor:
    """The matrix exponential of the skew-Hermitian part: an orthogonal (unitary) matrix."""
    exponential: Tensor = torch.linalg.matrix_exp((x - adjoint(x)) / 2)
    return exponential


def unit_norm(x: Tensor) -> Tensor:
    """Rows divided by their norms."""
    return x / x.abs().square().sum(dim=-1, keepdim=True).sqrt()


THROUGH: dict[str, Callable[[Tensor], Tensor]] = {
    function.__name__: precisely(function)
    for function in (
        symmetrize, tril, triu, positive_diagonal, positive_definite, low_rank, log_simplex, simplex, orthogonal,
        unit_norm,
    )
}  # fmt: skip
