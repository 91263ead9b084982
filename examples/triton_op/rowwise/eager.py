"""The same in eager torch, with the same arguments: what the kernels are measured by."""

import torch
from torch import Tensor


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(x, target)
