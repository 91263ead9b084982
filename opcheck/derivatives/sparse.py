"""Functions of sparse tensors as functions of their elements, which are strided tensors that can be moved.

Under masked semantics, unspecified elements do not exist: nothing depends on them, and their gradient must be zero.
Under non-masked semantics, they are zeros like any other. Differences are then taken where all elements are specified,
since only specified elements can be moved. Derivatives are taken at the sparse tensors themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Function, surrogate_of, tangent_of

BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, *BLOCKED)


def are_movable(leaves: Iterable[Tensor]) -> bool:
    """Return whether all leaves are strided or sparse, so that each of their elements can be moved."""
    return all(leaf.layout in (torch.strided, *LAYOUTS) for leaf in leaves)


@dataclass(frozen=True, eq=False)
class Pattern:
    """The structure of a sparse tensor: all but its values."""

    layout: torch.layout
    shape: torch.Size
    indices: tuple[Tensor, ...]
    """The indices of a COO tensor; the compressed and the plain indices of a compressed tensor."""
    places: Tensor
    """For each value, the number of its element in the flattened tensor. Of the shape of the values."""
    shares: Tensor | None = None
    """For COO tensors that are not coalesced, where several values may have the same place: for each value, the factor
    by which a change of the element changes it. Values with the same place share a change equally."""
    rest: Tensor | None = None
    """For COO tensors that are not coalesced: what each value has beyond its share of the element, so that the tensor's
    own values are kept."""

    @classmethod
    def of(cls, sparse: Tensor) -> Pattern:
        """Return the pattern of a sparse tensor."""
        if sparse.layout is not torch.sparse_coo:
            indices = _compressed_indices(sparse)
            return cls(sparse.layout, sparse.shape, indices, _places_of_compressed(sparse, indices))
        values = sparse._values()
        numbers = torch.arange(sparse.numel(), device=sparse.device).view(sparse.shape)
        places = numbers[tuple(sparse._indices())].expand(values.shape)
        if sparse.is_coalesced():
            return cls(sparse.layout, sparse.shape, (sparse._indices(),), places)
        shares = places.flatten().bincount(minlength=sparse.numel())[places].reciprocal().to(values.dtype)
        rest = values - shares * sparse.to_dense().reshape(-1)[places]
        return cls(sparse.layout, sparse.shape, (sparse._indices(),), places, shares, rest)

    @classmethod
    def of_all(cls, like: Tensor) -> Pattern:
        """Return the pattern of a sparse tensor of the layout and shape of `like` with all elements specified."""
        if like.layout is torch.sparse_coo:
            return cls.of(torch.ones(like.shape, device=like.device).to_sparse(like.sparse_dim()))
        batch = _compressed_indices(like)[0].dim() - 1
        block = like.values().shape[batch + 1 : batch + 3] if like.layout in BLOCKED else None
        ones = torch.ones(like.shape, device=like.device)
        return cls.of(ones.to_sparse(layout=like.layout, blocksize=block, dense_dim=like.dense_dim()))

    def of_elements(self, elements: Tensor) -> Tensor:
        """Return the sparse tensor with some elements, given as a strided tensor. Unspecified ones are ignored."""
        values = self._values(elements)
        return self._with(values if self.rest is None else self.rest + values)

    def of_change(self, elements: Tensor) -> Tensor:
        """Return the change of the sparse tensor for a change of its elements."""
        return self._with(self._values(elements))

    def _values(self, elements: Tensor) -> Tensor:
        values = elements.reshape(-1)[self.places]
        return values if self.shares is None else values * self.shares

    def _with(self, values: Tensor) -> Tensor:
        own = [indices.clone() for indices in self.indices]  # a function may write to them
        if self.layout is torch.sparse_coo:
            coalesced = self.shares is None
            return torch.sparse_coo_tensor(own[0], values, self.shape, is_coalesced=coalesced, check_invariants=False)
        return torch.sparse_compressed_tensor(
            own[0], own[1], values, self.shape, layout=self.layout, check_invariants=False
        )


def _compressed_indices(sparse: Tensor) -> tuple[Tensor, Tensor]:
    if sparse.layout in (torch.sparse_csr, torch.sparse_bsr):
        return sparse.crow_indices(), sparse.col_indices()
    return sparse.ccol_indices(), sparse.row_indices()


def _places_of_compressed(sparse: Tensor, indices: tuple[Tensor, Tensor]) -> Tensor:
    """Return the number of each value's element in the flattened tensor.

    The values are replaced by 1, 2, ..., which are then found in the dense tensor.
    """
    values = sparse.values()
    numbers = torch.arange(1.0, values.numel() + 1, dtype=torch.float64, device=values.device).view(values.shape)
    numbered = torch.sparse_compressed_tensor(
        *indices, numbers, sparse.shape, layout=sparse.layout, check_invariants=False
    )
    dense = numbered.to_dense().flatten()
    places = dense.nonzero().flatten()
    return places[dense[places].argsort()].view(values.shape)


class _Sparse(torch.autograd.Function):
    """Elements -> a sparse tensor. The gradient is that of all elements, zero where the sparse gradient has none."""

    @staticmethod
    def forward(ctx: Any, elements: Tensor, pattern: Pattern, masked: bool) -> Tensor:
        ctx.pattern, ctx.masked = pattern, masked
        ctx.set_materialize_grads(False)
        return pattern.of_elements(elements)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> Any:
        return None if gradient is None else _apply(_Strided, gradient, ctx.masked), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return ctx.pattern.of_change(tangent)  # type: ignore[no-any-return]


class _Strided(torch.autograd.Function):
    """A sparse tensor -> its elements. The gradient has the tensor's pattern, or all elements if not masked."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, masked: bool) -> Tensor:
        ctx.masked, ctx.pattern = masked, None
        if tensor.layout in LAYOUTS and ctx.needs_input_grad[0]:
            plain = _coalesced(tensor)
            ctx.pattern = Pattern.of(plain) if masked else Pattern.of_all(plain)
        return tensor.clone() if tensor.layout is torch.strided else tensor.to_dense()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient if ctx.pattern is None else _apply(_Sparse, gradient, ctx.pattern, ctx.masked), None


