"""The fast path of `opcheck.gradcheck`: a few calls decide whether derivatives are right or wrong, without a diagnosis.

If these are inconclusive, the full comparison follows: see `in_place.py`.
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
    pushforward,
    transformed,
    vjp,
)
from opcheck.derivatives.coordinates import (
    deviation,
    largest_difference,
    located,
    modulus,
    real_size,
    rows_of,
    same,
    tensors_of,
    vector,
)
from opcheck.derivatives.cotangents import undefined
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.point import Point
from opcheck.derivatives.request import AUTO
from opcheck.derivatives.tolerances import Numbers
from opcheck.derivatives.uncertainty import CERTAIN, Measured, allowed, excess
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
ROUNDED = 1e4
"""The number of rounding units by which two computations of the same derivative may differ."""
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


def look(point: Point, second: Second | None, numbers: Numbers, claims: Claims) -> bool | None:
    """Return True if all claims hold for a function at a point, False if a Jacobian is wrong, None if that is unclear.

    None is also returned if anything raises.
    second: the cotangents for which the gradients of the function are checked; None: the function itself is checked.
    """
    if not point.outputs or not all(y.requires_grad and y.layout is torch.strided for y in point.outputs):
        return None
    try:
        if second is None:
            return FastPath(point.function, point.leaves, point.outputs, numbers, claims, FEW_POINTS).verdict()
        function, leaves = second.of(point)
        return FastPath(function, leaves, function(*leaves), numbers, claims, FEW_PULLBACKS).verdict()
    except Exception:  # the full comparison raises it again, and reports it
        return None


class Unclear(Exception):
    """The fast path is inconclusive."""


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
    is_batched: bool = False
    """Whether any batch was used."""

    def __post_init__(self) -> None:
        self.of_outputs, self.of_leaves = passes.kinds_of(self.outputs), passes.kinds_of(self.leaves)
        self.size = sum(passes.sizes_of(self.of_outputs)), sum(passes.sizes_of(self.of_leaves))
        self.unit = max(torch.finfo(leaf.dtype).eps for leaf in self.leaves)

    def verdict(self) -> bool:
        """Return True if all claims hold, False if a Jacobian is wrong. Raise Unclear if neither is certain.

        Exceptions of the function and its derivatives propagate.
        """
        if max(self.size) > AUTO.largest:
            raise Unclear
        slopes = self._slopes(self.numbers.eps)
        return (not self.claims.backward_ad or self._of_reverse(slopes)) and (
            not self.claims.forward_ad or self._of_forward(slopes)
        )

    # differences

    def _slopes(self, step: float) -> Differences:
        size, values = self.size[1], None
        if size > self.few and self.can_batch:
            values = self._values_of_copies(step)
            self.can_batch = values is not None
            self.is_batched |= self.can_batch
        if values is None:
            values = self._values_in_place(self._places, step)
        return Differences(values[:size], values[-1], values[size:-1], step)

    @property
    def _places(self) -> list[Tensor]:
        """A view of rank 0 of the memory of each coordinate of the leaves."""
        return [place for leaf in self.leaves for place in elements(leaf.data)]

    def _values_in_place(self, places: Sequence[Tensor], step: float) -> Tensor:
        """Return the outputs with each place moved up, then with each moved down, then unmoved, as rows.

        Shape: (2 * len(places) + 1, M). The leaves themselves are moved, as torch does: a function may read them in
        another way than as its arguments.
        """
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

    def _of_reverse(self, slopes: Differences) -> bool:
        outputs, leaves, claims = self.outputs, self.leaves, self.claims

        def pull(own: Pass) -> list[Tensor]:
            those = [k for k in own.those if outputs[k].requires_grad]
            chosen = [undefined(outputs[k]) if k in own.undefined else outputs[k] for k in those]
            cotangents = [own.vectors[k].clone() for k in those]
            gradients: Sequence[Tensor | None] = [None] * len(leaves)
            if those:
                gradients = torch.autograd.grad(chosen, leaves, cotangents, retain_graph=True, allow_unused=True)
            return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)]

        batch = self._batched(lambda *v: vjp(outputs, leaves, v), self.of_outputs, claims.batched_grad)
        every = passes.backward(self.of_outputs, batch is None, claims.undefined_grad)
        jacobian, products, directions = _derivatives(pull, every, self.of_leaves, batch)
        if not self._agrees(jacobian, slopes, lambda row, column: _along(pull, row, outputs)[column]):
            return False
        again, zero = deviation(products[0], products[1]), products[2]
        if not again <= self.numbers.nondeterminism or bool(zero.any()) or (batch is None and claims.batched_grad):
            raise Unclear
        self._expect_products(products, directions, jacobian)
        return True

    def _of_forward(self, slopes: Differences) -> bool:
        function, points, claims = self.function, tuple(leaf.detach() for leaf in self.leaves), self.claims
        pushed, nested = pushforward(function), Pushforward(transformed(function), transform=True)

        def push(own: Pass) -> Tensors:
            tangents = [t.clone() for t in own.vectors]
            if own.undefined:
                return jvp(function, points, [None if k in own.undefined else t for k, t in enumerate(tangents)])
            return pushed(*points, *tangents)

        batch = self._batched(lambda *t: nested(*points, *t), self.of_leaves, claims.batched_forward_grad)
        every = passes.forward(self.of_leaves, batch is None, claims.undefined_grad)
        jacobian, products, directions = _derivatives(push, every, self.of_outputs, batch)
        if not self._agrees(jacobian.T, slopes, lambda row, column: _along(push, column, points)[row]):
            return False
        if batch is None and claims.batched_forward_grad:
            raise Unclear
        self._expect_products(products, directions, jacobian)
        return True

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
            rows = rows_of(every, len(directions))
            if size == 1:  # only the second, random row shows that rows are mixed up
                self._expect_products(rows[1], directions[1], rows[:1])
        except Exception:
            return None
        self.is_batched = True
        return rows[:size]

    def _agrees(self, jacobian: Tensor, slopes: Differences, alone: Callable[[int, int], Tensor]) -> bool:
        """Return whether a Jacobian is the numerical one, up to the errors of finite differences.

        alone: computes one entry, without a batch.
        Raises Unclear if digits are lost, if there is a kink, if rounding may explain a difference, or if only the
        batch is wrong.
        """
        numbers, numerical = self.numbers, slopes.jacobian
        grid, least = CERTAIN * self.unit / numbers.eps, SMALL * numbers.atol
        if not jacobian.numel():
            return True
        bend = (slopes.above + slopes.below).sub_(slopes.base, alpha=2).abs_().max()
        if largest_difference(jacobian, numerical) <= min(grid / 2, least) and bend <= numbers.atol * numbers.eps:
            return True  # fast path
        tolerance, rounding = allowed(numerical, self.leaves, numbers), slopes.rounding(CERTAIN * self.unit)
        off, beyond = (jacobian - numerical).abs(), excess(jacobian, numerical, self.leaves, numbers)
        certain = beyond > modulus(rounding, self.leaves)
        if bool(certain.any()):
            row, column = divmod(int((off * certain).argmax()), len(off.T))
            if self.is_batched:
                self._confirm(row, column, alone(row, column), float(tolerance[row, column] + rounding[row, column]))
            return False
        if bool((beyond > 0).any()) or not bool((slopes.bend.abs() <= tolerance).all()):
            raise Unclear
        measured = Measured(slopes, cache(self._slopes), numbers, self.unit, self.leaves)
        farthest = float(vector(self.leaves).abs().max())
        if bool(measured.wrong_below_atol(jacobian).any()) or measured.without_digits(jacobian, farthest):
            raise Unclear
        return True

    def _confirm(self, row: int, column: int, entry: Tensor, tolerance: float) -> None:
        """Raise Unclear unless an entry is also wrong if it is computed without a batch."""
        step = self.numbers.eps
        above, below, _ = self._values_in_place(self._places[column : column + 1], step)[:, row]
        slope = (above - below) / (2 * step)
        if abs(entry - slope) <= tolerance + self.numbers.rtol * abs(slope):
            raise Unclear

    def _expect_products(self, products: Tensor, directions: Tensor, jacobian: Tensor) -> None:
        """Raise Unclear unless `products` equals `directions @ jacobian`, up to rounding."""
        rounding, expected = ROUNDED * self.unit, directions @ jacobian
        if same(products, expected, rounding, rounding):  # fast path
            return
        terms = directions.abs().amax(-1, keepdim=True) * (float(jacobian.abs().max()) * max(jacobian.shape))
        if not bool(((products - expected).abs() <= rounding * (1 + terms)).all()):  # terms may cancel
            raise Unclear


def _derivatives(
    of: Callable[[Pass], Sequence[Tensor]], every: Passes, kinds: Kinds, jacobian: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Jacobian, derivatives along further directions, and these directions, each as rows.

    of: runs a pass, on copies of its vectors: operators may round differently by the alignment of memory, reject views,
        or write to their arguments.
    kinds: the kinds of the derivatives.
    jacobian: None if the first passes compute it, one for each coordinate.
    Raises Unclear if a derivative is not strided, or has another dtype than its kind.
    """
    results = [of(own) for own in every.each]
    batches = [torch.stack(own) for own in zip(*results, strict=True)]
    for batch, (_, dtype, _) in zip(batches, kinds, strict=True):
        if batch.layout is not torch.strided or batch.dtype != dtype:
            raise Unclear
    products, directions = rows_of(batches, len(results)), every.directions
    if jacobian is not None:
        return jacobian, products, directions
    count = directions.shape[1]
    return products[:count], products[count:], directions[count:]


def _along(of: Callable[[Pass], Sequence[Tensor]], coordinate: int, like: Tensors) -> Tensor:
    """Return the derivative along one coordinate, from a single pass."""
    direction = torch.zeros(sum(map(real_size, like)), dtype=torch.float64)
    direction[coordinate] = 1
    return vector(of(Pass(tensors_of(direction, like), [located(coordinate, like)[0]])))


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
