"""The derivative of a function at a point, in three ways. Each is computed once, on first use.

A real Jacobian of shape (M, N) in the coordinates of `coordinates.py` holds everything, whatever the dtypes. It is
computed numerically, by reverse mode and by forward mode: for all directions at once, or one by one if the function
cannot be batched or the result of the batch is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import copy
from functools import cached_property
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from opcheck.derivatives import autodiff
from opcheck.derivatives.autodiff import Differentiable, Mode, Tensors, has_forward, pushforward
from opcheck.derivatives.batching import FEW, Analytical, Batched, Sweep, by_vmap, sweep
from opcheck.derivatives.coordinates import same, tensors_of, vector
from opcheck.derivatives.cotangents import probe, steps
from opcheck.derivatives.differences import Differences, differences, looped, stencil_points
from opcheck.derivatives.directions import Colors, Directions, Random
from opcheck.derivatives.independence import independent_axes
from opcheck.derivatives.question import AUTO, Coverage, Extent

LARGE = 4096
"""From how many coordinates of inputs and outputs on ordinary calls, one by one, take less time than a batch."""
MODES: tuple[Mode, ...] = ("reverse", "forward")
T = TypeVar("T")


class Evidence:
    """The derivative of `function` at `leaves`, which require grad and are strided.

    `modes` are those that the function is claimed to support. One batch covers all of them. `outputs`: those at the
    leaves, if they are known already.
    """

    has_slices = True
    """Whether the function may turn out to be independent along dims of the leaves."""

    def __init__(
        self, function: Differentiable, leaves: Tensors, *, coverage: Coverage = AUTO, outputs: Tensors | None = None,
        modes: Collection[Mode] = MODES,
    ) -> None:  # fmt: skip
        self.function, self.leaves, self.coverage, self.modes = function, leaves, coverage, modes
        self._outputs = outputs
        self._numerical: dict[tuple[float, bool], Differences] = {}
        self._analytical: dict[tuple[Mode, bool], Analytical] = {}
        self._swept: Sweep | Literal[False] | None = None  # False: a batch for all modes fails

    def on_graph(self, use: Callable[[Tensors], T]) -> T:
        """Return `use(outputs)`, where the outputs have a graph that nobody else has.

        A backward pass may spoil what the next one needs. That must not decide what another comparison sees.
        """
        return use(self._called())

    def _called(self) -> Tensors:
        """Return the outputs at the leaves. A function may exchange their memory without a trace: they keep it."""
        own = [(leaf, leaf.data) for leaf in self.leaves if leaf.layout is torch.strided]
        outputs = self.function(*self.leaves)
        for leaf, memory in own:
            if leaf.data_ptr() != memory.data_ptr():
                leaf.data = memory
        return outputs

    @property
    def outputs(self) -> Tensors:
        """The outputs at the leaves, for their shapes and dtypes. What needs a graph makes one: see `on_graph`."""
        if self._outputs is None:
            self._outputs = self._called()
        return self._outputs

    @cached_property
    def value(self) -> Tensor:
        """The outputs at the leaves, of shape (M,)."""
        return vector(self.outputs)

    @cached_property
    def size(self) -> tuple[int, int]:
        """The shape (M, N) of the Jacobian."""
        return self.value.numel(), self.point.numel()

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
    def point(self) -> Tensor:
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

    def along(self, directions: Directions) -> Evidence:
        """Return the same evidence in other directions."""
        other = copy(self)
        other.turn_to(directions)
        return other

    def turn_to(self, directions: Directions) -> None:
        """Give up the directions for others."""
        self.directions, self._numerical, self._analytical, self._swept = directions, {}, {}, None

    def at(self, leaves: Tensors) -> Tensors:
        """Return the outputs at other leaves, without a graph."""
        with torch.no_grad():
            return self.function(*leaves)

    def numerical(self, step: float, *, looped: bool = False) -> Differences:
        """Return the differences along the directions."""
        looped = looped or self._large
        if (step, looped) not in self._numerical:
            of = self.looped_differences if looped else self.batched_differences
            self._numerical[step, looped] = of(self.directions.moved, step) or self.numerical(step, looped=True)
        return self._numerical[step, looped]

    def batched_differences(self, along: Tensor, step: float) -> Differences | None:
        """Return the differences for directions of shape (K, N) from a batch; None if there is none to rely on."""
        if not all(self.size):  # an empty Jacobian needs no batch
            return None
        points = self.point + steps(along, step)
        try:
            slopes = differences(sweep(self.function, self.leaves, points, batch=self.chunk).values, step)
        except Exception:  # it cannot be batched
            return None
        return slopes if same(slopes.base, self.value, 1e-6, 1e-6) else None

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the differences for directions of shape (K, N), by one call for each point."""
        points = stencil_points(self.point, along, step)
        return differences(looped(self.function, self.leaves, points, 2 * len(along) + 1), step)

    def analytical(self, mode: Mode, *, looped: bool = False) -> Analytical:
        """Return the products of the directions by one of the modes. Passes on the exceptions of the derivative."""
        looped = looped or self._large
        if (mode, looped) not in self._analytical:
            self._analytical[mode, looped] = self._differentiated(mode, looped)
        return self._analytical[mode, looped]

    def _differentiated(self, mode: Mode, looped: bool) -> Analytical:
        mix = self.directions.mix(mode)
        if len(mix) == 1 and self.directions.sums:  # nothing to add up
            rows = self._looped(mode)
            return Analytical(rows if mode == "reverse" else rows.T, rows[0], rows[0])
        ordinary = self._mixed(mode, mix)
        refusal: Exception | None = None
        for batched, rows_of_mode in () if looped or not all(self.size) else self._batches_for(mode):
            try:
                rows = rows_of_mode(mode)
            except Exception as error:
                refusal = error.with_traceback(None)  # whose frames would hold the evidence
                continue
            derivative = Analytical(rows if mode == "reverse" else rows.T, mix @ rows, ordinary, batched)
            if derivative.holds(1e4 * self.unit):
                return derivative
        rows = self._looped(mode)
        return Analytical(rows if mode == "reverse" else rows.T, mix @ rows, ordinary, refusal=refusal)

    def _looped(self, mode: Mode) -> Tensor:
        """Return the vjps or jvps of all directions, by an ordinary call for each."""
        return (self.vjp_looped if mode == "reverse" else self.jvp_looped)(self.directions.of(mode))

    def _mixed(self, mode: Mode, mix: Tensor) -> Tensor:
        """Return the product of a sum of the directions, by an ordinary call."""
        if self.extent == "full":
            return self.ordinary_reverse if mode == "reverse" else self.ordinary_forward
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

    def _size_of(self, mode: Mode) -> int:
        """Return the number of coordinates of a direction in a mode."""
        return self.size[0 if mode == "reverse" else 1]

    def _batched(self, mode: Mode) -> Tensor:
        """Return the vjps or jvps of all directions, from a batch of points. Passes on the exceptions of batching.

        All modes share a batch, unless it fails, or has dual numbers already, which do not nest.
        """
        shared = mode in self.modes and len(self.modes) > 1 and not has_forward(self.function)
        if shared and self._swept is None:
            try:
                self._swept = self._sweep(self.modes)
            except Exception:
                self._swept = False
        swept = (shared and self._swept) or self._sweep((mode,))
        rows = swept.gradients if mode == "reverse" else swept.tangents
        assert rows is not None
        return rows[: self.directions.count(mode)]

    def _vmapped(self, mode: Mode) -> Tensor:
        """Return vjps or jvps of all directions at one point, which may decide control flow. Raises as vmap does."""
        return (self.vjp_vmapped if mode == "reverse" else self.jvp_vmapped)(self.directions.of(mode))

    def _sweep(self, modes: Collection[Mode]) -> Sweep:
        """Evaluate at the point, with a tangent and a cotangent in each row. Passes on the exceptions of batching."""
        rows = max(map(self.directions.count, modes))
        tangents, cotangents = (  # zeros for what is not needed
            functional.pad(own, (0, 0, 0, rows - len(own))) if mode in modes else None
            for mode, own in ((mode, self.directions.of(mode)) for mode in ("forward", "reverse"))
        )
        return sweep(
            self.function, self.leaves, self.point.repeat(rows, 1), batch=self.chunk, tangents=tangents,
            cotangents=cotangents, outputs=self.outputs,
        )  # fmt: skip

    @cached_property
    def ordinary_reverse(self) -> Tensor:
        """The gradient that an ordinary backward pass gives for the cotangent `probe`, of shape (N,)."""
        return self.vjp(probe(self.size[0]))

    @cached_property
    def ordinary_forward(self) -> Tensor:
        """The tangent of the outputs that an ordinary call in forward mode gives for the tangent `probe`: (M,)."""
        return self.jvp(probe(self.size[1]))

    def vjp(self, cotangent: Tensor) -> Tensor:
        """Return J^T v for a cotangent v of shape (M,), by an ordinary backward pass."""
        return self.on_graph(lambda outputs: self.pulled(outputs, tensors_of(cotangent, outputs)))

    def pulled(self, outputs: Tensors, cotangents: Tensors) -> Tensor:
        """Return J^T v of shape (N,), by an ordinary backward pass for outputs that have a graph."""
        return vector(autodiff.vjp(outputs, self.leaves, cotangents))

    def jvp(self, tangent: Tensor) -> Tensor:
        """Return J u for a tangent u of shape (N,), by an ordinary call in forward mode."""
        points = tuple(leaf.detach() for leaf in self.leaves)
        return vector(pushforward(self.function)(*points, *tensors_of(tangent, self.leaves)))

    def vjp_looped(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M), by an ordinary backward pass for each, all on one graph."""

        def pulled(outputs: Tensors) -> Tensor:
            rows = zip(*(own.unbind() for own in tensors_of(cotangents, outputs)), strict=True)
            return _stacked([self.pulled(outputs, row) for row in rows], self.size[1])

        return self.on_graph(pulled)

    def jvp_looped(self, tangents: Tensor) -> Tensor:
        """Return U J^T for tangents U of shape (K, N), by an ordinary call in forward mode for each."""
        return _stacked([self.jvp(row) for row in tangents], self.size[0])

    def vjp_vmapped(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M), by `torch.func.vmap` of an ordinary backward pass.

        Passes on the exceptions of batching.
        """

        def pulled(outputs: Tensors) -> Tensor:
            return by_vmap(lambda *v: autodiff.vjp(outputs, self.leaves, v), cotangents, outputs, self.chunk)

        return self.on_graph(pulled)

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
