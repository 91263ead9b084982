"""What an entry of the corpus of faulty and awkward functions is, and what entries are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from opcheck.derivatives import Numbers
from operators.asking import Request

Tensors = tuple[Tensor, ...]
Maker = Callable[[torch.dtype], Tensors]

REAL, COMPLEX = torch.float64, torch.complex128
NONE: frozenset[str] = frozenset()
FORWARD = frozenset({"forward_ad", "batched_forward_grad", "fwd_over_rev"})
"""The checks that need forward mode."""
SECOND = frozenset({"rev_over_rev", "fwd_over_rev"})
"""The checks that need second order."""
JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")
"""The checks that compare Jacobians."""
BESIDE = ("batched_grad", "batched_forward_grad", "undefined_grad", "grad_dtypes", "nondeterminism")
"""The checks that make other claims about the same derivatives."""

NUMBERS = Numbers(eps=1e-6, atol=1e-5, rtol=1e-3)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A function, and leaves to differentiate it at."""

    name: str
    function: Callable[..., Tensors]
    leaves: Maker
    """Leaves that require grad, the same ones on each call."""
    dtypes: tuple[torch.dtype, ...] = (REAL, COMPLEX)
    masked: bool = False
    """Whether unspecified elements of sparse leaves are left out of the derivative."""
    disclaims: frozenset[str] = NONE
    """Checks of derivatives that the function does not have, and refuses to give."""
    either: frozenset[str] = NONE
    """Checks that may answer either way, because it depends on how they ask."""

    def request(self, dtype: torch.dtype) -> Request:
        """Return what an engine is asked."""
        return Request(
            self.function,
            self.leaves(dtype),
            NUMBERS,
            masked=self.masked,
            forward_ad="forward_ad" not in self.disclaims,
        )


@dataclass(frozen=True, kw_only=True)
class Fault(Entry):
    """A function with one mistake.

    The checks of `JACOBIANS` that it does not name, under any of its fields, find nothing wrong with it.
    """

    caught_by: frozenset[str] = NONE
    """Checks that find it; empty where only a batching rule is wrong, which no derivative may be blame for."""
    torch_misses: frozenset[str] = NONE
    """Those of `caught_by` that torch's own slow mode lets through."""
    beside: frozenset[str] = NONE
    """Checks that find it by themselves, with no engine's help."""
    raises: bool = False
    """Whether the derivative raises, which counts as found."""


@dataclass(frozen=True, kw_only=True)
class Right(Entry):
    """A function without mistakes that is awkward to test."""

    torch_refuses: frozenset[str] = NONE
    """Checks that torch's own functions may stumble over."""


@dataclass(frozen=True)
class Formula:
    """A function with its derivatives written out, all on tuples of tensors."""

    value: Callable[..., Tensors]
    vjp: Callable[[Tensors, Tensors], Tensors]
    """x, v -> J(x)^T v, of the shapes of x."""
    jvp: Callable[[Tensors, Tensors], Tensors] | None = None
    """x, t -> J(x) t, of the shapes of the outputs."""
    materialize: bool = field(default=True, kw_only=True)
    """Whether undefined cotangents reach `vjp` as zeros, rather than as None."""

    def __call__(self, *x: Tensor) -> Tensors:
        """Return the value, as a function whose derivatives are these."""
        formula = self

        class Written(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(*x):
                return formula.value(*x)

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.set_materialize_grads(formula.materialize)
                ctx.save_for_backward(*inputs)
                ctx.save_for_forward(*inputs)

            @staticmethod
            def backward(ctx, *v):
                return formula.vjp(ctx.saved_tensors, v)

        if formula.jvp is not None:
            Written.jvp = staticmethod(lambda ctx, *t: formula.jvp(ctx.saved_tensors, t))
        return Written.apply(*x)


def random_leaves(*shapes: tuple[int, ...]) -> Maker:
    """Return a maker of leaves with elements in [0.5, 1.5), in both parts for complex dtypes: far from any kink."""

    def make(dtype: torch.dtype) -> Tensors:
        generator = torch.Generator().manual_seed(20)
        half = 0.5 + 0.5j if dtype.is_complex else 0.5
        return tuple((torch.rand(s, dtype=dtype, generator=generator) + half).requires_grad_() for s in shapes)

    return make


ONE = random_leaves((2, 2))
TWO = random_leaves((2, 2), (2, 2))
