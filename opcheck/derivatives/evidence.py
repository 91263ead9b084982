"""What there is to know about the derivative of a function at a point: computed once, when it is asked for.

One real Jacobian of shape (M, N) in the coordinates of `coordinates.py` holds everything, whatever the dtypes. The
numerical one, the one by reverse and the one by forward mode are each computed for all directions at once, and one by
one where the function cannot be batched, or where what the batch says is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from opcheck.derivatives.amount import AUTO, Amount
from opcheck.derivatives.analytical import vjp
from opcheck.derivatives.comparison import most, same
from opcheck.derivatives.coordinates import tensors_of, vector
from opcheck.derivatives.differences import Differences, differences, looped
from opcheck.derivatives.directions import Side, asked, directions, probe, side_by_side, stencil
from opcheck.derivatives.functions import Differentiable, Pushforward, Tensors, has_forward, pushforward, transformed
from opcheck.derivatives.sweep import Sweep, by_vmap, sweep

Mode = Literal["reverse", "forward"]
SIDES: dict[Mode, Side] = {"reverse": "outputs", "forward": "inputs"}
"""Where the directions of a mode lie."""
MODES: tuple[Mode, ...] = ("reverse", "forward")
Batched = Literal["points", "directions", ""]
T = TypeVar("T")

FEW = 2
"""Up to how many directions ordinary calls take less time than a batch."""
COPIES = 16
"""How many tensors of the size of inputs and outputs an operator is assumed to need at a time."""


@dataclass(frozen=True)
class Analytical:
    """A Jacobian by automatic differentiation."""

    jacobian: Tensor
    """Of shape (M, N), float64; projected, V J of shape (K, N) by reverse and J U^T of shape (M, K) by forward mode."""
    said: Tensor
    """What it says about a random direction, a vector."""
    ordinary: Tensor
    """What one ordinary call gives in this direction."""
    batched: Batched = ""
    """What it is a batch of: many points, or many directions at one point; empty: it is from the loop."""
    refusal: Exception | None = None
    """Why it could not be batched."""

    @cached_property
    def off(self) -> float:
        """By how much the ordinary call differs at most from what the Jacobian says."""
        return most(self.said, self.ordinary)

    def holds(self, rounding: float) -> bool:
        """Tell whether the ordinary call agrees with the Jacobian up to some relative rounding."""
        if self.off <= rounding:  # as almost always; NaN is looked at below
            return True
        scale = float(torch.linalg.vector_norm(self.jacobian, float("inf"))) if self.jacobian.numel() else 1.0
        allowed = rounding * (scale * max(self.jacobian.shape) if isfinite(scale) else 1.0)
        return torch.allclose(self.said, self.ordinary, rounding, allowed, equal_nan=True)


@dataclass(frozen=True)
class Part:
    """A function that is part of another: some outputs of the other, as a function of some of its inputs.

    The batches of the other answer for it. Where they cannot, or where their answer does not hold, it has its own.
    """

    whole: Callable[[], Evidence | None]
    inputs: slice
    """Which coordinates."""
    outputs: slice

    def differences(self, step: float) -> Differences | None:
        """Return the differences by the other's batch."""
        whole = self.whole()
        found = whole.batched_differences(step) if whole else None
        if found is None:
            return None
        place = self.inputs, self.outputs
        return Differences(found.above[place], found.base[self.outputs], found.below[place], step)

    def rows(self, mode: Mode) -> Tensor | None:
        """Return the unit directions pulled back or pushed forward by the other's batch."""
        whole = self.whole()
        swept = whole.swept if whole else None
        if swept is None:
            return None
        if mode == "reverse":
            return None if swept.gradients is None else swept.gradients[self.outputs, self.inputs]
        return None if swept.tangents is None else swept.tangents[self.inputs, self.outputs]


