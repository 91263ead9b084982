"""Memory formats of strided tensors. All functions are differentiable and work under vmap."""

from __future__ import annotations

import torch
from torch import Tensor

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def in_memory(dense: Tensor, memory: str) -> Tensor:
    """Return a tensor with the same values in another memory format. For `expanded`, a view, see `realize`."""
    if memory == "noncontiguous":
        return noncontiguous(dense)
    if memory == "transposed" and dense.dim() >= 2:
        return dense.transpose(0, -1).contiguous().transpose(0, -1)
    if memory == "channels_last" and dense.dim() in CHANNELS_LAST:
        return dense.contiguous(memory_format=CHANNELS_LAST[dense.dim()])
    return dense.contiguous()


def noncontiguous(dense: Tensor) -> Tensor:
    """Return the same values with gaps in memory: every second element of a larger tensor."""
    return torch.stack((torch.zeros_like(dense), dense), dim=-1)[..., 1]


def conjugated_view(x: Tensor) -> Tensor:
    """Return the conjugate as a lazily conjugated view. Real tensors are returned unchanged."""
    return x.conj() if x.is_complex() else x


def negated_view(x: Tensor) -> Tensor:
    """Return the negative as a lazily negated view. Boolean tensors are returned unchanged."""
    if x.dtype is torch.bool:
        return x
    try:
        return torch._neg_view(x)
    except RuntimeError:  # vmap does not support lazy negation
        return -x


def own(x: Tensor) -> Tensor:
    """Return a tensor of the same values and strides in memory of its own: a write to it changes no other.

    It is a leaf that requires grad if `x` does. Elements that share memory, and lazy views, stay as they are.
    """
    values = x.detach()
    if x.layout is torch.strided and (0 in x.stride() or x.is_conj() or x.is_neg()):
        return x
    if x.layout is not torch.strided or x.is_contiguous():
        copy = values.clone()
    else:
        copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(values)
    return copy.requires_grad_() if x.requires_grad else copy  # which torch.func refuses inside of a transform


def writable(x: Tensor) -> Tensor:
    """Return a copy that an in-place operator may write to. It has gaps in memory if `x` has.

    Lazy conjugation and negation are resolved, since derivatives of a write to such a view cannot be batched.
    """
    if x.layout is not torch.strided:
        return x.clone()
    copy = x.resolve_conj().resolve_neg().clone()
    gaps = copy.stride() != x.stride() and 0 not in x.stride()
    return noncontiguous(copy) if gaps else copy