def _coalesced(sparse: Tensor) -> Tensor:
    """Return a sparse tensor without its graph, coalesced: no two values have the same place."""
    return sparse.detach().coalesce() if sparse.layout is torch.sparse_coo else sparse.detach()


def _apply(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


@dataclass(frozen=True, eq=False, repr=False)  # torch uses the repr of a function, and printing tensors is slow
class OfElements:
    """A function of tensors, some of which are sparse, as a function of strided tensors with the same elements."""

    function: Function
    leaves: tuple[Tensor, ...]
    """The original tensors, strided or sparse."""
    masked: bool
    all_specified: bool = False
    """Whether the function is called with sparse tensors that have all elements specified."""

    def __call__(self, *elements: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs.

        If `elements` require grad or are dual, the sparse tensors made of them require grad or are dual, too.
        """
        return self.function(*map(self._made, elements, self.patterns))

    def _made(self, elements: Tensor, pattern: Pattern | None) -> Tensor:
        if pattern is None:
            return elements
        if elements.requires_grad or tangent_of(elements) is not None:
            return _apply(_Sparse, elements, pattern, self.masked)
        return pattern.of_elements(elements)

    @property
    def surrogate(self) -> OfElements:
        """The function of which differences are taken: unless masked, of sparse tensors with all elements specified.

        Raises DependsOnPattern if the shapes of its outputs are others.
        """
        own = replace(self, function=surrogate_of(self.function) or self.function)
        if self.masked:
            return own
        everywhere = replace(own, all_specified=True)
        with torch.no_grad():
            partial, full = ([tuple(y.shape) for y in function(*self.elements)] for function in (own, everywhere))
        if partial != full:
            raise DependsOnPattern(
                f"the output shapes depend on the sparsity pattern: {partial} for the sample, {full} with all elements "
                "specified; expected equal shapes, since unspecified elements are zeros"
            )
        return everywhere

    @cached_property
    def patterns(self) -> tuple[Pattern | None, ...]:
        """The pattern of each leaf; None for a strided leaf."""
        pattern = Pattern.of_all if self.all_specified else Pattern.of
        return tuple(pattern(x.detach()) if x.layout in LAYOUTS else None for x in self.leaves)

    @cached_property
    def elements(self) -> tuple[Tensor, ...]:
        """The elements of the leaves, as strided tensors that require grad."""
        return tuple(x.detach().to_dense().requires_grad_() if x.layout in LAYOUTS else x for x in self.leaves)


def ones_like(tensor: Tensor) -> Tensor:
    """Return ones like a tensor, in contiguous memory; for a sparse tensor, at its specified elements."""
    if tensor.layout not in LAYOUTS:
        return torch.ones_like(tensor, memory_format=torch.contiguous_format)
    return Pattern.of(_coalesced(tensor)).of_elements(
        torch.ones(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    )


class DependsOnPattern(Exception):
    """The shapes of a function's outputs depend on which elements are specified. The message gives the shapes."""
