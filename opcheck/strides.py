"""Memory layouts of strided tensors other than contiguous: each with a name, a description, a function and code.

The functions are differentiable and work under vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""torch's channels-last memory formats, by the number of dims."""


@dataclass(frozen=True)
class Memory:
    """A memory layout of strided tensors."""

    words: str
    """The description of such a tensor, with a placeholder for the noun: "a non-contiguous {}"."""
    make: Callable[[Tensor], Tensor]
    """Returns a tensor of the same shape and dtype in this layout. Meant for tensors of at least `dims` dims."""
    code: str
    """The expression in plain torch for `make` applied to a tensor `v`."""
    dims: int = 0
    """The minimum number of dims at which this layout differs from contiguous and from other layouts."""
    keeps: bool = True
    """Whether `make` keeps the values. An expanded tensor has equal values along a dim."""


def with_gaps(tensor: Tensor) -> Tensor:
    """Return the same values, non-contiguous: every second element of a larger tensor."""
    return torch.stack((torch.zeros_like(tensor), tensor), dim=-1)[..., 1]


def transposed(tensor: Tensor) -> Tensor:
    """Return the same values, dense in memory, with the first and the last dim exchanged in memory order."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def channels_last(tensor: Tensor) -> Tensor:
    """Return the same values in a channels-last format if there are 4 or 5 dims, else contiguous."""
    return tensor.contiguous(memory_format=CHANNELS_LAST.get(tensor.dim(), torch.contiguous_format))


def permuted(tensor: Tensor) -> Tensor:
    """Return the same values, dense in memory, in a permuted order: channels last for 4 or 5 dims, else transposed."""
    return channels_last(tensor) if tensor.dim() in CHANNELS_LAST else transposed(tensor)


def behind_others(tensor: Tensor) -> Tensor:
    """Return the same values, contiguous, with a storage offset of 2."""
    return torch.cat([tensor.new_full((2,), 7), tensor.reshape(-1)])[2:].view(tensor.shape)


def expanded(tensor: Tensor) -> Tensor:
    """Return the first slice along the first dim of size above 1, expanded over this dim (stride 0)."""
    own = tensor.squeeze()
    return own[:1].expand(own.shape).view(tensor.shape) if own.dim() else tensor


def expanded_last(tensor: Tensor) -> Tensor:
    """Return the first slice along the last dim, expanded over this dim (stride 0)."""
    return tensor[..., :1].expand(tensor.shape) if tensor.dim() else tensor


def ones(tensor: Tensor) -> Tensor:
    """Return ones expanded from a single number in memory, as the cotangent that sum() passes to its input."""
    return torch.ones((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)


MEMORIES = {
    "noncontiguous": Memory(
        "a non-contiguous {}", with_gaps, "torch.stack([torch.zeros_like(v), v], -1)[..., 1]"
    ),
    "number": Memory(
        "an expanded (stride 0) {}", ones, "torch.ones((), dtype=v.dtype, device=v.device).expand(v.shape)", keeps=False
    ),
    "expanded": Memory(
        "an expanded (stride 0 in the first dim) {}", expanded,
        "v.squeeze()[:1].expand(v.squeeze().shape).view(v.shape)", 2, keeps=False,
    ),
    "expanded_last": Memory(
        "an expanded (stride 0 in the last dim) {}", expanded_last, "v[..., :1].expand(v.shape)", 2, keeps=False
    ),
    "transposed": Memory("a transposed {}", transposed, "v.transpose(0, -1).contiguous().transpose(0, -1)", 2),
    "channels_last": Memory(
        "a channels-last {}", channels_last,
        "v.contiguous(memory_format=torch.channels_last if v.dim() == 4 else torch.channels_last_3d)", 4,
    ),
    "offset": Memory(
        "a {} that lies behind other numbers in memory", behind_others,
        "torch.cat([v.new_full((2,), 7), v.reshape(-1)])[2:].view(v.shape)",
    ),
}  # fmt: skip
"""The memory layouts, by name."""


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements of memory that a non-empty tensor spans."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def laid_out(values: Tensor, strides: Sequence[int]) -> Tensor:
    """Return a copy of a strided tensor with the given strides. It is contiguous if elements would overlap.

    The gaps between elements are zero, so that a function that reads them by mistake returns the same result each time.
    """
    if not values.numel() or overlap(values.shape, strides):
        return values.clone(memory_format=torch.contiguous_format)
    copy = torch.empty_strided(values.shape, strides, dtype=values.dtype, device=values.device)
    copy.as_strided((extent(values.shape, strides),), (1,)).zero_()
    return copy.copy_(values)


def is_expanded(tensor: Tensor) -> bool:
    """Return whether elements of a strided tensor share memory along a dim, as after `expand`."""
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements of a tensor with this shape and these strides may share memory."""
    extent = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride < extent:
            return True
        extent += stride * (size - 1)
    return False
