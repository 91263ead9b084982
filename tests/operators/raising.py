"""Operators that raise in one of several calls that a check makes: the failure names this call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Sine(torch.autograd.Function):
    """A sine. `refuses` says for which cotangents its backward pass raises."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @classmethod
    def backward(cls, ctx: Any, cotangent: Tensor) -> Tensor:
        if cls.refuses(cotangent):
            raise ValueError("not this one")
        (x,) = ctx.saved_tensors
        return cotangent * x.cos().conj()

    @staticmethod
    def refuses(cotangent: Tensor) -> bool:
        return False


class OfCotangentsWithGaps(Sine):
    @staticmethod
    def refuses(cotangent: Tensor) -> bool:
        return cotangent.dim() == 2 and cotangent.stride() == (2 * cotangent.shape[1], 2)


class OfTransposedCotangents(Sine):
    @staticmethod
    def refuses(cotangent: Tensor) -> bool:
        return cotangent.dim() == 2 and 1 < cotangent.stride(1) == cotangent.shape[0]


class OfSmallCotangents(Sine):
    @staticmethod
    def refuses(cotangent: Tensor) -> bool:
        return 0 < float(cotangent.detach().abs().max()) < 0.01


class UnderAutocast(Sine):
    @staticmethod
    def refuses(cotangent: Tensor) -> bool:
        return torch.is_autocast_enabled("cpu")


class NotNested(torch.autograd.Function):
    """A sine, whose rule for batches looks at numbers: vmap of vmap refuses that."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return cotangent * x.cos().conj()

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None], x: Tensor) -> tuple[Tensor, int | None]:
        assert x.numel() == 0 or x.flatten()[0].item() is not None
        return NotNested.apply(x), in_dims[0]


def sine(x: Tensor) -> Tensor:
    return Sine.apply(x)


def cotangents_with_gaps(x: Tensor) -> Tensor:
    return OfCotangentsWithGaps.apply(x)


def not_nested(x: Tensor) -> Tensor:
    return NotNested.apply(x)


def transposed_cotangents(x: Tensor) -> Tensor:
    return OfTransposedCotangents.apply(x)


def small_cotangents(x: Tensor) -> Tensor:
    return OfSmallCotangents.apply(x)


def backward_under_autocast(x: Tensor) -> Tensor:
    return UnderAutocast.apply(x)


def inference(x: Tensor) -> Tensor:
    if torch.is_inference_mode_enabled():
        raise ValueError("not here")
    return x.sin()


def no_grad(x: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        raise ValueError("not here")
    return x.sin()


def deterministic(x: Tensor) -> Tensor:
    if torch.are_deterministic_algorithms_enabled():
        raise ValueError("not here")
    return x.sin()


def without_grad(x: Tensor, y: Tensor) -> Tensor:
    if torch.is_grad_enabled() and x.requires_grad and not y.requires_grad:
        raise ValueError("not here")
    return x * y


def the_same_twice(x: Tensor, y: Tensor) -> Tensor:
    if x is y:
        raise ValueError("not here")
    return x * y
