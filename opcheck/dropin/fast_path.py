"""The fast path of `opcheck.gradcheck`: a few calls show that derivatives are right.

If they do not show it, the full comparison follows: see `slow_path.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Mode, Pushforward, Tensors, jvp, transformed, vjp
from opcheck.derivatives.comparison import Comparison
from opcheck.derivatives.coordinates import deviation, rows_of, same, vector
from opcheck.derivatives.cotangents import undefined
from opcheck.derivatives.differences import Differences, differences
from opcheck.derivatives.jacobians import compare, digits_lost
from opcheck.derivatives.point import Analytical, Point
from opcheck.derivatives.tolerances import Numbers
from opcheck.dropin import passes
from opcheck.dropin.in_place import InPlace, Second, is_batched_by_torch
from opcheck.dropin.memory import Kept, elements
from opcheck.dropin.passes import Kinds, Pass, Passes

FEW_POINTS = 6
"""The maximum number of coordinates to move by single calls of a function. With more, a batch is faster."""
FEW_PULLBACKS = 3
"""The maximum number of coordinates to move by single calls if each call runs a backward pass."""
FEW_ROWS = 6
"""The maximum number of backward passes, or of calls in forward mode, that are faster one by one than in a batch."""


@dataclass(frozen=True)
class Claims:
    """The parameters of torch's gradcheck that select what to check: their names begin with `check_`."""

    forward_ad: bool
    backward_ad: bool
    undefined_grad: bool
    grad_dtypes: bool
    batched_grad: bool
    batched_forward_grad: bool = False

    @property
    def go_together(self) -> bool:
        """Whether torch accepts these parameters together. If not, its error says why."""
        batches = (self.backward_ad or not self.batched_grad) and (self.forward_ad or not self.batched_forward_grad)
        return batches and (self.backward_ad or self.forward_ad)


def look(point: Point, second: Second | None, numbers: Numbers, claims: Claims, expected: bool) -> bool | None:
    """Return True if all claims clearly hold for a function at a point. None if this is unclear, or anything raises.

    False if a Jacobian is wrong and `expected` is true, so that no explanation is needed.
    second: returns the gradients of the function, which are checked then; None: the function itself is checked.
    """
    if not point.outputs or not all(y.requires_grad and y.layout is torch.strided for y in point.outputs):
        return None
    modes: tuple[tuple[Mode, bool], ...] = (("reverse", claims.backward_ad), ("forward", claims.forward_ad))
    try:
        if second is None:
            fast = FastPath(point.function, point.leaves, point.outputs, numbers, claims, FEW_POINTS)
        else:
            function, leaves = second(point)
            fast = FastPath(function, leaves, function(*leaves), numbers, claims, FEW_PULLBACKS)
        if fast.projections is not None:
            return None
        chosen = [mode for mode, is_claimed in modes if is_claimed]
        return all(Comparison(fast, mode, numbers).has_all_digits for mode in chosen) or not any(
            compare(fast, mode, numbers, expected=expected) or digits_lost(fast, mode, numbers) for mode in chosen
        )
    except Exception:  # the full comparison raises it again, and reports it
        return None


class Unclear(Exception):
    """The fast path is inconclusive."""


