"""Writes to the memory of the caller's tensors, and restores it bit by bit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

import torch
from torch import Tensor

from opcheck.strides import overlap


class Kept:
    """A context that restores the memory of the strided tensors among some values at its end, bit by bit."""

    def __init__(self, values: Sequence[object]) -> None:
        self.tensors = [value for value in values if isinstance(value, Tensor) and value.layout is torch.strided]
        self.memory = [tensor.data for tensor in self.tensors]  # unlike detach(), .data has its own version counter
        self.before = [own.clone() for own in self.memory]

    def __enter__(self) -> Kept:
        """Return this object, whose `memory` may be written to."""
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the values, and the memory of tensors whose `.data` was replaced."""
        for tensor, own, before in zip(self.tensors, self.memory, self.before, strict=True):
            write(own, before)
            if tensor.data_ptr() != own.data_ptr():
                tensor.data = own

    def is_changed(self) -> bool:
        """Return whether the values or the memory of a tensor have changed, even by writes unknown to autograd."""
        return any(
            tensor.data_ptr() != own.data_ptr()
            or (not torch.equal(own, before) and not torch.allclose(own, before, 0.0, 0.0, equal_nan=True))
            for tensor, own, before in zip(self.tensors, self.memory, self.before, strict=True)
        )


@contextmanager
def aside(values: Sequence[object]) -> Iterator[None]:
    """Restore the tensors among some values and the random state afterwards, and suppress warnings."""
    with Kept(values), torch.random.fork_rng(devices=()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def elements(memory: Tensor) -> list[Tensor]:
    """Return a view of rank 0 of each real coordinate. Raise RuntimeError for lazily conjugated tensors."""
    real = torch.view_as_real(memory) if memory.is_complex() else memory
    if real.is_contiguous():
        return list(real.view(-1).unbind())
    return [real[index] for index in product(*map(range, real.shape))]


def write(target: Tensor, values: Tensor, where: Tensor | None = None) -> None:
    """Copy values to a tensor, or only where a mask is True. Elements that share memory are written one by one."""
    if not overlap(target.shape, target.stride()):
        target.copy_(values if where is None else torch.where(where, values, target))
        return
    for index in (torch.ones(values.shape, device="cpu") if where is None else where).nonzero().tolist():
        target[tuple(index)] = values[tuple(index)]


def add(target: Tensor, move: Tensor) -> None:
    """Add a tensor to another one in place.

    Memory that several elements share is changed once for each of them. Adding zero leaves even -0.0 unchanged.
    """
    if not overlap(target.shape, target.stride()):
        target.add_(move.masked_fill(move == 0, -0.0))
        return
    for index in (move != 0).nonzero().tolist():
        target[tuple(index)] += move[tuple(index)]
