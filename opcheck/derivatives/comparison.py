"""Where two Jacobians differ by more than they may."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import parts, real_size
from opcheck.derivatives.numbers import Numbers


def most(one: Tensor, other: Tensor) -> float:
    """Return the greatest difference of two tensors of the same shape; NaN where there is one."""
    return float((one - other).abs_().max()) if one.numel() else 0.0


def same(one: Tensor, other: Tensor, rtol: float, atol: float) -> bool:
    """Tell whether two tensors of the same shape are the same up to rounding: as `torch.allclose`, NaN equal to NaN."""
    return most(one, other) <= atol or torch.allclose(one, other, rtol, atol, equal_nan=True)


def agree(one: Tensor, other: Tensor, leaves: Sequence[Tensor], rtol: float, atol: float) -> bool:
    """Tell whether |one - other| <= atol + rtol |other| for all entries of two Jacobians of shape (M, N).

    For a complex leaf these are moduli over the columns of real and imaginary part, as in torch's gradcheck.
    """
    if not any(leaf.is_complex() for leaf in leaves):
        return torch.allclose(one, other, rtol, atol)
    if all(leaf.is_complex() for leaf in leaves):
        return torch.allclose(_paired(one), _paired(other), rtol, atol)
    sizes = [real_size(leaf) for leaf in leaves]
    pieces = zip(leaves, parts(one, sizes, 1), parts(other, sizes, 1), strict=True)
    return all(agree(a, b, [leaf], rtol, atol) for leaf, a, b in pieces)


def _paired(matrix: Tensor) -> Tensor:
    pairs = matrix.reshape(matrix.shape[0], matrix.shape[1] // 2, 2)
    # A copy: a view may begin in the middle of a pair.
    return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))


def allowed(numerical: Tensor, leaves: Sequence[Tensor], numbers: Numbers) -> Tensor:
    """Return atol + rtol |n| for each entry of a Jacobian of shape (M, N).

    For a complex leaf |n| is the modulus over the columns of real and imaginary part, as in torch's gradcheck.
    """
    return _modulus(numerical, leaves).mul(numbers.rtol).add_(numbers.atol)


def wrong_entries(
    analytical: Tensor, numerical: Tensor, leaves: Sequence[Tensor], numbers: Numbers, numerical_allowed: Tensor
) -> Tensor:
    """Return the entries that differ by more than `allowed`, as a mask of shape (M, N).

    NaN differs from everything, and what is infinite from everything but itself.
    """
    off = _modulus(analytical - numerical, leaves)
    return ~(within(off, numerical_allowed) | (analytical == numerical))


def within(off: Tensor, bound: Tensor) -> Tensor:
    """Tell which differences are within a bound. It is infinite for an infinite entry: that allows for nothing."""
    return off.isfinite() & (off <= bound)


def _modulus(matrix: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    if not any(leaf.is_complex() for leaf in leaves):
        return matrix.abs()
    if all(leaf.is_complex() for leaf in leaves):
        pairs = matrix.reshape(matrix.shape[0], matrix.shape[1] // 2, 2)
        moduli: Tensor = torch.linalg.vector_norm(pairs, dim=2, keepdim=True)
        return moduli.expand_as(pairs).reshape(matrix.shape)
    own = parts(matrix, map(real_size, leaves), 1)
    return torch.cat([_modulus(part, [leaf]) for part, leaf in zip(own, leaves, strict=True)], dim=1)


def blocks(matrix: Tensor, outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the blocks J[output][leaf] of a Jacobian over all outputs and leaves."""
    return [parts(row, map(real_size, leaves), 1) for row in parts(matrix, map(real_size, outputs))]
