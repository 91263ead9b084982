"""The memory of the caller's tensors: it may be written to, and holds the same bits afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import shares_memory


class Kept:
    """The memory of the strided tensors among some values. It holds the same bits after the context as before."""

    def __init__(self, values: Sequence[object]) -> None:
        self.tensors = [value for value in values if isinstance(value, Tensor) and value.layout is torch.strided]
        self.memory = [tensor.data for tensor in self.tensors]  # unlike detach(), it has a version counter of its own
        self.before = [own.clone() for own in self.memory]

    def __enter__(self) -> Kept:
        """Return the memory."""
        return self

    def __exit__(self, *_: object) -> None:
        """Put everything back."""
        for tensor, own, before in zip(self.tensors, self.memory, self.before, strict=True):
            write(own, before)
            if tensor.data_ptr() != own.data_ptr():
                tensor.data = own

    def is_changed(self) -> bool:
        """Tell whether a tensor has other values, or other memory. Writes that autograd does not know of count."""
        return any(
            tensor.data_ptr() != own.data_ptr()
            or (not torch.equal(own, before) and not torch.allclose(own, before, 0.0, 0.0, equal_nan=True))
            for tensor, own, before in zip(self.tensors, self.memory, self.before, strict=True)
        )


def elements(memory: Tensor) -> list[Tensor]:
    """Return the place of each real coordinate, of rank 0. Raises RuntimeError for lazy conjugation."""
    real = torch.view_as_real(memory) if memory.is_complex() else memory
    if real.is_contiguous():
        return list(real.view(-1).unbind())
    return [real[index] for index in product(*map(range, real.shape))]


def write(target: Tensor, values: Tensor, where: Tensor | None = None) -> None:
    """Write to a tensor, or to some places of it. Elements that share their memory are written one after the other."""
    if not shares_memory(target):
        target.copy_(values if where is None else torch.where(where, values, target))
        return
    for index in (torch.ones(values.shape) if where is None else where).nonzero().tolist():
        target[tuple(index)] = values[tuple(index)]


def add(target: Tensor, move: Tensor) -> None:
    """Add to a tensor. What several elements share moves with each of them. Zeros move nothing, not even -0.0."""
    if not shares_memory(target):
        target.add_(move.masked_fill(move == 0, -0.0))
        return
    for index in (move != 0).nonzero().tolist():
        target[tuple(index)] += move[tuple(index)]
