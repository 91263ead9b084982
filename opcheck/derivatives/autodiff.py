"""Derivatives by torch: one backward pass, one call in forward mode, and functions composed of them.

The derivative of a function is again a function: derivatives of any order and mix of modes are compositions of
`Pullback` and `Pushforward` around a `Primal`. A `Pullback` is linear in the cotangents and a `Pushforward` in the
tangents, which are its last arguments. A batch is evaluated by one `torch.func.vmap` of the function itself.
Derivatives are taken around it by torch's plain autograd: the rows of a batch are independent, so one backward pass is
enough.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from opcheck.derivatives.coordinates import tensors_of, vector

Tensors = tuple[Tensor, ...]
Function = Callable[..., Tensors]
"""A function of leaves that returns outputs, all of them tensors of any shape. If it has an attribute `surrogate`,
differences are taken of that function instead: the one whose derivative it is meant to have."""
Mode = Literal["reverse", "forward"]

_untyped: Any = fwad  # torch.autograd.forward_ad has no annotations
dual_level = fwad.dual_level


def vjp(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], cotangents: Sequence[Tensor], *,
    create_graph: bool = False, retain_graph: bool = True,
) -> Tensors:  # fmt: skip
    """Return J^T v for each leaf by one backward pass, zeros for unused leaves.

    The gradient g that torch returns for a cotangent v satisfies Re<v, J dx> = Re<g, dx>. So g = J^T v in real
    coordinates, for complex tensors too (https://pytorch.org/docs/stable/notes/autograd.html, complex autograd).
    """
    pairs = [(output, v) for output, v in zip(outputs, cotangents, strict=True) if output.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    smooth, vectors = zip(*pairs, strict=True)
    gradients = torch.autograd.grad(
        smooth, leaves, vectors, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True
    )
    return tuple(torch.zeros_like(leaf) if g is None else g for g, leaf in zip(gradients, leaves, strict=True))


def make_dual(primal: Tensor, tangent: Tensor) -> Tensor:
    """Return a dual tensor with a primal and a tangent of the same shape."""
    dual: Tensor = _untyped.make_dual(primal, tangent)
    return dual


def tangent_of(tensor: Tensor) -> Tensor | None:
    """Return the tangent of a dual tensor, or None if it has none, which means zero."""
    tangent: Tensor | None = _untyped.unpack_dual(tensor).tangent
    # torch may represent a zero tangent by a tensor without memory.
    return None if tangent is None or tangent._is_zerotensor() else tangent


def pushed(
    function: Callable[..., Tensors], primals: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> tuple[Tensors, list[Tensor | None]]:
    """Return the outputs and their tangents, by one call with dual numbers. None means zero.

    A primal whose tangent is None is passed to the function as it is.
    """
    with dual_level():
        pairs = zip(primals, tangents, strict=True)
        outputs = function(*(primal if t is None else make_dual(primal, t) for primal, t in pairs))
        return outputs, [tangent_of(output) for output in outputs]


def jvp(function: Callable[..., Tensors], primals: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensors:
    """Return the tangents of the outputs by one call with dual numbers. Missing tangents are zeros."""
    outputs, carried = pushed(function, primals, tangents)
    return tuple(torch.zeros_like(y) if t is None else t for t, y in zip(carried, outputs, strict=True))


@dataclass(frozen=True)
class Primal:
    """The tested function, restricted to some outputs: called at one point, or by `rows` at a batch of points."""

    function: Function
    chosen: tuple[int, ...]
    output_names: tuple[str, ...] = ()
    """The names of all outputs, such as `.loss` and `['logits']`; empty: they are labeled by position."""
    leaf_names: tuple[str, ...] = ()
    """The names of the leaves, such as `weight`; empty: they are labeled by position."""

    def __call__(self, *arguments: Tensor) -> Tensors:
        """Return the chosen outputs."""
        outputs = self.function(*arguments)
        return tuple(outputs[index] for index in self.chosen)

    def rows(self, *batches: Tensor) -> Tensors:
        """Return the chosen outputs at each point of a batch. All tensors have an extra leading dimension.

        Passes on the exceptions of the function, and those of `torch.func.vmap` if it cannot be batched.
        """
        # The method, not the object: vmap uses the function's name in its errors, and makes one up if there is none.
        outputs: Tensors = torch.func.vmap(self.function.__call__, randomness="same")(*batches)  # type: ignore[operator]
        return tuple(outputs[index] for index in self.chosen)


@dataclass(frozen=True)
class Derivative(ABC):
    """A function derived from `inner`: called at one point, or by `rows` at a batch of points."""

    inner: Differentiable

    def __call__(self, *arguments: Tensor) -> Tensors:
        """Return the value at one point."""
        return self._of(self.inner, arguments, ())

    def rows(self, *batches: Tensor) -> Tensors:
        """Return the values at each point of a batch."""
        return self._of(self.inner.rows, batches, batches[0].shape[:1])

    def leaves(self, arguments: Tensors) -> Tensors:
        """Return the arguments that are passed on to `inner`."""
        return arguments

    @abstractmethod
    def _of(self, function: Callable[..., Tensors], arguments: Tensors, batch: Sequence[int]) -> Tensors:
        """Return the value, computed from `function`: `inner` or its `rows`.

        batch: the leading dims of all tensors; empty for one point.
        """


Differentiable = Primal | Derivative
"""A function from tensors to tensors, at one point or at a batch of points."""


@dataclass(frozen=True)
class Pullback(Derivative):
    """g(x, v) = J(x)^T v: the gradients of `inner` at `count` leaves x for cotangents v. Missing ones are zeros."""

    count: int
    transform: bool = False
    """Whether it is computed by `torch.func`, so that `torch.func` can differentiate it."""
    fixed: tuple[Tensor | None, ...] = ()
    """The cotangents that are constant, and None for those that are arguments. Empty: all of them are arguments."""

    def leaves(self, arguments: Tensors) -> Tensors:
        """Return the leaves x."""
        return arguments[: self.count]

    def _of(self, function: Callable[..., Tensors], arguments: Tensors, batch: Sequence[int]) -> Tensors:
        leaves, cotangents = self.leaves(arguments), self._cotangents(arguments[self.count :], batch)
        if self.transform:
            pulled: Tensors = torch.func.vjp(function, *leaves)[1](cotangents)
            return pulled
        with torch.enable_grad():
            # Some backward passes can be differentiated, in either mode, only with create_graph=True.
            again = any(x.requires_grad or tangent_of(x) is not None for x in (*leaves, *cotangents))
            # A view, not detach(), which would drop the tangents of forward over reverse.
            leaves = tuple(x if x.requires_grad else x.view_as(x).requires_grad_() for x in leaves)
            return vjp(function(*leaves), leaves, cotangents, create_graph=again)

    def _cotangents(self, arguments: Tensors, batch: Sequence[int]) -> Tensors:
        """Return all cotangents. Constants are copied with their strides: a backward pass may write to them."""
        if not self.fixed:
            return arguments
        others = iter(arguments)
        return tuple(
            next(others) if v is None else tensors_of(vector((v,)).expand(*batch, -1), (v,))[0] for v in self.fixed
        )


@dataclass(frozen=True)
class Pushforward(Derivative):
    """h(x, t) = J(x) t: the tangents of the outputs of `inner` at leaves x for tangents t."""

    transform: bool = False
    """Whether it is computed by `torch.func`, so that `torch.func` can differentiate it."""

    def leaves(self, arguments: Tensors) -> Tensors:
        """Return the leaves x."""
        return arguments[: len(arguments) // 2]

    def _of(self, function: Callable[..., Tensors], arguments: Tensors, batch: Sequence[int]) -> Tensors:
        primals = self.leaves(arguments)
        tangents = arguments[len(primals) :]
        if self.transform:
            pushed: Tensors = torch.func.jvp(function, primals, tangents)[1]
            return pushed
        differentiated = isinstance(self.inner, Pullback)
        if differentiated:
            primals = tuple(x if x.requires_grad else x.detach().requires_grad_() for x in primals)
        # A dual number is a view of its primal: without grad mode, it would not require grad.
        with torch.set_grad_enabled(differentiated or torch.is_grad_enabled()):
            return jvp(function, primals, tangents)


@dataclass(frozen=True)
class Sum(Derivative):
    """The sum of all real coordinates of the tensors that `inner` returns, a scalar."""

    def _of(self, function: Callable[..., Tensors], arguments: Tensors, batch: Sequence[int]) -> Tensors:
        total = torch.zeros((), device="cpu")
        for tensor in function(*arguments):
            sums = tensor.reshape(*batch, tensor.numel() // prod(batch)).sum(-1)
            total = total + (sums.real + sums.imag if sums.is_complex() else sums)
        return (total,)


def surrogate_of(function: Function) -> Function | None:
    """Return the `surrogate` of a function, of which differences are taken in its place; None if it has none."""
    own: Function | None = getattr(function, "surrogate", None)
    return own


def layers(function: Differentiable, arguments: Tensors) -> list[tuple[Differentiable, Tensors]]:
    """Return the chain from the primal to `function`, each the derivative of the one before, with their arguments."""
    inner = layers(function.inner, function.leaves(arguments)) if isinstance(function, Derivative) else []
    return [*inner, (function, arguments)]


def with_surrogate(function: Differentiable) -> Differentiable:
    """Return the function of which differences are taken: the same derivative of the surrogate, if there is one."""
    if isinstance(function, Primal):
        own = surrogate_of(function.function)
        return function if own is None else replace(function, function=own)
    inner = with_surrogate(function.inner)
    return function if inner is function.inner else replace(function, inner=inner)


def gradient_sum(function: Differentiable, outputs: Tensors, count: int) -> Sum:
    """Return the sum of the gradients of a function of `count` leaves, for cotangents of ones.

    Its gradient is the Hessian times a vector of ones, which is what lucid's gradgradcheck compares
    (https://github.com/tensorflow/lucid).
    """
    return Sum(Pullback(function, count, fixed=tuple(torch.ones_like(y).detach() for y in outputs)))


def pushforward(function: Differentiable) -> Pushforward:
    """Return the pushforward of a function. Forward over forward uses `torch.func`, since dual numbers do not nest."""
    nests = has_forward(function)
    return Pushforward(transformed(function) if nests else function, nests)


def has_forward(function: Differentiable) -> bool:
    """Return whether a function uses forward mode anywhere."""
    return isinstance(function, Derivative) and (isinstance(function, Pushforward) or has_forward(function.inner))


def transformed(function: Differentiable) -> Differentiable:
    """Return the same function, with all of its derivatives by `torch.func`."""
    if isinstance(function, (Pullback, Pushforward)):
        return replace(function, inner=transformed(function.inner), transform=True)
    return function


def nodes_of(outputs: Sequence[Tensor]) -> Iterator[Any]:
    """Yield each node of the autograd graph of some outputs once."""
    waiting: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(following for following, _ in node.next_functions)


def functions_in(outputs: Sequence[Tensor]) -> list[Any]:
    """Return the nodes of custom `torch.autograd.Function`s in the autograd graph of some outputs."""
    return [node for node in nodes_of(outputs) if isinstance(node, BackwardCFunction)]
