"""What torch's gradcheck and gradgradcheck cannot be asked, put together from torch's other functions.

Further orders, gradients of sparse layouts, and batching by the public vmap: one point and one direction at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor

from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.question import Function, Request

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

Step = Literal["rev", "fwd", "sum"]
"""From a function to the next: its vjp, its jvp, or the sum of its gradients."""


def _chosen(function: Function, leaves: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, ...]]:
    """Restrict a function to the outputs that have a backward pass or, if none has, to those that could have one."""
    outputs = function(*leaves)
    places = [k for k, y in enumerate(outputs) if y.requires_grad]
    places = places or [k for k, y in enumerate(outputs) if y.is_floating_point() or y.is_complex()]

    def chosen(*points: Tensor) -> tuple[Tensor, ...]:
        found = function(*points)
        return tuple(found[k] for k in places)

    return chosen


def _gradients(outputs: tuple[Tensor, ...], leaves: tuple[Tensor, ...], cotangents: Any, **how: Any) -> Any:
    """Return the gradients; zeros if no output depends on a leaf, which autograd refuses to say."""
    pairs = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs:
        return tuple(map(torch.zeros_like, leaves))
    found, vectors = zip(*pairs, strict=True)
    return torch.autograd.grad(found, leaves, vectors, allow_unused=True, materialize_grads=True, **how)


def _jvp(function: Function, points: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    untyped: Any = fwad
    with fwad.dual_level():
        outputs = function(*map(untyped.make_dual, points, tangents))
        found = [untyped.unpack_dual(y).tangent for y in outputs]
    return tuple(torch.zeros_like(y) if t is None else t for y, t in zip(outputs, found, strict=True))


def _random(like: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return random vectors with the strides of tensors, the same ones whatever was drawn before."""
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.rand(x.shape, dtype=x.dtype, generator=generator) - 0.5 for x in like)
    return tuple(_as_lazy(_laid_out(vector, x), x) for vector, x in zip(drawn, like, strict=True))


def _laid_out(vector: Tensor, like: Tensor) -> Tensor:
    """Return a vector on the device of a tensor, with its strides: as_strided reads tangents by these, too."""
    if like.layout is not torch.strided or 0 in like.stride():
        return vector.to(like.device)
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(vector)


def _as_lazy(vector: Tensor, like: Tensor) -> Tensor:
    """Return a vector with the conjugate bit of a tensor, which torch requires of its tangents."""
    return vector.conj() if like.is_conj() else vector


def derivative_of(request: Request, step: Step) -> Request:
    """Return the same question about a derivative of the function, with random vectors as further leaves."""
    function, count = _chosen(request.function, request.leaves), len(request.leaves)

    def vjp(*arguments: Tensor) -> tuple[Tensor, ...]:
        leaves, cotangents = arguments[:count], arguments[count:]
        found: tuple[Tensor, ...] = _gradients(function(*leaves), leaves, cotangents, create_graph=True)
        return found

    def total(*leaves: Tensor) -> tuple[Tensor, ...]:
        outputs = function(*leaves)
        found = _gradients(outputs, leaves, tuple(map(torch.ones_like, outputs)), create_graph=True)
        sums = [g.real.sum() + g.imag.sum() if g.is_complex() else g.sum() for g in found]
        return (torch.stack(sums).sum(),)

    def jvp(*arguments: Tensor) -> tuple[Tensor, ...]:
        return _jvp(function, arguments[:count], arguments[count:])

    if step == "sum":
        return request.with_(function=total)
    given = request.grad_outputs if step == "rev" else None
    vectors = given or _random(function(*request.leaves) if step == "rev" else request.leaves)
    leaves = (*request.leaves, *(v.detach().requires_grad_() for v in vectors))
    return request.with_(function=vjp if step == "rev" else jvp, leaves=leaves, grad_outputs=None)


