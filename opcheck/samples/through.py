"""The maps that a recipe names by `through`: as part of the tested function, they keep differences on a manifold."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor


def precisely(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Extend a map of tensors to every dtype. The result has the dtype of the argument.

    Half precision is computed in single precision, integers in double precision, since torch's decompositions support
    no other dtypes. The returned map raises ValueError if the shape changes.
    """

    @wraps(function)
    def mapped(x: Tensor) -> Tensor:
        result = function(x.to(_computable(x.dtype)))
        if result.shape != x.shape:
            raise ValueError(f"{function.__name__} changes the shape {list(x.shape)} to {list(result.shape)}")
        return result.to(x.dtype)

    return mapped


def _computable(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return dtype if dtype is torch.complex128 else torch.complex64
    if dtype.is_floating_point:
        return dtype if dtype is torch.float64 else torch.float32
    return torch.float64


def adjoint(x: Tensor) -> Tensor:
    """Return the conjugate transpose, not as a lazy view: torch's batched forward mode has no rule for these."""
    return x.mT.conj_physical() if x.is_complex() else x.mT


def symmetrize(x: Tensor) -> Tensor:
    """Return (A + A^H) / 2, which is symmetric for real dtypes."""
    return (x + adjoint(x)) / 2


def tril(x: Tensor) -> Tensor:
    """Return the lower triangle."""
    return x.tril()


def triu(x: Tensor) -> Tensor:
    """Return the upper triangle."""
    return x.triu()


def positive_diagonal(x: Tensor) -> Tensor:
    """Return the lower triangle, with the diagonal d replaced by exp(Re d): a Cholesky factor."""
    diagonal = _real(x.diagonal(dim1=-2, dim2=-1)).exp().to(x.dtype)
    return x.tril(-1).diagonal_scatter(diagonal, dim1=-2, dim2=-1)


def positive_definite(x: Tensor) -> Tensor:
    """Return A A^H + I."""
    return x @ adjoint(x) + torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)


def low_rank(x: Tensor) -> Tensor:
    """Return A A[:k]^H A[:k], of the same shape and of rank k: half the smaller of both sizes, but at least 1."""
    rows = x[..., : max(1, min(x.shape[-2:]) // 2), :]
    return x @ adjoint(rows) @ rows


def log_simplex(x: Tensor) -> Tensor:
    """Return log_softmax of the real part: log-probabilities.

    Uses elementary operations, since the forward mode of torch.log_softmax cannot be differentiated in reverse mode.
    """
    own = _shifted(x)
    return (own - own.exp().sum(dim=-1, keepdim=True).log()).to(x.dtype)


def simplex(x: Tensor) -> Tensor:
    """Return softmax of the real part: probabilities. Uses elementary operations, as `log_simplex` does."""
    weights = _shifted(x).exp()
    return (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)


def _shifted(x: Tensor) -> Tensor:
    """Return the real part minus its maximum, so that exp does not overflow. Softmax is invariant to such a shift."""
    own = _real(x)
    return own - own.detach().amax(dim=-1, keepdim=True) if own.numel() else own


def _real(x: Tensor) -> Tensor:
    return x.real if x.is_complex() else x


def orthogonal(x: Tensor) -> Tensor:
    """Return the Cayley transform of the skew-Hermitian part: an orthogonal (unitary) matrix, without reflection.

    Derivatives in torch rule out its matrix exponential, whose gradient loses digits if the cotangent is large, and
    `solve`, whose tangent has no right gradient.
    """
    skew, one = (x - adjoint(x)) / 4, torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    rotation: Tensor = torch.linalg.inv(one - skew) @ (one + skew)
    return rotation


def unit_norm(x: Tensor) -> Tensor:
    """Return the tensor with every row divided by its norm."""
    return x / x.abs().square().sum(dim=-1, keepdim=True).sqrt()


THROUGH: dict[str, Callable[[Tensor], Tensor]] = {
    function.__name__: precisely(function)
    for function in (
        symmetrize, tril, triu, positive_diagonal, positive_definite, low_rank, log_simplex, simplex, orthogonal,
        unit_norm,
    )
}  # fmt: skip
