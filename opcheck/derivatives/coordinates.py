"""Complex as R^2: tensors of any dtype as vectors of real coordinates, and back."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def real_size(tensor: Tensor) -> int:
    """Return the number of real coordinates: elements, twice as many for complex dtypes."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def to_real(tensor: Tensor) -> Tensor:
    """Return a tensor's real coordinates as a vector of shape (real_size,), real and imaginary parts alternating."""
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    flat = dense.detach().resolve_conj().resolve_neg().reshape(-1)
    return torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat


def units(like: Tensor) -> Iterator[Tensor]:
    """Yield the unit vectors of the real coordinates, in the shape and dtype of `like`: for complex dtypes 1 and 1j."""
    for index in range(like.numel()):
        for unit in (1, 1j) if like.is_complex() else (1,):
            vector = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
            vector.view(-1)[index].fill_(unit)
            yield vector


def place(tensor: Tensor, coordinate: int) -> str:
    """Return the index of a real coordinate as text: `[1, 2]`, `[1, 2].imag`, or `[]` for rank 0."""
    part = ""
    if tensor.is_complex():
        coordinate, imaginary = divmod(coordinate, 2)
        part = ".imag" if imaginary else ".real"
    indices = []
    for size in reversed(tensor.shape):
        coordinate, index = divmod(coordinate, size)
        indices.append(index)
    return f"{indices[::-1]}{part}"