def with_all_outputs(request: Request) -> Request:
    """Return the question with every output made to require grad, with a derivative of zero if it has none.

    gradcheck leaves out those that do not require grad. Its fast mode then takes one output for another.
    """

    def function(*leaves: Tensor) -> tuple[Tensor, ...]:
        real = [leaf.real if leaf.is_complex() else leaf for leaf in leaves if leaf.layout is torch.strided]
        zero = sum((leaf.sum() * 0 for leaf in real), torch.zeros(())).nan_to_num(0.0)
        outputs = request.function(*leaves)
        return tuple(y if y.requires_grad or y.layout is not torch.strided else y + zero.to(y.dtype) for y in outputs)

    return request.with_(function=function)


def with_dense_gradients(request: Request) -> Request:
    """Return the question about the vjp with dense gradients, since gradgradcheck refuses sparse ones."""
    derived = derivative_of(request, "rev")

    def dense(*arguments: Tensor) -> tuple[Tensor, ...]:
        found = derived.function(*arguments)
        return tuple(g.to_dense(masked_grad=request.masked) if g.layout in SPARSE else g for g in found)

    return derived.with_(function=dense)


def forward_over_forward(request: Request) -> Disagreement | None:
    """Compare the jvp of the jvp with differences of the jvp, along each real coordinate in turn."""
    function, numbers = _chosen(request.function, request.leaves), request.numbers
    leaves = tuple(leaf.detach() for leaf in request.leaves)
    arguments = (*leaves, *_random(leaves))

    def jvp(*moved: Tensor) -> Any:
        return torch.func.jvp(function, moved[: len(leaves)], moved[len(leaves) :])[1]

    for number, units in enumerate(map(_units, arguments)):
        for unit in units:
            tangents = tuple(unit if k == number else torch.zeros_like(x) for k, x in enumerate(arguments))
            tangents = tuple(_as_lazy(_laid_out(t, x), x) for t, x in zip(tangents, arguments, strict=True))
            steps = [(x, numbers.eps * t) for x, t in zip(arguments, tangents, strict=True)]
            above, below = (jvp(*(_laid_out(x + sign * step, x) for x, step in steps)) for sign in (1, -1))
            for output, found in enumerate(torch.func.jvp(jvp, arguments, tangents)[1]):
                expected = (above[output] - below[output]) / (2 * numbers.eps)
                if not torch.allclose(found, expected, numbers.rtol, numbers.atol):
                    where = f"output {output} with respect to argument {number} of the jvp"
                    return Disagreement(f"forward over forward: {where} is off")
    return None


def _units(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a tensor for each real coordinate of another: 1 there, or 1j, and 0 elsewhere."""
    for index in range(tensor.numel()):
        for value in (1, 1j) if tensor.is_complex() else (1,):
            unit = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            unit.view(-1)[index].fill_(value)
            yield unit


def batching(check: str, request: Request) -> Disagreement | None:
    """Compare vmapped derivatives in three directions with those from a loop."""
    function, leaves = _chosen(request.function, request.leaves), request.leaves
    outputs = function(*leaves)
    if not outputs:
        return None
    points = tuple(leaf.detach() for leaf in leaves)
    like = outputs if check == "batched_grad" else points

    def derivative(*vectors: Tensor) -> Any:
        if check == "batched_grad":
            return _gradients(outputs, leaves, vectors, retain_graph=True)
        return torch.func.jvp(function, points, vectors)[1]

    rows = [_random(like) for _ in range(3)]
    stacked = [_as_lazy(torch.stack([_as_lazy(v, x) for v in own]), x) for *own, x in zip(*rows, like, strict=True)]
    try:
        batched = torch.func.vmap(derivative, randomness="same")(*stacked)
    except Exception as error:
        return Disagreement(f"While computing batched gradients, got: {error}", "refused")
    for number, row in enumerate(rows):
        for found, expected in zip(batched, derivative(*row), strict=True):
            one, other = (t.to_dense() if t.layout in SPARSE else t for t in (found[number], expected))
            if not torch.allclose(one, other, 1e-5, 1e-8, equal_nan=True):
                return Disagreement("a vmapped derivative is not that of the loop")
    return None
