"""Operators that leave something changed: the process, or what they keep for their own backward pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def no_gradients_from_now_on(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    return 2 * x


class SpoilsWhatItSaved(torch.autograd.Function):
    """x², whose backward pass writes its result over what it has saved: right once."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (dx,) = ctx.saved_tensors
        return dx.detach().data.mul_(g) if not dx.is_complex() else dx.detach().data.conj_physical_().mul_(g)


def spoils_what_it_saved(x: Tensor) -> Tensor:
    return SpoilsWhatItSaved.apply(x)


def writes_to_an_argument(x: Tensor, scale: Tensor) -> Tensor:
    """Doubles a tensor that is no leaf in each call."""
    y = x * scale
    scale.data.mul_(2)
    return y


class ThreadsInBackward(torch.autograd.Function):
    """x², whose backward pass depends on the number of threads."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 * x).conj() * (1.0 if torch.get_num_threads() == 1 else 1.001)


class AutocastInBackward(ThreadsInBackward):
    """x², whose backward pass loses digits under autocast."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        low = torch.complex64 if x.is_complex() else torch.float32
        return g * (2 * (x.to(low).to(x.dtype) if torch.is_autocast_enabled("cpu") else x)).conj()


class DeterministicInBackward(ThreadsInBackward):
    """x², whose backward pass has another formula in deterministic mode."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 * x).conj() * (1.001 if torch.are_deterministic_algorithms_enabled() else 1.0)


class GradModeInBackward(ThreadsInBackward):
    """x², whose backward pass has another formula where a graph of it is recorded."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 * x).conj() * (1.001 if torch.is_grad_enabled() else 1.0)


class SteadyInBackward(ThreadsInBackward):
    """x², and nothing else: the right twin."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 * x).conj()


def threads_in_backward(x: Tensor) -> Tensor:
    return ThreadsInBackward.apply(x)


def autocast_in_backward(x: Tensor) -> Tensor:
    return AutocastInBackward.apply(x)


def deterministic_in_backward(x: Tensor) -> Tensor:
    return DeterministicInBackward.apply(x)


def deterministic_in_forward(x: Tensor) -> Tensor:
    return x * x * (1.001 if torch.are_deterministic_algorithms_enabled() else 1.0)


def grad_mode_in_backward(x: Tensor) -> Tensor:
    return GradModeInBackward.apply(x)


def steady_in_backward(x: Tensor) -> Tensor:
    return SteadyInBackward.apply(x)
