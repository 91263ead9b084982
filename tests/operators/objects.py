"""Operators on arguments that hold tensors: dataclasses, named tuples, dicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass
class Rays:
    """Lines in space."""

    origin: Tensor
    direction: Tensor
    far: float = 2.0


class Pair(NamedTuple):
    """Two tensors."""

    left: Tensor
    right: Tensor


@dataclass(frozen=True)
class Config:
    """No tensor at all."""

    scale: float


class Scaler:
    """Has a method that specs can name."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def scale(self, x: Tensor) -> Tensor:
        return self.factor * x


scaler = Scaler(3.0)


def ends(rays: Rays) -> Tensor:
    return rays.origin + rays.far * rays.direction * rays.direction


def product(pair: Pair) -> Tensor:
    return pair.left * pair.right


def attention(inputs: dict[str, Tensor]) -> Tensor:
    return (inputs["query"] @ inputs["key"].mT).exp()


def scaled(x: Tensor, config: Config) -> Tensor:
    return config.scale * x


def applied(x: Tensor, function: object) -> Tensor:
    return function(x)  # type: ignore[operator]


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, left: Tensor, right: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        ctx.save_for_backward(left, right)
        return left * right

    @staticmethod
    def backward(ctx, cotangent: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def, override]
        left, right = ctx.saved_tensors
        return cotangent * right.conj(), 2 * cotangent * left.conj()


def wrong_product(pair: Pair) -> Tensor:
    """The gradient of the right factor is doubled."""
    return _Wrong.apply(pair.left, pair.right)


def wrong_factors(left: Tensor, right: Tensor) -> Tensor:
    """The gradient of the right factor is doubled."""
    return _Wrong.apply(left, right)


def wrong_ends(rays: Rays) -> Tensor:
    """The gradient of the direction is doubled."""
    return rays.origin + rays.far * _Wrong.apply(rays.direction, rays.direction)


def spoiling_ends(rays: Rays) -> Tensor:
    """Writes to its argument."""
    result = ends(rays)
    with torch.no_grad():
        rays.origin.data.zero_()
    return result


def clamped(x: Tensor, inplace: bool = False) -> Tensor:
    """In place by a keyword."""
    return x.mul_(2.0) if inplace else x * 2.0


def forgetful(x: Tensor, inplace: bool = False) -> Tensor:
    """In place by a keyword, with other values."""
    return x.mul_(3.0) if inplace else x * 2.0


class Rotation(Tensor):
    """A tensor whose operators are those of a group."""

    def __matmul__(self, other: Tensor) -> Tensor:
        raise AssertionError("rotations are composed with rotations")

    def mul_(self, other: Tensor) -> Tensor:
        raise AssertionError("rotations are composed with rotations")

    add_ = mul_


def as_rotation(x: Tensor) -> Rotation:
    return torch.sin(x).as_subclass(Rotation)


def takes_any_keywords(x: Tensor, **keywords: Tensor) -> Tensor:
    return 2 * torch.sin(x, **keywords)


NEAR: dict[torch.dtype, Tensor] = {}


def square_of_positive_numbers(x: Tensor) -> Tensor:
    """The squares of some numbers: how many there are jumps where a number is 0."""
    return x[x > 0].square()


def takes_numbers_near_the_first(x: Tensor) -> Tensor:
    if bool((x - NEAR.setdefault(x.dtype, x.detach().clone())).abs().max() > 0.01):
        raise ValueError("too far away")
    return x * x
