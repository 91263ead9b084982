"""Derivatives written out by hand, and Jacobians in real coordinates that torch takes of plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]


def numbers(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return numbers in [0.5, 1.5), in both parts for complex dtypes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, dtype=dtype, generator=generator) + (0.5 + 0.5j if dtype.is_complex else 0.5)


def leaf(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return numbers that require grad."""
    return numbers(*shape, dtype=dtype, seed=seed).requires_grad_()


class Counted:
    """A function of leaves that counts its calls."""

    def __init__(self, function: Callable[..., Tensors]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *leaves: Tensor) -> Tensors:
        self.calls += 1
        return self.function(*leaves)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return real coordinates, in the order that a Jacobian has them in; differentiable."""
    plain = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]
    return torch.cat([t.reshape(-1) for t in plain])


def unflat(row: Tensor, like: Sequence[Tensor]) -> Tensors:
    """Return tensors of the shapes and dtypes of `like`; differentiable."""
    found = []
    for tensor in like:
        count = tensor.numel() * (2 if tensor.is_complex() else 1)
        own, row = row[:count], row[count:]
        found.append((torch.view_as_complex(own.reshape(-1, 2)) if tensor.is_complex() else own).reshape(tensor.shape))
    return tuple(found)


def real_jacobian(function: Callable[..., Tensors], leaves: Sequence[Tensor]) -> Tensor:
    """Return the real Jacobian of shape (M, N), by `torch.autograd.functional.jacobian` of the real form."""
    found: Tensor = torch.autograd.functional.jacobian(
        lambda row: flat(function(*unflat(row, leaves))), flat([x.detach() for x in leaves])
    )
    return found


# f(x) = x^4 for each element, and its derivatives in x; the gradient for a cotangent v is conj(f'(x)) v


def quartic(x: Tensor) -> Tensors:
    return (x**4,)


def first(x: Tensor) -> Tensor:
    return 4 * x**3


def second(x: Tensor) -> Tensor:
    return 12 * x**2


def third(x: Tensor) -> Tensor:
    return 24 * x


def of_pullback_in_reverse(x: Tensor, v: Tensor, w: Tensor) -> Tensors:
    return (second(x) * w).conj() * v, first(x) * w


def of_pullback_in_forward(x: Tensor, v: Tensor, dx: Tensor, dv: Tensor) -> Tensors:
    return ((second(x) * dx).conj() * v + first(x).conj() * dv,)


def of_pushforward_in_reverse(x: Tensor, t: Tensor, w: Tensor) -> Tensors:
    return (second(x) * t).conj() * w, first(x).conj() * w


def of_pushforward_in_forward(x: Tensor, t: Tensor, dx: Tensor, dt: Tensor) -> Tensors:
    return (second(x) * dx * t + first(x) * dt,)


def of_the_second_in_reverse(x: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensors:
    """The gradients of `of_pullback_in_reverse` for cotangents a and b."""
    return (
        (a * w * third(x)).conj() * v + b * (w * second(x)).conj(),
        a * w * second(x),
        (a * second(x)).conj() * v + b * first(x).conj(),
    )


SECOND_ORDER: dict[tuple[str, str], Callable[..., Tensors]] = {
    ("rev", "rev"): of_pullback_in_reverse,
    ("rev", "fwd"): of_pullback_in_forward,
    ("fwd", "rev"): of_pushforward_in_reverse,
    ("fwd", "fwd"): of_pushforward_in_forward,
}
"""Derivatives of the pullback g(x, v) and of the pushforward h(x, t) of f, by the steps that lead to them."""