class FastPath(InPlace):
    """A point with evidence from few calls. Raises Unclear if a claim other than the values of a Jacobian may not hold.

    few: the maximum number of coordinates to move by single calls.
    """

    can_batch = True

    def __init__(
        self, function: Differentiable, leaves: Tensors, outputs: Tensors, numbers: Numbers, claims: Claims, few: int
    ) -> None:
        super().__init__(function, leaves, outputs=outputs)
        self.nondeterminism, self.claims, self.few = numbers.nondeterminism, claims, few
        self.of_outputs, self.of_leaves = passes.kinds_of(outputs), passes.kinds_of(leaves)

    def without_batches(self) -> Point:
        """Raise Unclear: the full comparison confirms what is wrong by ordinary calls."""
        raise Unclear

    # differences

    def numerical(self, step: float) -> Differences:
        """Return the differences with respect to all coordinates."""
        if step not in self._numerical:
            values = self._values_of_copies(step) if self.size[1] > self.few and self.can_batch else None
            self.can_batch = values is not None
            values = self._values_in_place(step) if values is None else values
            self._numerical[step] = differences(values, step)
        return self._numerical[step]

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

    def analytical(self, mode: Mode) -> Analytical:
        """Return the Jacobian by a mode, and its products with further directions. Raises Unclear if not linear."""
        if mode not in self._analytical:
            jacobian, products, directions = self._reverse() if mode == "reverse" else self._forward()
            evidence = Analytical(jacobian, directions @ jacobian, products)
            if not evidence.holds(self.rounding):
                raise Unclear
            self._analytical[mode] = evidence if mode == "reverse" else replace(evidence, jacobian=jacobian.T)
        return self._analytical[mode]

    def _reverse(self) -> tuple[Tensor, Tensor, Tensor]:
        outputs, leaves, claims = self.outputs, self.leaves, self.claims

        def pull(own: Pass) -> Tensors:
            marked = [undefined(outputs[k]) if k in own.undefined else outputs[k] for k in own.those]
            cotangents = [own.vectors[k].clone() for k in own.those]
            return vjp(marked, leaves, cotangents)

        batch = self._batched(lambda *v: vjp(outputs, leaves, v), self.of_outputs, "batched_grad")
        every = passes.backward(self.of_outputs, batch is None, claims.undefined_grad)
        jacobian, products, directions = _derivatives(pull, every, self.of_leaves, batch)
        again, zero = deviation(products[0], products[1]), products[2]
        if not again <= self.nondeterminism or bool(zero.any()):
            raise Unclear
        return jacobian, products, directions

    def _forward(self) -> tuple[Tensor, Tensor, Tensor]:
        function, points, claims = self.function, tuple(leaf.detach() for leaf in self.leaves), self.claims
        nested = Pushforward(transformed(function), transform=True)

        def push(own: Pass) -> Tensors:
            tangents = [None if k in own.undefined else t.clone() for k, t in enumerate(own.vectors)]
            return jvp(function, points, tangents)

        batch = self._batched(lambda *t: nested(*points, *t), self.of_leaves, "batched_forward_grad")
        every = passes.forward(self.of_leaves, batch is None, claims.undefined_grad)
        return _derivatives(push, every, self.of_outputs, batch)

    def _batched(self, function: Callable[..., Tensors], kinds: Kinds, claim: str) -> Tensor | None:
        """Return the derivatives along all coordinates by vmap, as rows.

        None if `torch.func.vmap` fails, or if there are few coordinates and batching is not claimed. Raises Unclear if
        it is claimed, and the vmap of torch's gradcheck fails, too.
        """
        size, is_claimed = sum(passes.sizes_of(kinds)), getattr(self.claims, claim)
        if size <= FEW_ROWS and not is_claimed:
            return None
        directions, batches = passes.units(kinds)
        try:
            with quiet():
                every = torch.func.vmap(function, randomness="same")(*(batch.clone() for batch in batches))
            rows = rows_of(every, len(directions))
            # With one coordinate, only the second, random row shows that rows are mixed up.
            if size > 1 or same(rows[1], directions[1] * rows[0], self.rounding, self.rounding):
                return rows[:size]
        except Exception:
            pass
        if is_claimed and not is_batched_by_torch(self, claim):
            raise Unclear
        return None


def _derivatives(
    of: Callable[[Pass], Sequence[Tensor]], every: Passes, kinds: Kinds, jacobian: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Jacobian, derivatives along further directions, and these directions, each as rows.

    of: runs a pass, on copies of its vectors: operators may round differently by the alignment of memory, reject views,
        or write to their arguments.
    jacobian: None if the first passes compute it, one for each coordinate.
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