class Evidence:
    """The derivative of `function` at `leaves`, which require grad and are strided.

    `modes` are those that will be asked for: one batch answers for all of them. `part` says whose batches may, too.
    """

    def __init__(
        self, function: Differentiable, leaves: Tensors, *, amount: Amount = AUTO, graph: Tensors | None = None,
        modes: Collection[Mode] = MODES,
    ) -> None:  # fmt: skip
        self.function, self.leaves, self.amount, self.modes = function, leaves, amount, modes
        self.part: Part | None = None
        self._graph = graph
        self._numerical: dict[tuple[float, bool], Differences] = {}
        self._batched_differences: dict[float, Differences | None] = {}
        self._analytical: dict[tuple[Mode, bool], Analytical] = {}

    def on_graph(self, use: Callable[[Tensors], T]) -> T:
        """Return what `use` makes of the outputs, which carry a graph."""
        fresh = self._graph is None  # one that was handed over may be stale
        outputs = self._graph = self.function(*self.leaves) if self._graph is None else self._graph
        try:
            return use(outputs)
        except RuntimeError:
            if fresh:
                raise
        # A function that writes to captured tensors has overwritten what the graph needs. A new one is used at once.
        self._graph = self.function(*self.leaves)
        return use(self._graph)

    @property
    def outputs(self) -> Tensors:
        """The outputs at the leaves, with a graph."""
        return self.on_graph(lambda outputs: outputs)

    @cached_property
    def value(self) -> Tensor:
        """The outputs at the leaves, of shape (M,)."""
        return self.on_graph(vector)

    @cached_property
    def size(self) -> tuple[int, int]:
        """The shape (M, N) of the Jacobian."""
        return self.value.numel(), self.point.numel()

    @cached_property
    def projections(self) -> int | None:
        """How many random directions stand for the units on each side; None: the whole Jacobian is computed.

        Raises TooLarge where a whole one is wanted that would not fit into the memory allowed.
        """
        wanted = self.amount.jacobian
        if wanted == "full":
            self.amount.allow_whole(self.size)
            return None
        return None if wanted == "auto" and max(self.size) <= self.amount.largest else self.amount.projections

    @cached_property
    def point(self) -> Tensor:
        """The coordinates of the leaves, of shape (N,)."""
        return vector(self.leaves)

    @cached_property
    def unit(self) -> float:
        """The rounding unit of the function's arithmetic: that of the coarsest leaf."""
        return max((torch.finfo(leaf.dtype).eps for leaf in self.leaves), default=0.0)

    @property
    def batch(self) -> int:
        """How many points may be evaluated at once."""
        return max(1, self.amount.budget // (8 * COPIES * max(1, sum(self.size))))

    def numerical(self, step: float, *, looped: bool = False) -> Differences:
        """Return the differences for all unit directions."""
        if (step, looped) not in self._numerical:
            self._numerical[step, looped] = self._differences(step, looped)
        return self._numerical[step, looped]

    def _differences(self, step: float, one_by_one: bool) -> Differences:
        if one_by_one or not all(self.size):  # an empty Jacobian needs no batch
            return differences(looped(self.function, self.leaves, self._stencil(step)), step)
        for batched in (self.part.differences if self.part else None, self.batched_differences):
            found = batched(step) if batched else None
            if found and same(found.base, self.value, 1e-6, 1e-6):
                return found
        return self.numerical(step, looped=True)

    def batched_differences(self, step: float) -> Differences | None:
        """Return the differences by one batch; None where the function cannot be batched."""
        if step not in self._batched_differences:
            found = self._if_batched(lambda: sweep(self.function, self.leaves, self._stencil(step), batch=self.batch))
            self._batched_differences[step] = differences(found.values, step) if found else None
        return self._batched_differences[step]

    def _stencil(self, step: float) -> Tensor:
        return self.point + stencil(self.size[1], step, self.projections)

    @staticmethod
    def _if_batched(swept: Callable[[], Sweep]) -> Sweep | None:
        try:
            return swept()
        except Exception:
            return None

    def analytical(self, mode: Mode, *, looped: bool = False) -> Analytical:
        """Return the Jacobian by one of the modes. Exceptions are those of the derivative."""
        if (mode, looped) not in self._analytical:
            self._analytical[mode, looped] = self._differentiated(mode, looped)
        return self._analytical[mode, looped]

    def _differentiated(self, mode: Mode, looped: bool) -> Analytical:
        ordinary = self.ordinary_reverse if mode == "reverse" else self.ordinary_forward
        refusal: Exception | None = None
        for batched, rows_of_mode in () if looped or not all(self.size) else self._batches_for(mode):
            try:
                rows = rows_of_mode(mode)
            except Exception as error:
                refusal = error.with_traceback(None)  # whose frames would hold the evidence
                continue
            if rows is not None:
                found = self._analytical_of(mode, rows, ordinary, batched=batched)
                if found.holds(1e4 * self.unit):
                    return found
        one_by_one = self.pull_back_each if mode == "reverse" else self.push_forward_each
        rows = one_by_one(directions(self._size_of(mode), self.projections, SIDES[mode]))
        return self._analytical_of(mode, rows, ordinary, refusal=refusal)

    def _batches_for(self, mode: Mode) -> Iterator[tuple[Batched, Callable[[Mode], Tensor | None]]]:
        if self.part:
            yield "points", self.part.rows
        if self._size_of(mode) > FEW:
            if mode == "reverse" or not has_forward(self.function):  # dual numbers do not nest
                yield "points", self._batched
            yield "directions", self._vmapped

    def _analytical_of(self, mode: Mode, found: Tensor, ordinary: Tensor, **how: Any) -> Analytical:
        """Return the Jacobian with the given rows (by reverse mode) or columns (by forward mode)."""
        said = ordinary
        if self.projections is None:
            said = probe(self._size_of(mode)) @ found
        elif len(found) > self.projections:  # a batch was asked about the probe as well
            found, said = found[:-1], found[-1]
        return Analytical(found if mode == "reverse" else found.T, said, ordinary, **how)

    def _size_of(self, mode: Mode) -> int:
        """Return of how many coordinates the directions of a mode are."""
        return self.size[0 if mode == "reverse" else 1]

    def _batched(self, mode: Mode) -> Tensor:
        """Return the directions pulled back or pushed forward, by a batch. Exceptions are those of batching."""
        shared = mode in self.modes and len(self.modes) > 1
        swept = (self.swept if shared else None) or self._sweep((mode,))
        found = swept.gradients if mode == "reverse" else swept.tangents
        assert found is not None
        return found[: len(self._asked(mode))]

    def _vmapped(self, mode: Mode) -> Tensor:
        """Return the directions pulled back or pushed forward, all of them at the point itself.

        Control flow may depend on a point that is no batch. Exceptions are those of batching.
        """
        together = self.pull_back_vmapped if mode == "reverse" else self.push_forward_vmapped
        return together(self._asked(mode))

    def _asked(self, mode: Mode) -> Tensor:
        """Return the directions that a batch is asked about."""
        return asked(self._size_of(mode), self.projections, SIDES[mode])

    @cached_property
    def swept(self) -> Sweep | None:
        """What all modes say in one batch; None where each has to be asked on its own. Dual numbers do not nest."""
        return None if has_forward(self.function) else self._if_batched(lambda: self._sweep(self.modes))

    def _sweep(self, modes: Collection[Mode]) -> Sweep:
        """Evaluate at the point, with a tangent and a cotangent in each row. Exceptions are those of batching."""
        tangents, cotangents = side_by_side(self.size, self.projections)
        rows = max(len(self._asked(mode)) for mode in modes)
        return sweep(
            self.function, self.leaves, self.point.repeat(rows, 1), batch=self.batch,
            tangents=tangents[:rows] if "forward" in modes else None,
            cotangents=cotangents[:rows] if "reverse" in modes else None, outputs=self.outputs,
        )  # fmt: skip

    @cached_property
    def ordinary_reverse(self) -> Tensor:
        """The gradient that an ordinary backward pass gives for the cotangent `probe`, of shape (N,)."""
        return self.pull_back(probe(self.size[0]))

    @cached_property
    def ordinary_forward(self) -> Tensor:
        """The tangent of the outputs that an ordinary call in forward mode gives for the tangent `probe`: (M,)."""
        return self.push_forward(probe(self.size[1]))

    def pull_back(self, cotangent: Tensor) -> Tensor:
        """Return J^T v for a cotangent v of shape (M,), by an ordinary backward pass."""
        return self.on_graph(lambda outputs: vector(vjp(outputs, self.leaves, tensors_of(cotangent, outputs))))

    def push_forward(self, tangent: Tensor) -> Tensor:
        """Return J u for a tangent u of shape (N,), by an ordinary call in forward mode."""
        points = tuple(leaf.detach() for leaf in self.leaves)
        return vector(pushforward(self.function)(*points, *tensors_of(tangent, self.leaves)))

    def pulled_back(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M) or (M,): by the Jacobian where it is whole, else one by one."""
        if self.projections is None:
            return cotangents @ self.analytical("reverse").jacobian
        return self.pull_back(cotangents) if cotangents.dim() == 1 else self.pull_back_each(cotangents)

    def pushed_forward(self, tangents: Tensor) -> Tensor:
        """Return U J^T for tangents U of shape (K, N) or (N,): by the Jacobian where it is whole, else one by one."""
        if self.projections is None:
            return tangents @ self.analytical("forward").jacobian.T
        return self.push_forward(tangents) if tangents.dim() == 1 else self.push_forward_each(tangents)

    def pull_back_each(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M), by an ordinary backward pass for each."""
        found = [self.pull_back(row) for row in cotangents]
        return torch.stack(found) if found else torch.zeros(0, self.size[1], dtype=torch.float64)

    def pull_back_vmapped(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M), by `torch.func.vmap` of an ordinary backward pass.

        Exceptions are those of batching.
        """

        def pulled(outputs: Tensors) -> Tensor:
            return by_vmap(lambda *v: vjp(outputs, self.leaves, v), cotangents, outputs, self.batch)

        return self.on_graph(pulled)

    def push_forward_vmapped(self, tangents: Tensor) -> Tensor:
        """Return U J^T for tangents U of shape (K, N), by `torch.func.vmap` of forward mode.

        Exceptions are those of batching.
        """
        points = tuple(leaf.detach() for leaf in self.leaves)
        push = Pushforward(transformed(self.function), transform=True)
        return by_vmap(lambda *t: push(*points, *t), tangents, points, self.batch)

    def push_forward_each(self, tangents: Tensor) -> Tensor:
        """Return (J U^T)^T for tangents U of shape (K, N), by an ordinary call in forward mode for each."""
        found = [self.push_forward(row) for row in tangents]
        return torch.stack(found) if found else torch.zeros(0, self.size[0], dtype=torch.float64)
