"""The fast path of `opcheck.gradcheck`: a few calls show that derivatives are right.

If they do not show it, the full comparison follows: see `slow_path.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import (
    Differentiable,
    Pushforward,
    Tensors,
    jvp,
    transformed,
    vjp,
)
from opcheck.derivatives.coordinates import (
    deviation,
    largest_difference,
    rows_of,
    same,
    vector,
)
from opcheck.derivatives.cotangents import undefined
from opcheck.derivatives.differences import Differences, differences
from opcheck.derivatives.point import Point
from opcheck.derivatives.request import AUTO
from opcheck.derivatives.tolerances import Numbers
from opcheck.derivatives.uncertainty import CERTAIN, ROUNDED, Measured, excess
from opcheck.dropin import passes
from opcheck.dropin.in_place import Second
from opcheck.dropin.memory import Kept, elements
from opcheck.dropin.passes import Kinds, Pass, Passes

FEW_POINTS = 6
"""The maximum number of coordinates to move by single calls of a function. With more, a batch is faster."""
FEW_PULLBACKS = 3
"""The maximum number of coordinates to move by single calls if each call runs a backward pass."""
FEW_ROWS = 6
"""The maximum number of backward passes, or of calls in forward mode, that are faster one by one than in a batch."""
SMALL = 1e-3
"""The fraction of atol up to which a Jacobian counts as right without further tests."""


@dataclass(frozen=True)
class Claims:
    """The parameters of torch's gradcheck that select what to check: their names begin with `check_`."""

    forward_ad: bool
    backward_ad: bool
    undefined_grad: bool
    grad_dtypes: bool
    batched_grad: bool
    batched_forward_grad: bool = False


def holds(point: Point, second: Second | None, numbers: Numbers, claims: Claims) -> bool:
    """Return True if all claims clearly hold for a function at a point. False if this is unclear, or anything raises.

    second: the cotangents for which the gradients of the function are checked; None: the function itself is checked.
    """
    if not point.outputs or not all(y.requires_grad and y.layout is torch.strided for y in point.outputs):
        return False
    try:
        if second is None:
            return FastPath(point.function, point.leaves, point.outputs, numbers, claims, FEW_POINTS).holds()
        function, leaves = second.of(point)
        return FastPath(function, leaves, function(*leaves), numbers, claims, FEW_PULLBACKS).holds()
    except Exception:  # the full comparison raises it again, and reports it
        return False


