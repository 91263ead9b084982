"""Functions of sparse tensors as functions of their elements, which are strided tensors that can be moved.

Under masked semantics the elements that are not specified do not exist: nothing depends on them, and a gradient of them
must be zero. Under non-masked semantics they are zeros like any other. Differences are then taken where all elements
are specified, since only what is specified can be moved; derivatives are taken where the sparse tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, GradientSum, Primal, Pullback, Pushforward, layers
from opcheck.derivatives.coordinates import stencil
from opcheck.derivatives.differences import Differences, differences, looped
from opcheck.derivatives.evidence import Batched, Evidence, Mode
from opcheck.derivatives.question import Function, Request

LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


@dataclass(frozen=True)
class Pattern:
    """How a sparse tensor is stored, but for its values."""

    layout: torch.layout
    shape: torch.Size
    indices: tuple[Tensor, ...]
    """Of COO tensors the indices; of compressed ones the compressed and the plain indices."""
    coalesced: bool
    places: Tensor
    """Of each value, the number of its element in the flattened tensor. Of the shape of the values."""
    shares: Tensor | None = None
    """Of each value of a COO tensor that is not coalesced, its share of a change of the element; None: all of it."""

    @classmethod
    def of(cls, sparse: Tensor) -> Pattern:
        """Return the pattern of a sparse tensor."""
        if sparse.layout is not torch.sparse_coo:
            indices = _compressed_indices(sparse)
            return cls(sparse.layout, sparse.shape, indices, True, _places_of_compressed(sparse, indices))
        indices, values, coalesced = sparse._indices(), sparse._values(), sparse.is_coalesced()
        numbers = torch.arange(sparse.numel(), device=sparse.device).view(sparse.shape)
        places = numbers[tuple(indices)].expand(values.shape)
        shares = None if coalesced else 1.0 / places.flatten().bincount(minlength=sparse.numel())[places]
        return cls(sparse.layout, sparse.shape, (indices,), coalesced, places, shares)

    @classmethod
    def of_all(cls, like: Tensor) -> Pattern:
        """Return the pattern of a sparse tensor of the same layout that has all elements specified."""
        if like.layout is torch.sparse_coo:
            indices = torch.ones(like.shape[: like.sparse_dim()], device=like.device).nonzero().T
            values = torch.zeros(indices.shape[1], *like.shape[like.sparse_dim() :], device=like.device)
            return cls.of(torch.sparse_coo_tensor(indices, values, like.shape, is_coalesced=True))
        batch = _compressed_indices(like)[0].dim() - 1
        block = like.values().shape[batch + 1 : batch + 3] if "bs" in str(like.layout) else None
        ones = torch.ones(like.shape, device=like.device)
        return cls.of(ones.to_sparse(layout=like.layout, blocksize=block, dense_dim=like.dense_dim()))

    def with_values(self, values: Tensor) -> Tensor:
        """Return the sparse tensor with the given values."""
        own = [indices.clone() for indices in self.indices]  # nobody writes to those of another tensor
        if self.layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(own[0], values, self.shape, is_coalesced=self.coalesced)
        return torch.sparse_compressed_tensor(*own, values, self.shape, layout=self.layout)

    def of_elements(self, elements: Tensor) -> Tensor:
        """Return the sparse tensor with the given elements. Those that it does not specify are left out."""
        values = elements.reshape(-1)[self.places]
        return self.with_values(values if self.shares is None else values * self.shares.to(values.dtype))


def _compressed_indices(sparse: Tensor) -> tuple[Tensor, Tensor]:
    if sparse.layout in (torch.sparse_csr, torch.sparse_bsr):
        return sparse.crow_indices(), sparse.col_indices()
    return sparse.ccol_indices(), sparse.row_indices()


def _places_of_compressed(sparse: Tensor, indices: tuple[Tensor, Tensor]) -> Tensor:
    """Return the number of the element of each value: the values are numbered, and sought in the dense tensor."""
    values = sparse.values()
    numbers = torch.arange(1.0, values.numel() + 1, dtype=torch.float64, device=values.device).view(values.shape)
    numbered = torch.sparse_compressed_tensor(*indices, numbers, sparse.shape, layout=sparse.layout)
    dense = numbered.to_dense().flatten()
    found = dense.nonzero().flatten()
    return found[dense[found].argsort()].view(values.shape)


class _Sparse(torch.autograd.Function):
    """Elements -> a sparse tensor. Its gradient is that of all elements, wherever the sparse tensor has none."""

    @staticmethod
    def forward(elements: Tensor, pattern: Pattern, rest: Tensor | None, masked: bool) -> Tensor:
        sparse = pattern.of_elements(elements)
        return sparse if rest is None else pattern.with_values(sparse._values() + rest)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.pattern, _, ctx.masked = inputs
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> Any:  # type: ignore[override]
        return None if gradient is None else _Strided.apply(gradient, ctx.masked), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, *_: None) -> Tensor | None:  # type: ignore[override]
        return None if tangent is None else ctx.pattern.of_elements(tangent)


class _Strided(torch.autograd.Function):
    """A sparse tensor -> its elements. Its gradient is as sparse as it is; under non-masked semantics it has all."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor, masked: bool) -> Tensor:
        return tensor.clone() if tensor.layout is torch.strided else tensor.to_dense()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        tensor, ctx.masked = inputs
        ctx.pattern = None
        if tensor.layout in LAYOUTS and ctx.needs_input_grad[0]:
            plain = tensor.detach()
            plain = plain.coalesce() if plain.layout is torch.sparse_coo else plain
            ctx.pattern = Pattern.of(plain) if ctx.masked else Pattern.of_all(plain)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return gradient if ctx.pattern is None else _Sparse.apply(gradient, ctx.pattern, None, ctx.masked), None


