"""A function of complex tensors as one of their real coordinates, so that torch differentiates a real function."""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.derivatives.engine import Function, Request


def in_real_form(request: Request) -> Request:
    """Return the question about x -> view_as_real(f(view_as_complex(x))), whose Jacobian is that of f in R^2.

    torch's gradcheck takes a complex function apart into four real ones by adding and multiplying with 1j, which in
    forward mode costs more than the operator itself; the real form asks for the same numbers at once. Memory formats
    are kept, and so is lazy conjugation.
    """
    if not any(leaf.is_complex() for leaf in request.leaves):
        return request
    conjugated = tuple(leaf.is_conj() for leaf in request.leaves)
    leaves = tuple(_real_leaf(leaf) for leaf in request.leaves)
    shapes = tuple(leaf.is_complex() for leaf in request.leaves)
    given = request.grad_outputs
    return request.with_(
        function=_real_function(request.function, shapes, conjugated),
        leaves=leaves,
        grad_outputs=None if given is None else tuple(_real_leaf(v.detach().resolve_conj()) for v in given),
    )


def _real_leaf(leaf: Tensor) -> Tensor:
    if not leaf.is_complex():
        return leaf.detach().requires_grad_()
    plain = leaf.detach()
    plain = plain.conj() if plain.is_conj() else plain  # the tensor under the lazy conjugation
    return torch.view_as_real(plain).detach().requires_grad_()


def _real_function(function: Function, is_complex: tuple[bool, ...], conjugated: tuple[bool, ...]) -> Function:
    def real(*points: Tensor) -> tuple[Tensor, ...]:
        leaves = []
        for point, as_complex, lazily in zip(points, is_complex, conjugated, strict=True):
            leaf = torch.view_as_complex(point) if as_complex else point
            leaves.append(leaf.conj() if lazily else leaf)
        outputs = function(*leaves)
        return tuple(torch.view_as_real(y.resolve_conj()) if y.is_complex() else y for y in outputs)

    return real
