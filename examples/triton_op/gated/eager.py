"""The same in eager torch: what the kernels are measured by."""

import torch
from torch import Tensor


def gated_softmax(x: Tensor, weight: Tensor) -> Tensor:
    """Return softmax(x) * weight for x of shape (rows, columns) and weight of shape (columns,)."""
    return torch.softmax(x, dim=-1) * weight
