"""Tensors passed in from Python, which take the place of recipes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opcheck.samples.memory import conjugated_view, negated_view
from opcheck.spec import dtypes

Through = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Given:
    """A tensor of the caller. It is only ever copied."""

    tensor: Tensor
    grad: bool
    """Whether to differentiate with respect to it, if it has a floating or complex dtype."""
    own: str
    """The dtype of the call that it belongs to."""

    def dtype_in(self, case: str) -> torch.dtype:
        """Return its dtype in a case.

        The dtype of the call becomes that of the case, and so do the real and the complex dtype of the same precision.
        Any other dtype stays as it is.
        """
        name = str(self.tensor.dtype).removeprefix("torch.")
        pairs = {
            dtypes.complex_of(self.own): dtypes.complex_of(case),
            dtypes.real_of(self.own): dtypes.real_of(case),
            self.own: case,
        }
        dtype: torch.dtype = getattr(torch, pairs.get(name, name))
        return dtype

    def leaf(self, dtype: torch.dtype) -> tuple[Tensor, Through]:
        """Return a copy as a leaf of the given dtype, and the map from the leaf to what the operator gets.

        The operator gets the strides, the layout, and the conjugate and negative bits of the tensor. Elements that
        share memory through `expand` are a single element of the leaf. A real leaf that becomes complex gets random
        imaginary parts in [-1, 1], drawn from the global generator: zeros would hide a missing conjugation.
        """
        tensor = self.tensor.detach()
        if tensor.layout is not torch.strided or type(tensor) is not Tensor:
            return self._converted(tensor.clone(), dtype), _as_it_is
        kept = tuple(
            slice(0, 1) if stride == 0 else slice(None)
            for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
        )
        once = tensor[kept]
        values = self._converted(once.resolve_conj().resolve_neg(), dtype)
        copy = laid_out(values, once.stride())
        full = tensor.shape
        conj, neg = tensor.is_conj() and dtype.is_complex, tensor.is_neg()
        if conj and not neg and once.shape == full:
            # The conjugated view is itself the leaf: batched forward mode has no rule for creating one.
            return conjugated_view(torch.conj_physical(copy)).detach(), _as_it_is

        def through(leaf: Tensor) -> Tensor:
            leaf = torch.conj_physical(leaf) if conj else leaf
            leaf = torch.neg(leaf) if neg else leaf
            leaf = leaf if leaf.shape == full else leaf.expand(full)
            leaf = conjugated_view(leaf) if conj else leaf
            return negated_view(leaf) if neg else leaf

        return copy.detach(), through

    def _converted(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        if not self.grad or not dtype.is_complex or values.dtype.is_complex:
            return values.to(dtype)
        if values.layout is not torch.strided:
            return values.to(dtype) * (1 + 0.5j)
        imaginary = 2 * torch.rand(values.shape, dtype=torch.float64) - 1
        return torch.complex(values.to(torch.float64), imaginary.to(values.device)).to(dtype)


def laid_out(values: Tensor, strides: Sequence[int]) -> Tensor:
    """Return a copy of a strided tensor with the given strides, or a contiguous one if elements would overlap."""
    if not values.numel() or _overlap(values.shape, strides):
        return values.clone(memory_format=torch.contiguous_format)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True))
    memory = torch.zeros(extent, dtype=values.dtype, device=values.device)
    return memory.as_strided(values.shape, strides).copy_(values)


def _overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Tell whether two elements may share memory."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _as_it_is(leaf: Tensor) -> Tensor:
    return leaf