@dataclass
class FastPath:
    """The fast path for one function: its leaves, its outputs there (with a graph), and the claims to check."""

    function: Differentiable
    leaves: Tensors
    outputs: Tensors
    numbers: Numbers
    claims: Claims
    few: int
    """The maximum number of coordinates to move by single calls."""
    can_batch: bool = True
    """Whether no batch of points has failed."""

    def __post_init__(self) -> None:
        self.of_outputs, self.of_leaves = passes.kinds_of(self.outputs), passes.kinds_of(self.leaves)
        self.size = sum(passes.sizes_of(self.of_outputs)), sum(passes.sizes_of(self.of_leaves))
        self.unit = max(torch.finfo(leaf.dtype).eps for leaf in self.leaves)

    def holds(self) -> bool:
        """Return whether all claims clearly hold. Exceptions of the function and its derivatives propagate."""
        if max(self.size) > AUTO.largest:
            return False
        slopes = self._slopes(self.numbers.eps)
        return (not self.claims.backward_ad or self._reverse_holds(slopes)) and (
            not self.claims.forward_ad or self._forward_holds(slopes)
        )

    # differences

    def _slopes(self, step: float) -> Differences:
        values = self._values_of_copies(step) if self.size[1] > self.few and self.can_batch else None
        self.can_batch = values is not None
        return differences(self._values_in_place(step) if values is None else values, step)

    def _values_in_place(self, step: float) -> Tensor:
        """Return the outputs with each coordinate of the leaves moved up, then with each moved down, then unmoved.

        Shape: (2 N + 1, M). The leaves themselves are moved, as torch does: a function may read them in another way
        than as its arguments.
        """
        places = [place for leaf in self.leaves for place in elements(leaf.data)]
        size = len(places)
        batches = [torch.empty((2 * size + 1, *y.shape), dtype=y.dtype, device=y.device) for y in self.outputs]
        rows = list(zip(*(batch.unbind() for batch in batches), strict=True))
        for place, up, down in zip(places, rows, rows[size:], strict=False):
            number = place.item()
            place.fill_(number + step)
            _copy(self.function(*self.leaves), up)
            place.fill_(number - step)
            _copy(self.function(*self.leaves), down)
            place.fill_(number)
        _copy(self.outputs, rows[-1])
        return rows_of(batches, len(rows))

    def _values_of_copies(self, step: float) -> Tensor | None:
        """Return the rows of `_values_in_place` for all coordinates, from one batched call on copies of the leaves.

        None if the function cannot be batched, or if one call on the leaves, moved by a random step, disagrees.
        """
        size = self.size[1]
        weights, steps = passes.steps(self.of_leaves, step)
        try:
            with torch.no_grad(), quiet():
                batches = self.function.rows(*map(torch.add, self.leaves, steps))
        except Exception:  # it cannot be batched
            return None
        with Kept(self.leaves) as own:
            for memory, moves in zip(own.memory, steps, strict=True):
                memory.add_(moves[-1])
            moved = vector(self.function(*self.leaves))
        values = rows_of(batches, 2 * size + 1)
        if not torch.equal(moved, values[-1]):
            slope = weights.abs() @ (values[:size] - values[size:-1]).abs_()
            admitted = slope.mul_(5e-7) + values[-1].abs().mul_(32 * self.unit)
            if not bool(((moved - values[-1]).abs_() <= admitted).all()):
                return None
        values[-1] = vector(self.outputs)
        return values

    # derivatives

    def _reverse_holds(self, slopes: Differences) -> bool:
        outputs, leaves, claims = self.outputs, self.leaves, self.claims

        def pull(own: Pass) -> Tensors:
            marked = [undefined(outputs[k]) if k in own.undefined else outputs[k] for k in own.those]
            return vjp(marked, leaves, [own.vectors[k].clone() for k in own.those])

        batch = self._batched(lambda *v: vjp(outputs, leaves, v), self.of_outputs, claims.batched_grad)
        every = passes.backward(self.of_outputs, batch is None, claims.undefined_grad)
        jacobian, products, directions = _derivatives(pull, every, self.of_leaves, batch)
        return (
            (batch is not None or not claims.batched_grad)
            and deviation(products[0], products[1]) <= self.numbers.nondeterminism
            and not bool(products[2].any())
            and self._agrees(jacobian, slopes)
            and self._are_products(products, directions, jacobian)
        )

    def _forward_holds(self, slopes: Differences) -> bool:
        function, points, claims = self.function, tuple(leaf.detach() for leaf in self.leaves), self.claims
        nested = Pushforward(transformed(function), transform=True)

        def push(own: Pass) -> Tensors:
            tangents = [None if k in own.undefined else t.clone() for k, t in enumerate(own.vectors)]
            return jvp(function, points, tangents)

        batch = self._batched(lambda *t: nested(*points, *t), self.of_leaves, claims.batched_forward_grad)
        every = passes.forward(self.of_leaves, batch is None, claims.undefined_grad)
        jacobian, products, directions = _derivatives(push, every, self.of_outputs, batch)
        return (
            (batch is not None or not claims.batched_forward_grad)
            and self._agrees(jacobian.T, slopes)
            and self._are_products(products, directions, jacobian)
        )

    def _batched(self, function: Callable[..., Tensors], kinds: Kinds, is_claimed: bool) -> Tensor | None:
        """Return the derivatives along all coordinates by vmap, as rows.

        None if vmap fails, or if there are few coordinates and batching is not claimed.
        """
        size = sum(passes.sizes_of(kinds))
        if size <= FEW_ROWS and not is_claimed:
            return None
        directions, batches = passes.units(kinds)
        try:
            with quiet():
                every = torch.func.vmap(function, randomness="same")(*(batch.clone() for batch in batches))
        except Exception:  # it cannot be batched
            return None
        rows = rows_of(every, len(directions))
        # With one coordinate, only the second, random row shows that rows are mixed up.
        return rows[:size] if size > 1 or self._are_products(rows[1], directions[1], rows[:1]) else None

    def _agrees(self, jacobian: Tensor, slopes: Differences) -> bool:
        """Return whether a Jacobian is the numerical one, to all digits that differences show, without a kink."""
        numbers, numerical = self.numbers, slopes.jacobian
        grid, least = CERTAIN * self.unit / numbers.eps, SMALL * numbers.atol
        if not jacobian.numel():
            return True
        if largest_difference(jacobian, numerical) <= min(grid / 2, least) and slopes.most_bend <= numbers.atol:
            return True  # fast path
        measured = Measured(slopes, cache(self._slopes), numbers, self.unit, self.leaves)
        farthest = float(vector(self.leaves).abs().max())
        return (
            not bool((excess(jacobian, numerical, self.leaves, numbers) > 0).any())
            and bool((slopes.bend.abs() <= measured.tolerance()).all())
            and not bool(measured.wrong_below_atol(jacobian).any())
            and not measured.without_digits(jacobian, farthest)
        )

    def _are_products(self, products: Tensor, directions: Tensor, jacobian: Tensor) -> bool:
        """Return whether `products` equals `directions @ jacobian`, up to rounding."""
        rounding, expected = ROUNDED * self.unit, directions @ jacobian
        if same(products, expected, rounding, rounding):  # fast path
            return True
        terms = directions.abs().amax(-1, keepdim=True) * (float(jacobian.abs().max()) * max(jacobian.shape))
        return bool(((products - expected).abs() <= rounding * (1 + terms)).all())  # terms may cancel


def _derivatives(
    of: Callable[[Pass], Sequence[Tensor]], every: Passes, kinds: Kinds, jacobian: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Jacobian, derivatives along further directions, and these directions, each as rows.

    of: runs a pass, on copies of its vectors: operators may round differently by the alignment of memory, reject views,
        or write to their arguments.
    kinds: the kinds of the derivatives.
    jacobian: None if the first passes compute it, one for each coordinate.
    Raises TypeError if a derivative is not strided, or has another dtype than its kind.
    """
    results = [of(own) for own in every.each]
    batches = [torch.stack(own) for own in zip(*results, strict=True)]
    for batch, (_, dtype, _) in zip(batches, kinds, strict=True):
        if batch.layout is not torch.strided or batch.dtype != dtype:
            raise TypeError("a derivative is unlike its tensor")
    products, directions = rows_of(batches, len(results)), every.directions
    if jacobian is not None:
        return jacobian, products, directions
    count = directions.shape[1]
    return products[:count], products[count:], directions[count:]


def _copy(outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for output, target in zip(outputs, targets, strict=True):
        if output.shape != target.shape or output.dtype != target.dtype:
            raise ValueError("the outputs change where the inputs are moved")
        target.copy_(output.detach())


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress torch's warning that it has no batching rule for an operator."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet implemented")
        yield
