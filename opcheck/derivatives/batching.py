"""Values, tangents and gradients at many points, all from one batch.

The rows of a batch are independent. So one call with dual numbers carries a tangent for each row, and one backward pass
over its graph a cotangent for each row. For small tensors a call of torch is mostly overhead, so that rows that are
not needed cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Mode, Tensors, pushed, vjp
from opcheck.derivatives.coordinates import chunks, largest_difference, rows_of, tensors_of

FEW = 2
"""Up to how many directions ordinary calls take less time than a batch."""

Batched = Literal["points", "directions", ""]


@dataclass(frozen=True)
class Sweep:
    """Results at K points of a function with N inputs and M outputs, as float64 matrices."""

    values: Tensor
    """f(x), of shape (K, M)."""
    tangents: Tensor | None
    """J(x) t, of shape (K, M)."""
    gradients: Tensor | None
    """J(x)^T v, of shape (K, N)."""


def sweep(
    function: Differentiable, leaves: Sequence[Tensor], points: Tensor, *, batch: int,
    tangents: Tensor | None = None, cotangents: Tensor | None = None, outputs: Sequence[Tensor] = (),
) -> Sweep:  # fmt: skip
    """Evaluate a function at points of shape (K, N), `batch` of them per call.

    tangents: of shape (K, N), for tangents of the outputs; cotangents: of shape (K, M), for gradients. Both have the
    dtypes and memory formats of the leaves and of `outputs`. Passes on the exceptions of the function and of its
    derivatives, and those of vmap if it cannot be batched.
    """
    pieces: list[tuple[Tensor, ...]] = []
    for number, chunk in enumerate(chunks(points, batch)):
        rows, at = slice(number * batch, number * batch + len(chunk)), tensors_of(chunk, leaves)
        with torch.set_grad_enabled(cotangents is not None):
            if cotangents is not None:
                at = tuple(point.requires_grad_() for point in at)
            if tangents is None:
                results = [values := function.rows(*at)]
            else:
                values, carried = pushed(function.rows, at, tensors_of(tangents[rows], leaves))
                results = [
                    values,
                    tuple(torch.zeros_like(y) if t is None else t for y, t in zip(values, carried, strict=True)),
                ]
            # Out of the dual numbers: a backward pass would carry tangents too, which nobody asked for.
            if cotangents is not None:
                results.append(vjp(values, at, tensors_of(cotangents[rows], outputs)))
        pieces.append(tuple(rows_of(result, len(chunk)) for result in results))
    joined = iter([own[0] if len(own) == 1 else torch.cat(own) for own in zip(*pieces, strict=True)])
    return Sweep(next(joined), None if tangents is None else next(joined), None if cotangents is None else next(joined))


def by_vmap(function: Callable[..., Tensors], rows: Tensor, like: Sequence[Tensor], batch: int) -> Tensor:
    """Apply `torch.func.vmap` of a function to rows, `batch` of them per call. Its arguments are tensors like `like`.

    Passes on the exceptions of the function and of vmap.
    """
    vmapped = torch.func.vmap(function, randomness="same")
    return torch.cat([rows_of(vmapped(*tensors_of(some, like)), len(some)) for some in chunks(rows, batch)])


@dataclass(frozen=True)
class Analytical:
    """A Jacobian by automatic differentiation."""

    jacobian: Tensor
    """Of shape (M, N), float64; projected, V J of shape (K, N) by reverse and J U^T of shape (M, K) by forward mode."""
    predicted: Tensor
    """Its product with a random direction, a vector."""
    ordinary: Tensor
    """The same product by one ordinary call."""
    batched: Batched = ""
    """What it is a batch of: many points, or many directions at one point; empty: it is from the loop."""
    refusal: Exception | None = None
    """Why it could not be batched."""

    @classmethod
    def of(
        cls, rows: Tensor, mode: Mode, mix: Tensor, ordinary: Tensor | None, batched: Batched = "",
        refusal: Exception | None = None,
    ) -> Analytical:  # fmt: skip
        """Return the Jacobian that has V J or U J^T as rows.

        ordinary: the product with the sum `mix` of the directions by an ordinary call; None: there is one direction
        alone, whose product is one.
        """
        jacobian = rows if mode == "reverse" else rows.T
        if ordinary is None:
            return cls(jacobian, rows[0], rows[0], batched, refusal)
        return cls(jacobian, mix @ rows, ordinary, batched, refusal)

    @cached_property
    def deviation(self) -> float:
        """The largest difference between the two products."""
        return largest_difference(self.predicted, self.ordinary)

    def holds(self, rounding: float) -> bool:
        """Tell whether the ordinary call agrees with the Jacobian, up to a relative rounding error."""
        if self.deviation <= rounding:  # as almost always; NaN is looked at below
            return True
        scale = float(torch.linalg.vector_norm(self.jacobian, float("inf"))) if self.jacobian.numel() else 1.0
        allowed = rounding * (scale * max(self.jacobian.shape) if isfinite(scale) else 1.0)
        return torch.allclose(self.predicted, self.ordinary, rounding, allowed, equal_nan=True)
