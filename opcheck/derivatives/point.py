"""A function at its leaves, and its derivative there in three ways. Each is computed once, on first use.

A real Jacobian of shape (M, N) in the coordinates of `coordinates.py` holds everything, whatever the dtypes. It is
computed numerically, by reverse mode and by forward mode: for all directions at once, or one by one if the function
cannot be batched or the result of the batch is in doubt. The derivative of a function is again a function at a point.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from opcheck.derivatives import autodiff
from opcheck.derivatives.autodiff import Differentiable, Mode, Primal, Pullback, Tensors, of_primal, pushforward
from opcheck.derivatives.coordinates import largest_difference, same, tensors_of, vector
from opcheck.derivatives.cotangents import probe, vectors_like
from opcheck.derivatives.differences import Differences, batched, differences, looped, stencil, stencil_points
from opcheck.derivatives.directions import Colors, Directions, Random
from opcheck.derivatives.independence import independent_axes
from opcheck.derivatives.request import AUTO, Coverage, Extent, Request, tried
from opcheck.derivatives.uncertainty import ROUNDED
from opcheck.strides import with_gaps

LARGE = 4096
"""From how many coordinates of inputs and outputs on ordinary calls, one by one, take less time than a batch."""
FEW = 2
"""Up to how many directions ordinary calls take less time than a batch."""
Step = Literal["rev", "rev with gaps", "fwd", "sum"]
"""From a function to the next: its pullback, for cotangents that may have gaps in memory, its pushforward, or the sum
of its gradients for cotangents of ones."""


@dataclass(frozen=True)
class Analytical:
    """The products of the directions with a Jacobian, by automatic differentiation."""

    jacobian: Tensor
    """Of shape (M, N), float64; projected, V J of shape (K, N) by reverse and J U^T of shape (M, K) by forward mode."""
    predicted: Tensor
    """The sum of its products with some factors, a vector."""
    ordinary: Tensor
    """The same sum by one ordinary call."""
    batched: bool = False
    """Whether one batch has given all of them."""

    def holds(self, rounding: float) -> bool:
        """Tell whether the ordinary call agrees with the Jacobian, up to a relative rounding error."""
        if largest_difference(self.predicted, self.ordinary) <= rounding:  # as almost always; NaN is looked at below
            return True
        scale = float(torch.linalg.vector_norm(self.jacobian, float("inf"))) if self.jacobian.numel() else 1.0
        allowed = rounding * (scale * max(self.jacobian.shape) if isfinite(scale) else 1.0)
        return torch.allclose(self.predicted, self.ordinary, rounding, allowed, equal_nan=True)


class Point:
    """A function at `leaves`, which require grad and are strided.

    outputs: those at the leaves, if they are known already, by a call that nothing has come after.
    cotangents: those that its pullback is taken for. Default: random ones.
    """

    can_batch = True
    """Whether derivatives may be taken in many directions at once."""
    has_slices = True
    """Whether the function may turn out to be independent along dims of the leaves."""
    request: Request | None = None
    """The question that it was made for; None for a derivative."""
    elements: Point | None = None
    """The point of the elements of sparse leaves, once it is made."""
    _is_first_look = False
    """Whether an objection is confirmed later, so that f(x) is taken from an earlier call instead of a further one."""

    def __init__(
        self, function: Differentiable, leaves: Tensors, *, coverage: Coverage = AUTO, outputs: Tensors | None = None,
        cotangents: Tensors | None = None,
    ) -> None:  # fmt: skip
        self.function, self.leaves, self.coverage = function, leaves, coverage
        self._outputs, self._graph, self._cotangents = outputs, outputs, cotangents
        self._derived: dict[Step, Point] = {}
        self._numerical: dict[tuple[float, bool], Differences] = {}
        self._analytical: dict[tuple[Mode, bool], Analytical] = {}
        self._ordinary: dict[Mode, Tensor] = {}

    @classmethod
    def of(cls, request: Request) -> Point:
        """Return the point of a question. Passes on the exceptions of the function."""
        outputs = request.function(*request.leaves)
        chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
        if not chosen:
            # Nothing has a backward pass: all that could have a derivative must then have none.
            chosen = tuple(i for i, y in enumerate(outputs) if y.is_floating_point() or y.is_complex())
        point = cls(
            Primal(request.function, chosen), request.leaves, coverage=request.coverage,
            outputs=tuple(outputs[index] for index in chosen), cotangents=request.grad_outputs,
        )  # fmt: skip
        point.request, point._graph = request, None
        return point

    def derived(self, *steps: Step) -> Point:
        """Return the point of the function that some steps lead to: itself without any."""
        if not steps:
            return self
        first, *others = steps
        if first not in self._derived:
            self._derived[first] = self._stepped(first)
        return self._derived[first].derived(*others)

    def _stepped(self, step: Step) -> Point:
        count = len(self.leaves)
        if step == "sum":
            total = autodiff.gradient_sum(self.function, self.outputs, count)
            return type(self)(total, self.leaves, coverage=self.coverage)
        function: Differentiable
        if step == "fwd":
            function, vectors = pushforward(self.function), vectors_like(self.leaves, 1)
        else:
            # A pullback has an output for each leaf of its function: to know these takes no call.
            inner = self.function
            like = self.leaves[: inner.count] if isinstance(inner, Pullback) else self.outputs
            function = Pullback(self.function, count)
            vectors = vectors_like(like, 1) if self._cotangents is None else self._cotangents
            vectors = tuple(map(with_gaps, vectors)) if step == "rev with gaps" else vectors
        linear = tuple(v.detach().requires_grad_() for v in vectors)
        return type(self)(function, (*self.leaves, *linear), coverage=self.coverage)

    def graph(self) -> Tensors:
        """Return the outputs, with a graph that is used only once.

        A backward pass may modify saved tensors, and so may any other call, which must not change what another
        comparison sees. So the function is called again, unless nothing has run since the call that gave the values.
        """
        graph, self._graph = self._graph, None
        if graph is None:
            # The function may exchange the memory of its leaves without a trace: they keep their own.
            own = [(leaf, leaf.data) for leaf in self.leaves if leaf.layout is torch.strided]
            graph = self.function(*self.leaves)
            for leaf, memory in own:
                if leaf.data_ptr() != memory.data_ptr():
                    leaf.data = memory
        if self._outputs is None:
            self._outputs = graph
        _ = self.value  # read before anybody writes to them
        return graph

    @property
    def outputs(self) -> Tensors:
        """The outputs at the leaves, for their shapes and dtypes. What needs a graph takes one: see `graph`."""
        if self._outputs is None:
            self._outputs = self._graph = self.graph()  # which nobody else has
        return self._outputs

    @cached_property
    def value(self) -> Tensor:
        """The outputs at the leaves, of shape (M,)."""
        return vector(self.outputs)

    @cached_property
    def size(self) -> tuple[int, int]:
        """The shape (M, N) of the Jacobian."""
        return self.value.numel(), self.coordinates.numel()

    @cached_property
    def directions(self) -> Directions:
        """The directions that the Jacobian is compared in.

        Raises TooLarge if a whole one is requested that does not fit into memory.
        """
        if self.projections is None:
            return Directions(self.size, self.leaves)
        if self.coverage.jacobian == "auto" and all(self.size) and self.has_slices:
            axes = independent_axes(self.at, self.looped_differences, self.unit, self.leaves, self.outputs)
            colors = Colors(axes, self.size, self.outputs, self.leaves) if axes else None
            if colors and self.coverage.allows_compressed(self.size, colors.of_inputs.count, colors.of_outputs.count):
                return colors
        return Random(self.size, self.projections)

    @cached_property
    def projections(self) -> int | None:
        """The number of random directions on each side; None if the Jacobian is small enough to be whole."""
        return self.coverage.directions(self.size)

    @cached_property
    def coordinates(self) -> Tensor:
        """The coordinates of the leaves, of shape (N,)."""
        return vector(self.leaves)

    @cached_property
    def unit(self) -> float:
        """The rounding unit of the function's arithmetic: that of the coarsest leaf or output."""
        tensors = (*self.leaves, *self.outputs)
        return max((torch.finfo(t.dtype).eps for t in tensors if t.is_floating_point() or t.is_complex()), default=0.0)

    @property
    def rounding(self) -> float:
        """By how much two ways to the same derivative may differ, relative to its size."""
        return ROUNDED * self.unit

    @property
    def extent(self) -> Extent:
        """How much of the Jacobian is compared."""
        return self.directions.extent

    @property
    def compared(self) -> Extent | None:
        """How much of it has been compared; None if nothing has, but along one direction."""
        return self.extent if "directions" in self.__dict__ else None

    @cached_property
    def along_one(self) -> Point:
        """The same point, seen along one random direction on each side, which takes a few ordinary calls."""
        directions = Random(self.size, 1)
        other = copy(self)
        other.turn_to(directions)
        other._is_first_look = True
        self._graph = None  # which nobody else has
        return other

    def moved_to(self, coordinates: Tensor) -> Point:
        """Return the point of the same function at other leaves, by their coordinates of shape (N,)."""
        leaves = tuple(leaf.requires_grad_() for leaf in tensors_of(coordinates, self.leaves))
        return type(self)(self.function, leaves, coverage=self.coverage)

    def turn_to(self, directions: Directions) -> None:
        """Give up the directions for others."""
        self.directions, self._numerical, self._analytical = directions, {}, {}

    def at(self, leaves: Tensors) -> Tensors:
        """Return the values that differences are taken of at other leaves, without a graph."""
        self._graph = None
        with torch.no_grad():
            return self.surrogate(*leaves)

    @cached_property
    def surrogate(self) -> Differentiable:
        """The function that differences are taken of: the function itself, if nothing stands in for it."""
        return of_primal(self.function, Primal.surrogate)

    @cached_property
    def base(self) -> Tensor:
        """The values that differences are taken of, at the leaves."""
        return self.value if self.surrogate is self.function else vector(self.at(self.leaves))

    def numerical(self, step: float, *, looped: bool = False) -> Differences:
        """Return the differences along the directions."""
        looped = looped or self._one_by_one
        if (step, looped) not in self._numerical:
            of = self.looped_differences if looped else self.batched_differences
            self._numerical[step, looped] = of(self.directions.moved, step) or self.numerical(step, looped=True)
            self._graph = None
        return self._numerical[step, looped]

    def batched_differences(self, along: Tensor, step: float) -> Differences | None:
        """Return the differences for directions of shape (K, N) from a batch; None if there is none to rely on."""
        if not all(self.size):  # an empty Jacobian needs no batch
            return None
        points = stencil(self.coordinates, along, step)

        @torch.no_grad()
        def in_a_batch() -> Differences:
            values = batched(self.surrogate.rows, points, self.leaves, self.coverage.chunk(self.size))
            return differences(values, step)

        slopes = tried(in_a_batch, in_any_memory=True)
        if isinstance(slopes, Exception):
            return None
        return slopes if same(slopes.base, self.base, 1e-6, 1e-6) else None

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the differences for directions of shape (K, N), by one call for each point."""
        count, needs_base = len(along), not self._is_first_look
        points = stencil_points(self.coordinates, along, step, with_base=needs_base)
        values = looped(self.surrogate, self.leaves, points)
        return Differences(values[:count], values[-1] if needs_base else self.base, values[count : 2 * count], step)

    def analytical(self, mode: Mode, *, looped: bool = False) -> Analytical:
        """Return the products of the directions by one of the modes. Passes on the exceptions of the derivative."""
        looped = looped or self._one_by_one
        known = self._analytical.get((mode, looped))
        if known is not None:
            return known
        directions = self.directions
        along = directions.of(mode)
        if directions.sums and len(along) == 1:  # it is an ordinary call itself
            ordinary = self.product(mode, along[0])
            known = Analytical(ordinary.expand(1, -1), ordinary, ordinary)
        else:
            mix = directions.mix(len(along))
            ordinary = self.product(mode, None if self.extent == "full" else mix @ along)
            if not looped and all(self.size) and len(along) > FEW:
                rows = tried(lambda: self.vmapped(mode, along), in_any_memory=True)
                if isinstance(rows, Tensor):
                    known = Analytical(rows, mix @ rows, ordinary, batched=True)
            if known is None or not known.holds(self.rounding):
                rows = self.products(mode, along)
                known = Analytical(rows, mix @ rows, ordinary)
        if mode == "forward":
            known = replace(known, jacobian=known.jacobian.T)
        self._analytical[mode, looped], self._graph = known, None
        return known

    @property
    def _one_by_one(self) -> bool:
        """Whether there is no batch, or ordinary calls, one by one, take less time than one."""
        return not self.can_batch or sum(self.size) > LARGE

    def product(self, mode: Mode, direction: Tensor | None = None) -> Tensor:
        """Return J^T v for a cotangent v of shape (M,), or J u for a tangent u of shape (N,), by an ordinary call.

        direction: v, or u. Default: the `probe`, whose product is computed once.
        """
        if direction is None and mode in self._ordinary:
            return self._ordinary[mode]
        along = probe(self.size[0 if mode == "reverse" else 1]) if direction is None else direction
        if mode == "reverse":
            outputs = self.graph()
            product = self.pulled(outputs, tensors_of(along, outputs))
        else:
            self._graph = None
            product = self.pushed(tensors_of(along, self.leaves))
        if direction is None:
            self._ordinary[mode] = product
        return product

    def pushed(self, tangents: Tensors) -> Tensor:
        """Return J u of shape (M,), by an ordinary call in forward mode."""
        points = tuple(leaf.detach() for leaf in self.leaves)
        return vector(pushforward(self.function)(*points, *tangents))

    def pulled(self, outputs: Tensors, cotangents: Tensors) -> Tensor:
        """Return J^T v of shape (N,), by an ordinary backward pass for outputs that have a graph."""
        return vector(autodiff.vjp(outputs, self.leaves, cotangents))

    def products(self, mode: Mode, directions: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M), or U J^T for tangents U of shape (K, N), by ordinary calls.

        All backward passes are on one graph.
        """
        if mode == "reverse":
            outputs = self.graph()
            cotangents = zip(*(own.unbind() for own in tensors_of(directions, outputs)), strict=True)
            rows = [self.pulled(outputs, own) for own in cotangents]
        else:
            rows = [self.product(mode, tangent) for tangent in directions]
        return torch.stack(rows) if rows else directions.new_zeros(0, self.size[1 if mode == "reverse" else 0])

    def vmapped(self, mode: Mode, directions: Tensor) -> Tensor:
        """Return the same by `torch.func.vmap` of a backward pass, or of forward mode.

        There is one point, which may decide control flow. Passes on the exceptions of batching.
        """
        like: Tensors
        if mode == "reverse":
            like = outputs = self.graph()
            vmapped = torch.func.vmap(lambda *v: autodiff.vjp(outputs, self.leaves, v), randomness="same")
        else:
            like = points = tuple(leaf.detach() for leaf in self.leaves)
            push = autodiff.Pushforward(autodiff.transformed(self.function), transform=True)
            vmapped = torch.func.vmap(lambda *t: push(*points, *t), randomness="same")
        return batched(vmapped, directions, like, self.coverage.chunk(self.size))

    def by_jacobian(self, mode: Mode, directions: Tensor) -> Tensor:
        """Return the same, or the product of a single vector: from the Jacobian if it is whole, else one by one."""
        if self.projections is None and self.extent == "full":  # the first needs no search for axes
            jacobian = self.analytical(mode).jacobian
            return directions @ (jacobian if mode == "reverse" else jacobian.T)
        return self.product(mode, directions) if directions.dim() == 1 else self.products(mode, directions)
