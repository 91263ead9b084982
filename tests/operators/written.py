"""Operators that change several arguments, or another one than the first: right and wrong ones."""

import torch
from torch import Tensor


def add_and_scale_(x: Tensor, residual: Tensor, weight: Tensor) -> None:
    """Add x to the residual, and scale the sum into x."""
    residual.add_(x)
    x.copy_(residual * weight)


def add_and_scale(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The reference."""
    return (x + residual) * weight, x + residual


def add_and_scale_in_blocks_(x: Tensor, residual: Tensor, weight: Tensor) -> None:
    """Leave out the last columns of the residual if they fill no block of 4."""
    total = residual + x
    full = x.shape[-1] // 4 * 4 or x.shape[-1]
    residual[..., :full] = total[..., :full]
    x.copy_(total * weight)


def add_and_scale_behind_autograd_(x: Tensor, residual: Tensor, weight: Tensor) -> None:
    """Keep the graph of the new residual away from autograd."""
    total = residual + x
    residual.data.copy_(total.data)
    x.copy_(total * weight)


def add_and_scale_and_clear_(x: Tensor, residual: Tensor, weight: Tensor) -> None:
    """Also change the weight, which the spec does not list."""
    add_and_scale_(x, residual, weight)
    weight.data.zero_()


def sum_of_cache(new: Tensor, cache: Tensor) -> Tensor:
    """Write the first rows of a cache, and return the sum of its rows."""
    cache[: new.shape[0]] = new
    return cache.sum(0)


def sum_and_cache(new: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
    """The reference."""
    cache = torch.cat([new, cache[new.shape[0] :]])
    return cache.sum(0), cache


@torch.library.custom_op("opcheck_tests::add_signs_", mutates_args=("x", "residual"))
def add_signs_(x: Tensor, residual: Tensor) -> None:
    residual.add_(x.sgn())
    x.copy_(residual.sgn())


add_signs_.register_fake(lambda x, residual: None)


def add_signs(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """The reference."""
    return (x.sgn() + residual).sgn(), x.sgn() + residual


@torch.library.custom_op("opcheck_tests::add_signs_unstated_", mutates_args=("x",))
def add_signs_unstated_(x: Tensor, residual: Tensor) -> None:
    """Change an argument that the schema says is only read."""
    residual.add_(x.sgn())
    x.copy_(residual.sgn())


add_signs_unstated_.register_fake(lambda x, residual: None)


@torch.library.custom_op("opcheck_tests::cleared_", mutates_args=("x",))
def cleared_(x: Tensor, y: Tensor) -> None:
    """Change the first argument alone."""
    x.copy_(y.sgn())


cleared_.register_fake(lambda x, y: None)