@dataclass(frozen=True)
class OfElements:
    """A function of tensors, some of which are sparse, as a function of strided tensors with the same elements."""

    function: Function
    leaves: tuple[Tensor, ...]
    """The tensors, as they are given."""
    masked: bool
    all_specified: bool = False
    """Whether the function is called with sparse tensors that have all elements specified."""

    def __call__(self, *elements: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs."""
        given = zip(elements, self.patterns, self.rests, strict=True)
        return self.function(*(x if p is None else _Sparse.apply(x, p, rest, self.masked) for x, p, rest in given))

    @cached_property
    def patterns(self) -> tuple[Pattern | None, ...]:
        """The pattern of each leaf; None for those that are strided."""
        pattern = Pattern.of_all if self.all_specified else Pattern.of
        return tuple(pattern(x.detach()) if x.layout in LAYOUTS else None for x in self.leaves)

    @cached_property
    def rests(self) -> tuple[Tensor | None, ...]:
        """What the values of leaves that are not coalesced have beside their share of the element."""
        found = []
        for leaf, pattern in zip(self.leaves, self.patterns, strict=True):
            split = pattern is not None and pattern.shares is not None
            shared = pattern.of_elements(leaf.detach().to_dense()) if split and pattern is not None else None
            found.append(None if shared is None else leaf.detach()._values() - shared._values())
        return tuple(found)

    @cached_property
    def elements(self) -> tuple[Tensor, ...]:
        """The elements of the leaves, which require grad."""
        return tuple(x.detach().to_dense().requires_grad_() if x.layout in LAYOUTS else x for x in self.leaves)

    @cached_property
    def fixed(self) -> Tensor:
        """Which coordinates of the elements nothing depends on, as a mask of shape (N,)."""
        found = []
        for x, pattern in zip(self.elements, self.patterns, strict=True):
            mask = torch.full((x.numel(),), pattern is not None)
            if pattern is not None:
                mask[pattern.places.flatten().cpu()] = False
            found.append(mask.repeat_interleave(2) if x.is_complex() else mask)
        return torch.cat(found)


def of_elements(request: Request) -> Request:
    """Return the same question about a function of strided tensors. The leaves of a request may be sparse."""
    function = OfElements(request.function, request.leaves, request.masked)
    return request.with_(function=function, leaves=function.elements)


class OfSparse(Evidence):
    """The derivative of a function made by `of_elements`, or of a derivative of it."""

    def _differences(self, step: float, one_by_one: bool) -> Differences:
        if not one_by_one:  # sparse tensors cannot be batched
            return self.numerical(step, looped=True)
        primal = layers(self.function, self.leaves)[0][0]
        assert isinstance(primal, Primal) and isinstance(primal.function, OfElements)
        own = primal.function
        points = self.point + stencil(self.size[1], step, self.projections)
        if not own.masked:
            function = _with_primal(self.function, replace(primal, function=replace(own, all_specified=True)))
            return differences(looped(function, self.leaves, points), step)
        fixed = own.fixed
        points[:, : len(fixed)] = torch.where(fixed, self.point[: len(fixed)], points[:, : len(fixed)])
        # Points that are alike, since nothing depends on what moves, take one call.
        distinct, place = points.unique(dim=0, return_inverse=True) if all(points.shape) else (points, slice(None))
        return differences(looped(self.function, self.leaves, distinct)[place], step)

    def _batches_for(self, mode: Mode) -> Iterator[tuple[Batched, Callable[[Mode], Tensor]]]:
        return (way for way in super()._batches_for(mode) if way[0] != "points")


def _with_primal(function: Differentiable, primal: Primal) -> Differentiable:
    """Return the same derivative of another function."""
    if isinstance(function, GradientSum):
        pulled = function.pullback
        return replace(function, pullback=replace(pulled, inner=_with_primal(pulled.inner, primal)))
    if isinstance(function, (Pullback, Pushforward)):
        return replace(function, inner=_with_primal(function.inner, primal))
    return primal
