"""How the elements of a leaf lie in memory."""

from __future__ import annotations

import torch

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def in_memory(dense: torch.Tensor, memory: str) -> torch.Tensor:
    """Return a tensor with the same values in another memory format (`expanded` is a view: see `realize`)."""
    if memory == "noncontiguous":
        return noncontiguous(dense)
    if memory == "transposed" and dense.dim() >= 2:
        return dense.transpose(0, -1).contiguous().transpose(0, -1)
    if memory == "channels_last" and dense.dim() in CHANNELS_LAST:
        return dense.contiguous(memory_format=CHANNELS_LAST[dense.dim()])
    return dense


def noncontiguous(dense: torch.Tensor) -> torch.Tensor:
    """Return the same values with gaps between them: every second element of a larger tensor."""
    if dense.dim() == 0:
        return dense
    room = torch.empty((*dense.shape, 2), dtype=dense.dtype, device=dense.device)
    room[..., 1] = dense
    return room[..., 1]
