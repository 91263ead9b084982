"""A function at its leaves, and its derivative there in three ways. Each is computed once, on first use.

A real Jacobian of shape (M, N) in the coordinates of `coordinates.py` holds everything, whatever the dtypes. It is
computed numerically, by reverse mode and by forward mode: for all directions at once, or one by one if the function
cannot be batched or the result of the batch is in doubt. The derivative of a function is again a function at a point.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import copy
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from opcheck.derivatives import autodiff
from opcheck.derivatives.autodiff import Differentiable, Mode, Primal, Pullback, Tensors, has_forward, pushforward
from opcheck.derivatives.batching import FEW, Analytical, Batched, Sweep, by_vmap, sweep
from opcheck.derivatives.coordinates import same, tensors_of, vector
from opcheck.derivatives.cotangents import probe, steps, vectors_like, with_gaps
from opcheck.derivatives.differences import Differences, differences, looped, stencil_points
from opcheck.derivatives.directions import Colors, Directions, Random
from opcheck.derivatives.independence import independent_axes
from opcheck.derivatives.question import AUTO, Coverage, Extent, Request

LARGE = 4096
"""From how many coordinates of inputs and outputs on ordinary calls, one by one, take less time than a batch."""
MODES: tuple[Mode, ...] = ("reverse", "forward")
REVERSE: tuple[Mode, ...] = ("reverse",)
Step = Literal["rev", "rev with gaps", "fwd", "sum"]
"""From a function to the next: its pullback, for cotangents that may have gaps in memory, its pushforward, or the sum
of its gradients for cotangents of ones."""


class Point:
    """A function at `leaves`, which require grad and are strided.

    modes: those that the function is claimed to support. One batch covers all of them.
    outputs: those at the leaves, if they are known already, by a call that nothing has come after.
    cotangents: those that its pullback is taken for. Default: random ones.
    """

    has_slices = True
    """Whether the function may turn out to be independent along dims of the leaves."""
    request: Request | None = None
    """The question that it was made for; None for a derivative."""
    elements: Point | None = None
    """The point of the elements of sparse leaves, once it is made."""
    _is_first_look = False
    """Whether what it objects to is looked at again, so that differences need no call of their own for its values."""

    def __init__(
        self, function: Differentiable, leaves: Tensors, *, coverage: Coverage = AUTO, outputs: Tensors | None = None,
        modes: Collection[Mode] = MODES, cotangents: Tensors | None = None,
    ) -> None:  # fmt: skip
        self.function, self.leaves, self.coverage, self.modes = function, leaves, coverage, modes
        self._outputs, self._graph, self._cotangents = outputs, outputs, cotangents
        self._derived: dict[Step, Point] = {}
        self._numerical: dict[tuple[float, bool], Differences] = {}
        self._analytical: dict[tuple[Mode, bool], Analytical] = {}
        self._ordinary: dict[Mode, Tensor] = {}
        self._swept: Sweep | Literal[False] | None = None  # False: a batch for all modes fails

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
            outputs=tuple(outputs[index] for index in chosen), modes=MODES if request.forward_ad else REVERSE,
            cotangents=request.grad_outputs,
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
            return type(self)(total, self.leaves, coverage=self.coverage, modes=REVERSE)
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
        return type(self)(function, (*self.leaves, *linear), coverage=self.coverage, modes=self.modes)

    def graph(self) -> Tensors:
        """Return the outputs, with a graph that nobody else has.

        A backward pass may spoil what the next one needs, and so may any other call. That must not decide what another
        comparison sees: it is the graph of the call that gave the values only if there was nothing since.
        """
        _ = self.value
        graph, self._graph = self._graph, None
        return self._called() if graph is None else graph

    def _called(self) -> Tensors:
        """Return the outputs at the leaves. A function may exchange their memory without a trace: they keep it."""
        self._graph = None
        own = [(leaf, leaf.data) for leaf in self.leaves if leaf.layout is torch.strided]
        outputs = self.function(*self.leaves)
        for leaf, memory in own:
            if leaf.data_ptr() != memory.data_ptr():
                leaf.data = memory
        return outputs

    @property
    def outputs(self) -> Tensors:
        """The outputs at the leaves, for their shapes and dtypes. What needs a graph takes one: see `graph`."""
        if self._outputs is None:
            self._outputs = self._called()
            self._graph = self._outputs
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
            colors = Colors(axes, self.size, self.outputs, self.leaves)
            if axes and self.coverage.allows_compressed(self.size, sum(colors.counts), colors.of_outputs):
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
        """The rounding unit of the function's arithmetic: that of the coarsest leaf."""
        return max((torch.finfo(leaf.dtype).eps for leaf in self.leaves), default=0.0)

    @property
    def chunk(self) -> int:
        """How many points to evaluate at once."""
        return self.coverage.chunk(self.size)

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

    def turn_to(self, directions: Directions) -> None:
        """Give up the directions for others."""
        self.directions, self._numerical, self._analytical, self._swept = directions, {}, {}, None

    def at(self, leaves: Tensors) -> Tensors:
        """Return the outputs at other leaves, without a graph."""
        self._graph = None
        with torch.no_grad():
            return self.function(*leaves)

    def numerical(self, step: float, *, looped: bool = False) -> Differences:
        """Return the differences along the directions."""
        looped = looped or self._large
        if (step, looped) not in self._numerical:
            of = self.looped_differences if looped else self.batched_differences
            self._numerical[step, looped] = of(self.directions.moved, step) or self.numerical(step, looped=True)
            self._graph = None
        return self._numerical[step, looped]

    def batched_differences(self, along: Tensor, step: float) -> Differences | None:
        """Return the differences for directions of shape (K, N) from a batch; None if there is none to rely on."""
        if not all(self.size):  # an empty Jacobian needs no batch
            return None
        points = self.coordinates + steps(along, step)
        try:
            slopes = differences(sweep(self.function, self.leaves, points, batch=self.chunk).values, step)
        except Exception:  # it cannot be batched
            return None
        return slopes if same(slopes.base, self.value, 1e-6, 1e-6) else None

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the differences for directions of shape (K, N), by one call for each point."""
        count, needs_base = len(along), not self._is_first_look
        points = stencil_points(self.coordinates, along, step, with_base=needs_base)
        values = looped(self.function, self.leaves, points, 2 * count + needs_base)
        return Differences(values[:count], values[-1] if needs_base else self.value, values[count : 2 * count], step)

    def analytical(self, mode: Mode, *, looped: bool = False) -> Analytical:
        """Return the products of the directions by one of the modes. Passes on the exceptions of the derivative."""
        looped = looped or self._large
        if (mode, looped) in self._analytical:
            return self._analytical[mode, looped]
        directions, refusal = self.directions, None
        mix, is_single = directions.mix(mode), directions.sums and directions.count(mode) == 1
        ordinary = None if is_single else self.ordinary(mode) if self.extent == "full" else self._mixed(mode, mix)
        derivative = None
        for batched, rows_of in () if looped or is_single or not all(self.size) else self._batches_for(mode):
            try:
                derivative = Analytical.of(rows_of(mode), mode, mix, ordinary, batched)
            except Exception as error:
                refusal = error.with_traceback(None)  # whose frames would hold the point
                continue
            if derivative.holds(1e4 * self.unit):
                break
            derivative = None
        if derivative is None:
            rows = (self.vjp_looped if mode == "reverse" else self.jvp_looped)(directions.of(mode))
            derivative = Analytical.of(rows, mode, mix, ordinary, refusal=refusal)
        self._analytical[mode, looped], self._graph = derivative, None
        return derivative

    def _mixed(self, mode: Mode, mix: Tensor) -> Tensor:
        """Return the product of a sum of the directions, by an ordinary call."""
        return (self.vjp if mode == "reverse" else self.jvp)(mix @ self.directions.of(mode))

    @property
    def _large(self) -> bool:
        """Whether ordinary calls, one by one, take less time than a batch."""
        return sum(self.size) > LARGE

    def _batches_for(self, mode: Mode) -> Iterator[tuple[Batched, Callable[[Mode], Tensor]]]:
        if self.directions.count(mode) > FEW:
            if self.extent != "structured" and (mode == "reverse" or not has_forward(self.function)):
                yield "points", self._batched  # dual numbers do not nest
            yield "directions", self._vmapped

    def _batched(self, mode: Mode) -> Tensor:
        """Return the vjps or jvps of all directions, from a batch of points. Passes on the exceptions of batching.

        Each row has a tangent and a cotangent. All modes share a batch, unless it fails, or has dual numbers already,
        which do not nest.
        """
        shared = self._swept is not False and mode in self.modes and not has_forward(self.function)
        modes = self.modes if shared else (mode,)
        swept = self._swept if shared else None
        if not swept:
            rows = max(map(self.directions.count, modes))
            tangents, cotangents = (  # zeros for what is not needed
                functional.pad(own, (0, 0, 0, rows - len(own))) if side in modes else None
                for side, own in ((side, self.directions.of(side)) for side in ("forward", "reverse"))
            )
            try:
                swept = sweep(
                    self.function, self.leaves, self.coordinates.repeat(rows, 1), batch=self.chunk, tangents=tangents,
                    cotangents=cotangents, outputs=self.outputs,
                )  # fmt: skip
            except Exception:
                if len(modes) == 1:
                    raise
                self._swept = False
                return self._batched(mode)
            self._swept = swept if shared else self._swept
        products = swept.gradients if mode == "reverse" else swept.tangents
        assert products is not None
        return products[: self.directions.count(mode)]

    def _vmapped(self, mode: Mode) -> Tensor:
        """Return vjps or jvps of all directions at one point, which may decide control flow. Raises as vmap does."""
        return (self.vjp_vmapped if mode == "reverse" else self.jvp_vmapped)(self.directions.of(mode))

    def ordinary(self, mode: Mode) -> Tensor:
        """Return the gradient of shape (N,), or the tangent of shape (M,), by an ordinary call for the `probe`."""
        if mode not in self._ordinary:
            size = self.size[0 if mode == "reverse" else 1]
            self._ordinary[mode] = (self.vjp if mode == "reverse" else self.jvp)(probe(size))
        return self._ordinary[mode]

    def vjp(self, cotangent: Tensor) -> Tensor:
        """Return J^T v for a cotangent v of shape (M,), by an ordinary backward pass."""
        outputs = self.graph()
        return self.pulled(outputs, tensors_of(cotangent, outputs))

    def pulled(self, outputs: Tensors, cotangents: Tensors) -> Tensor:
        """Return J^T v of shape (N,), by an ordinary backward pass for outputs that have a graph."""
        return vector(autodiff.vjp(outputs, self.leaves, cotangents))

    def jvp(self, tangent: Tensor) -> Tensor:
        """Return J u for a tangent u of shape (N,), by an ordinary call in forward mode."""
        self._graph = None
        points = tuple(leaf.detach() for leaf in self.leaves)
        return vector(pushforward(self.function)(*points, *tensors_of(tangent, self.leaves)))

    def vjp_looped(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M), by an ordinary backward pass for each, all on one graph."""
        outputs = self.graph()
        rows = zip(*(own.unbind() for own in tensors_of(cotangents, outputs)), strict=True)
        return _stacked([self.pulled(outputs, row) for row in rows], self.size[1])

    def jvp_looped(self, tangents: Tensor) -> Tensor:
        """Return U J^T for tangents U of shape (K, N), by an ordinary call in forward mode for each."""
        return _stacked([self.jvp(row) for row in tangents], self.size[0])

    def vjp_vmapped(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M), by `torch.func.vmap` of an ordinary backward pass.

        Passes on the exceptions of batching.
        """
        outputs = self.graph()
        return by_vmap(lambda *v: autodiff.vjp(outputs, self.leaves, v), cotangents, outputs, self.chunk)

    def jvp_vmapped(self, tangents: Tensor) -> Tensor:
        """Return U J^T for tangents U of shape (K, N), by `torch.func.vmap` of forward mode. Raises as vmap does."""
        points = tuple(leaf.detach() for leaf in self.leaves)
        push = autodiff.Pushforward(autodiff.transformed(self.function), transform=True)
        return by_vmap(lambda *t: push(*points, *t), tangents, points, self.chunk)

    def vjp_by_jacobian(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M) or (M,): from the Jacobian if it is whole, else one by one."""
        if self.projections is None:
            return cotangents @ self.analytical("reverse").jacobian
        return self.vjp(cotangents) if cotangents.dim() == 1 else self.vjp_looped(cotangents)

    def jvp_by_jacobian(self, tangents: Tensor) -> Tensor:
        """Return U J^T for tangents U of shape (K, N) or (N,): from the Jacobian if it is whole, else one by one."""
        if self.projections is None:
            return tangents @ self.analytical("forward").jacobian.T
        return self.jvp(tangents) if tangents.dim() == 1 else self.jvp_looped(tangents)


def _stacked(rows: list[Tensor], size: int) -> Tensor:
    return torch.stack(rows) if rows else torch.zeros(0, size, dtype=torch.float64)
