"""`Point`: a function at its leaves, and its Jacobian there by differences, by reverse mode and by forward mode.

The Jacobian is a real matrix of shape (M, N) in the coordinates of `coordinates.py`, whatever the dtypes. In each of
the three ways it is computed once, on first use: in a batch of all directions, or with one call per direction if the
function cannot be batched or the result of the batch is in doubt. The derivative of a function is again a function at a
point (see `Point.derived`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from opcheck.derivatives import autodiff
from opcheck.derivatives.autodiff import (
    Differentiable,
    Function,
    Mode,
    Primal,
    Pullback,
    Tensors,
    pushforward,
    with_surrogate,
)
from opcheck.derivatives.coordinates import are_strided, largest_difference, same, tensors_of, vector
from opcheck.derivatives.cotangents import probe, vectors_like
from opcheck.derivatives.differences import Differences, batched, differences, looped, stencil
from opcheck.derivatives.directions import Colors, Directions, Random
from opcheck.derivatives.disagreement import Names
from opcheck.derivatives.extent import AUTO, Coverage, Extent
from opcheck.derivatives.independence import independent_axes
from opcheck.derivatives.refusals import tried
from opcheck.derivatives.rounding import rounding_unit
from opcheck.derivatives.sparse import OfElements
from opcheck.derivatives.uncertainty import ROUNDED
from opcheck.strides import with_gaps

LARGE = 4096
"""The number of coordinates of inputs and outputs above which ordinary calls in a loop are faster than a batch."""
FEW = 2
"""The number of directions up to which ordinary calls in a loop are faster than a batch."""
Step = Literal["rev", "rev with gaps", "fwd", "sum"]
"""A step from a function to its derivative. rev: its pullback; rev with gaps: its pullback, for cotangents with gaps in
memory; fwd: its pushforward; sum: the sum of its gradients for cotangents of ones."""


@dataclass(frozen=True)
class Analytical:
    """The products of a Jacobian with the directions, by automatic differentiation."""

    jacobian: Tensor
    """For unit vectors the Jacobian, of shape (M, N), float64. For others V J of shape (K, N) by reverse mode, and J
    U^T, of shape (M, K), by forward mode."""
    predicted: Tensor
    """A linear combination of the products: if the derivative is linear, its value along that combination of
    directions."""
    ordinary: Tensor
    """The derivative along the combined direction, by one ordinary call."""
    batched: bool = False
    """Whether the products come from one batch."""

    def holds(self, rounding: float) -> bool:
        """Return whether `ordinary` agrees with `predicted`, up to a relative rounding error."""
        if largest_difference(self.predicted, self.ordinary) <= rounding:  # fast path; NaN is compared below
            return True
        scale = float(torch.linalg.vector_norm(self.jacobian, float("inf"))) if self.jacobian.numel() else 1.0
        allowed = rounding * (scale * max(self.jacobian.shape) if isfinite(scale) else 1.0)
        return torch.allclose(self.predicted, self.ordinary, rounding, allowed, equal_nan=True)


class Point:
    """A function at `leaves`, which require grad. Jacobians need strided leaves: see `derived`.

    outputs: the outputs at the leaves, if they are known from the latest call of the function.
    cotangents: the cotangents of its pullback. Default: random ones.
    """

    can_batch = True
    """Whether many points, or many directions, may be computed in one batch."""
    has_slices = True
    """Whether to search for axes along which the function is independent."""
    masked = False
    """Whether unspecified elements of sparse leaves are left out of the derivative."""
    _is_first_look = False
    """Whether a disagreement will be confirmed by further calls, so that f(x) is reused from an earlier call."""

    def __init__(
        self, function: Differentiable, leaves: Tensors, *, coverage: Coverage = AUTO, outputs: Tensors | None = None,
        cotangents: Tensors | None = None,
    ) -> None:  # fmt: skip
        self.function, self.leaves, self.coverage = function, leaves, coverage
        self._outputs, self._graph, self.cotangents = outputs, outputs, cotangents
        self.made: dict[tuple[Step, ...], Point] = {}
        """The points of derivatives, by the steps to them; with no step, that of the elements of sparse leaves."""
        self._numerical: dict[float, Differences] = {}
        self._analytical: dict[Mode, Analytical] = {}
        self._ordinary: dict[Mode, Tensor] = {}
        self._looped: Point | None = None

    @classmethod
    def of(
        cls, function: Function, leaves: Tensors, *, coverage: Coverage = AUTO, cotangents: Tensors | None = None,
        output_names: tuple[str, ...] = (), leaf_names: tuple[str, ...] = (), masked: bool = False,
    ) -> Point:  # fmt: skip
        """Return a function, restricted to the outputs that require grad, at leaves. Passes on its exceptions.

        The other parameters are the attributes of the point and of its `Primal`.
        """
        outputs = function(*leaves)
        chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
        if not chosen:
            # No output has a graph: choose all that could have a derivative, which must then be zero.
            chosen = tuple(i for i, y in enumerate(outputs) if y.is_floating_point() or y.is_complex())
        primal = Primal(function, chosen, output_names, leaf_names)
        own = tuple(outputs[index] for index in chosen)
        point = cls(primal, leaves, coverage=coverage, outputs=own, cotangents=cotangents)
        point.masked, point._graph = masked, None
        return point

    @property
    def names(self) -> Names:
        """The labels of the function, its outputs and its leaves."""
        return Names.of(self.function, self.leaves)

    def derived(self, *steps: Step) -> Point:
        """Return the point of the derivative that some steps lead to, with strided leaves.

        A sparse tensor cannot be moved or carry a tangent, but its elements can: without steps, that is the point of
        the same function of the elements, or this point if all leaves are strided.
        """
        if not steps and are_strided(self.leaves):
            return self
        if steps not in self.made:
            self.made[steps] = self.derived(*steps[:-1])._stepped(steps[-1]) if steps else self._of_elements()
        return self.made[steps]

    def _of_elements(self) -> Point:
        primal = self.function
        assert isinstance(primal, Primal)
        function = OfElements(primal.function, self.leaves, self.masked)
        return OfSparse.of(
            function, function.elements, coverage=self.coverage, cotangents=self.cotangents,
            output_names=primal.output_names, leaf_names=primal.leaf_names,
        )  # fmt: skip

    def _stepped(self, step: Step) -> Point:
        count = len(self.leaves)
        if step == "sum":
            total = autodiff.gradient_sum(self.function, self.outputs, count)
            return type(self)(total, self.leaves, coverage=self.coverage)
        function: Differentiable
        if step == "fwd":
            function, vectors = pushforward(self.function), vectors_like(self.leaves, 1)
        else:
            # A pullback has an output for each leaf of its function, so that no call is needed.
            inner = self.function
            like = self.leaves[: inner.count] if isinstance(inner, Pullback) else self.outputs
            function = Pullback(self.function, count)
            vectors = vectors_like(like, 1) if self.cotangents is None else self.cotangents
            vectors = tuple(map(with_gaps, vectors)) if step == "rev with gaps" else vectors
        linear = tuple(v.detach().requires_grad_() for v in vectors)
        return type(self)(function, (*self.leaves, *linear), coverage=self.coverage)

    def graph(self) -> Tensors:
        """Return the outputs, with a graph that is used only once.

        A backward pass, or any other call, may modify saved tensors, which must not affect other comparisons. So the
        function is called again, unless nothing has run since the call that returned the outputs.
        """
        graph, self._graph = self._graph, None
        if graph is None:
            # The function may replace the memory of its leaves unnoticed: restore it.
            own = [(leaf, leaf.data) for leaf in self.leaves if leaf.layout is torch.strided]
            graph = self.function(*self.leaves)
            for leaf, memory in own:
                if leaf.data_ptr() != memory.data_ptr():
                    leaf.data = memory
        if self._outputs is None:
            self._outputs = graph
        _ = self.value  # copied before another call writes to the outputs
        return graph

    @property
    def outputs(self) -> Tensors:
        """The outputs at the leaves, for their shapes and dtypes. Call `graph` to differentiate them."""
        if self._outputs is None:
            self._outputs = self._graph = self.graph()  # not used yet
        return self._outputs

    @cached_property
    def value(self) -> Tensor:
        """The coordinates of the outputs at the leaves, of shape (M,)."""
        return vector(self.outputs)

    @cached_property
    def size(self) -> tuple[int, int]:
        """The shape (M, N) of the Jacobian."""
        return self.value.numel(), self.coordinates.numel()

    @cached_property
    def directions(self) -> Directions:
        """The directions along which the Jacobian is compared.

        Raises TooLarge if a whole Jacobian is requested that does not fit into memory.
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
        """The number of random directions on each side; None if the whole Jacobian is computed."""
        return self.coverage.number_of_directions(self.size)

    @cached_property
    def coordinates(self) -> Tensor:
        """The coordinates of the leaves, of shape (N,)."""
        return vector(self.leaves)

    @cached_property
    def coarsest(self) -> torch.dtype:
        """The coarsest dtype of a leaf or output."""
        return max((tensor.dtype for tensor in (*self.leaves, *self.outputs)), key=rounding_unit)

    @cached_property
    def unit(self) -> float:
        """The unit of rounding of the function's arithmetic: the machine epsilon of `coarsest`; 0 for integers."""
        return 2 * rounding_unit(self.coarsest)

    @property
    def rounding(self) -> float:
        """The largest difference, relative to its size, between the same derivative computed in two ways."""
        return ROUNDED * self.unit

    @property
    def compared(self) -> Extent | None:
        """How much of the Jacobian has been compared; None if nothing, or only one direction, has."""
        return self.directions.extent if "directions" in self.__dict__ else None

    @cached_property
    def along_one(self) -> Point:
        """The same point with one random direction on each side, which takes a few ordinary calls."""
        other = self._in_a_loop(Random(self.size, 1))
        other._is_first_look = True
        return other

    def moved_to(self, coordinates: Tensor) -> Point:
        """Return the point of the same function at other leaves, given by their coordinates of shape (N,)."""
        leaves = tuple(leaf.requires_grad_() for leaf in tensors_of(coordinates, self.leaves))
        return type(self)(self.function, leaves, coverage=self.coverage)

    def turn_to(self, directions: Directions) -> None:
        """Replace the directions, and discard the results along the previous ones."""
        self.directions, self._numerical, self._analytical, self._looped = directions, {}, {}, None

    def at(self, leaves: Tensors) -> Tensors:
        """Return the values of `surrogate` at other leaves, without a graph."""
        self._graph = None
        with torch.no_grad():
            return self.surrogate(*leaves)

    @cached_property
    def surrogate(self) -> Differentiable:
        """The function of which differences are taken: the function itself, or the same derivative of its surrogate."""
        return with_surrogate(self.function)

    @cached_property
    def base(self) -> Tensor:
        """The values of `surrogate` at the leaves, of shape (M,)."""
        return self.value if self.surrogate is self.function else vector(self.at(self.leaves))

    def without_batches(self) -> Point:
        """Return the same point without results of batches, to confirm them by ordinary calls.

        That is this point if it has none. Otherwise, this point keeps them, so that other claims do not depend on
        which claim needed to be confirmed.
        """
        results: list[Differences | Analytical] = [*self._numerical.values(), *self._analytical.values()]
        if not any(one.batched for one in results):
            return self
        if self._looped is None:
            self._looped = self._in_a_loop(self.directions)
        return self._looped

    def _in_a_loop(self, directions: Directions) -> Point:
        """Return the same point with other directions, and with ordinary calls instead of batches."""
        other = copy(self)
        other.turn_to(directions)
        other.can_batch = False
        self._graph = None  # `other` has it, and a graph is used only once
        return other

    @property
    def _in_batches(self) -> bool:
        """Whether to try batches. Large ones are slower than loops."""
        return self.can_batch and all(self.size) and sum(self.size) <= LARGE

    def numerical(self, step: float) -> Differences:
        """Return the differences along the directions, from a batch if it can be relied on."""
        if step in self._numerical:
            return self._numerical[step]
        slopes, along = None, self.directions.moved
        if self._in_batches:
            points = stencil(self.coordinates, along, step)
            call = partial(batched, self.surrogate.rows, points, self.leaves, self.coverage.chunk(self.size))
            with torch.no_grad():
                values = tried(call, catch_out_of_memory=True)
            if isinstance(values, Tensor) and same(values[-1], self.base, 1e-6, 1e-6):
                slopes = differences(values, step, batched=True)
        slopes = self.looped_differences(along, step) if slopes is None else slopes
        self._numerical[step], self._graph = slopes, None
        return slopes

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the differences along directions of shape (K, N), with one call per point."""
        points, base = stencil(self.coordinates, along, step), None
        if self._is_first_look:
            points, base = points[:-1], self.base
        return differences(looped(self.surrogate, self.leaves, points, self.size[0]), step, base)

    def analytical(self, mode: Mode) -> Analytical:
        """Return the products with the directions by a mode, from a batch if it agrees with an ordinary call.

        Passes on the exceptions of the derivative.
        """
        known = self._analytical.get(mode)
        if known is not None:
            return known
        directions = self.directions
        along = directions.of(mode)
        if directions.extent == "projected" and len(along) == 1:  # the product is an ordinary call itself
            ordinary = self.product(mode, along[0])
            known = Analytical(ordinary.expand(1, -1), ordinary, ordinary)
        else:
            mix = directions.mix(len(along))
            ordinary = self.product(mode, None if directions.extent == "full" else mix @ along)
            if self._in_batches and len(along) > FEW:
                if mode == "reverse":
                    self._graph = self.graph()  # outside `tried`: its exceptions are not refusals to batch
                rows = tried(lambda: self.vmapped(mode, along), catch_out_of_memory=True)
                if isinstance(rows, Tensor):
                    known = Analytical(rows, mix @ rows, ordinary, batched=True)
            if known is None or not known.holds(self.rounding):
                rows = self.products(mode, along)
                known = Analytical(rows, mix @ rows, ordinary)
        if mode == "forward":
            known = replace(known, jacobian=known.jacobian.T)
        self._analytical[mode], self._graph = known, None
        return known

    def product(self, mode: Mode, direction: Tensor | None = None) -> Tensor:
        """Return J^T v for a cotangent v of shape (M,), or J u for a tangent u of shape (N,), by an ordinary call.

        direction: v, or u. Default: that of `probe_of`, whose product is cached.
        """
        if direction is None and mode in self._ordinary:
            return self._ordinary[mode]
        along = self.probe_of(mode) if direction is None else direction
        if mode == "reverse":
            outputs = self.graph()
            product = self.pulled(outputs, self.cotangents_of(along, outputs))
        else:
            self._graph = None
            product = self.pushed(tensors_of(along, self.leaves))
        if direction is None:
            self._ordinary[mode] = product
        return product

    def probe_of(self, mode: Mode) -> Tensor:
        """Return a fixed random cotangent for reverse mode, or tangent for forward mode, in real coordinates."""
        return probe(self.size[0 if mode == "reverse" else 1])

    def pushed(self, tangents: Tensors) -> Tensor:
        """Return J u of shape (M,), by an ordinary call in forward mode."""
        points = tuple(leaf.detach() for leaf in self.leaves)
        return vector(pushforward(self.function)(*points, *tangents))

    def cotangents_of(self, direction: Tensor, outputs: Tensors) -> Tensors:
        """Return the cotangents with some coordinates, in the memory format of the outputs."""
        return tensors_of(direction, outputs)

    def pulled(self, outputs: Tensors, cotangents: Tensors) -> Tensor:
        """Return J^T v of shape (N,), by an ordinary backward pass for outputs that have a graph."""
        return vector(autodiff.vjp(outputs, self.leaves, cotangents))

    def products(self, mode: Mode, directions: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M), or U J^T for tangents U of shape (K, N), by ordinary calls.

        All backward passes use one graph. An empty Jacobian needs no call.
        """
        if not all(self.size):
            return directions.new_zeros(len(directions), self.size[1 if mode == "reverse" else 0])
        if mode == "forward":
            return torch.stack([self.product(mode, tangent) for tangent in directions])
        outputs = self.graph()
        cotangents = zip(*(own.unbind() for own in self.cotangents_of(directions, outputs)), strict=True)
        return torch.stack([self.pulled(outputs, own) for own in cotangents])

    def vmapped(self, mode: Mode, directions: Tensor) -> Tensor:
        """Return V J or U J^T by `torch.func.vmap` of a backward pass, or of forward mode.

        Only the directions are batched, so data-dependent control flow works. Passes on the exceptions of batching.
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
        """Return V J, U J^T or the product of one vector: from the Jacobian if it is whole, else by ordinary calls."""
        if self.projections is None and self.directions.extent == "full":  # first, since it needs no search for axes
            jacobian = self.analytical(mode).jacobian
            return directions @ (jacobian if mode == "reverse" else jacobian.T)
        return self.product(mode, directions) if directions.dim() == 1 else self.products(mode, directions)


class OfSparse(Point):
    """A function of the elements of sparse leaves, or a derivative of it, at a point."""

    can_batch = False  # torch's vmap loops over nearly all operators on sparse tensors
    has_slices = False  # the elements of a sparse tensor are not slices of memory

    def vmapped(self, mode: Mode, directions: Tensor) -> Tensor:
        """Return the products with directions from a batch. Passes on exceptions of forward mode and of batching."""
        if mode == "forward":
            self.product("forward")  # torch has no sparse dual tensors: an ordinary call raises its error
        return super().vmapped(mode, directions)
