"""How a strided tensor may lie in memory, beside contiguous: each way by name, in words, as a function and as code.

The functions are differentiable and work under vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The formats in which channels come last, by the number of dims."""


@dataclass(frozen=True)
class Memory:
    """A way to lie in memory."""

    words: str
    """What to call one that lies so, with a place for the noun: "a non-contiguous {}"."""
    make: Callable[[Tensor], Tensor]
    """Returns a tensor of the same shape and dtype that does; one of too few dims stays as it is."""
    code: str
    """The same of a tensor `v`, in plain torch."""
    dims: int = 0
    """From how many dims on this is a way of its own."""
    keeps: bool = True
    """Whether the numbers stay the same. Those of an expanded tensor are equal along a dim."""


def with_gaps(tensor: Tensor) -> Tensor:
    """Return the same values with gaps between them in memory: every second element of a larger tensor."""
    return torch.stack((torch.zeros_like(tensor), tensor), dim=-1)[..., 1]


def transposed(tensor: Tensor) -> Tensor:
    """Return the same values in memory without gaps, the first dim in place of the last one."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def channels_last(tensor: Tensor) -> Tensor:
    """Return the same values, channels last, of images and volumes; other tensors are returned contiguous."""
    return tensor.contiguous(memory_format=CHANNELS_LAST.get(tensor.dim(), torch.contiguous_format))


def permuted(tensor: Tensor) -> Tensor:
    """Return the same values in memory without gaps, but in another order: channels last where there are channels."""
    return channels_last(tensor) if tensor.dim() in CHANNELS_LAST else transposed(tensor)


def behind_others(tensor: Tensor) -> Tensor:
    """Return the same values, contiguous, behind other numbers in memory."""
    return torch.cat([tensor.new_full((2,), 7), tensor.reshape(-1)])[2:].view(tensor.shape)


def expanded(tensor: Tensor) -> Tensor:
    """Return the first numbers along the first dim that has several, expanded to all of it: with stride 0."""
    own = tensor.squeeze()
    return own[:1].expand(own.shape).view(tensor.shape) if own.dim() else tensor


def expanded_last(tensor: Tensor) -> Tensor:
    """Return the first numbers along the last dim, expanded to all of it: with stride 0."""
    return tensor[..., :1].expand(tensor.shape) if tensor.dim() else tensor


def ones(tensor: Tensor) -> Tensor:
    """Return ones, a single number in memory: the cotangent of sum()."""
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
"""The ways to lie in memory, by name."""


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements of memory a tensor with elements lies across."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Tell whether elements of a tensor of some shape and strides may share memory."""
    extent = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride < extent:
            return True
        extent += stride * (size - 1)
    return False
