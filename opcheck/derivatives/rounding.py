"""Bounds how far a result may be from the exact one, as derived in docs/precision.md.

A sound computation in a dtype with the rounding unit u returns the rounded exact result for inputs that are off by a
few u. So its error is u |y| plus a few u C, where C is the condition of the result y: how far y moves per relative
change of its inputs. C is measured by moving the inputs of the exact computation. Whole numbers have no rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import labels, real_size, vector
from opcheck.derivatives.refusals import tried

ROUNDINGS = 5
"""The allowed error, as a multiple of how far one random rounding of each input moves a result. By Hoeffding's
inequality, a sum of independent roundings exceeds five times its standard deviation with a probability below 1e-5."""
NUDGES = ((0, 1), (2, 1), (8, 1), (8, ROUNDINGS))
"""The stages of the test, as pairs: how many times inputs are moved at random, and by how many roundings. A later stage
runs only if a result exceeds the bound of the stages before.

An entry that depends on a single input moves equally far each time. The last stage moves inputs by as much as the bound
allows: a function with a jump, as at a comparison of its inputs, may jump there."""
HALF = 1e-4
"""A bound between the rounding units of half precision, which are larger, and of single precision, which is smaller."""
OFF_BY_FUNCTIONS = 64
"""The rounding units by which special functions may be off: some tens are usual. It is the least factor of the bound
in single and double precision, where a margin costs nothing."""
WHOLE = 2.0**53
"""The number up to which float64 holds every whole number."""
CANCELLED = 64
"""The terms of a sum cancel out if they are at least so many times as large as the sum: six of its bits are lost."""
NEARBY = 8
"""The number of samples nearby at which a result is computed again if it is off by less than `BY_CHANCE`."""
BY_CHANCE = 2
"""The error, as a multiple of the bound, below which it may be a chance: of an operator that rounds several factors
inside. Such errors average out over samples nearby: half the bound is allowed. Those of a wrong result do not."""
SHOWN = 5
"""The number of wrong entries that a message shows."""

T = TypeVar("T")
Tensors = Sequence[Tensor]
Moved = Callable[[Tensor], Tensor]


def rounding_unit(dtype: torch.dtype) -> float:
    """Return the largest relative error of rounding to a dtype: half the distance from 1 to the next number.

    It is 0 for integers and booleans.
    """
    return float(torch.finfo(dtype).eps) / 2 if dtype.is_floating_point or dtype.is_complex else 0.0


def nudges(unit: float, count: int, dtype: torch.dtype | None = None) -> Iterator[Moved]:
    """Yield `count` functions that move each element of a tensor by a relative change of +-`unit`, at random.

    Zeros stay zero, which keeps the structure of a matrix. Integers do not change. The signs are the same each time.

    dtype: a dtype to which the changed numbers are rounded.
    """
    for number in range(count):
        generator = torch.Generator("cpu").manual_seed(number)

        def moved(tensor: Tensor, generator: torch.Generator = generator) -> Tensor:
            if not rounding_unit(tensor.dtype) or not tensor.numel():
                return tensor
            shape = tensor.shape if tensor.layout is torch.strided else ()  # a sparse tensor is scaled as a whole
            signs = 2 * torch.randint(2, shape, generator=generator, dtype=torch.float64, device="cpu") - 1
            factors = (1 + unit * signs).to(tensor.dtype).to(tensor.device)  # not every device has double precision
            changed = tensor.detach() * factors
            if dtype is not None:
                changed = changed.to(dtype.to_complex() if tensor.is_complex() else dtype.to_real()).to(tensor.dtype)
            return changed.requires_grad_(tensor.requires_grad)

        yield moved


@dataclass(frozen=True)
class Computation(Generic[T]):
    """An exact computation, and its results with moved inputs, which are cached."""

    at: Callable[[Moved], T]
    """Computes the result, with a function applied to each input tensor."""
    dtype: torch.dtype
    """The dtype of the computation whose results are compared with the exact ones."""
    terms: int
    """The number of input numbers."""
    sides: int = 1
    """2 if the exact results are rounded as well, else 1."""
    _moved: dict[tuple[float, int], T | None] = field(default_factory=dict)

    @cached_property
    def right(self) -> T:
        """The exact result. Passes on the exceptions of the computation."""
        return self.at(lambda tensor: tensor)

    def moved(self, unit: float, count: int) -> Iterator[T]:
        """Yield the results for inputs moved by `unit`, except for inputs that the operator refuses."""
        for number, move in enumerate(nudges(unit, count)):
            key = unit, number
            if key not in self._moved:
                at_move = tried(partial(self.at, move))
                self._moved[key] = None if isinstance(at_move, Exception) else at_move
            result = self._moved[key]
            if result is not None:
                yield result

    def stays_finite(self, part: Callable[[T], Tensors]) -> bool:
        """Return whether any number of a part of the result is finite, also where rounding moves the inputs."""
        unit = rounding_unit(self.dtype)
        exact = Exact.of(part(self.right), map(part, self.moved(unit, NUDGES[1][0])), unit)
        # Leave out the lengths, which are zero for tensors that are not finite.
        return bool((exact.value.isfinite() & exact.condition.isfinite())[: exact.count].any())

    def lost(self, part: Callable[[T], Tensors], got: Tensors) -> float:
        """Return the largest relative error of any tensor of some results as a whole, as measured by its length."""
        exact = Exact.of(part(self.right), (), 1.0)
        right, values = (values[exact.count :] for values in (exact.value, exact.measured(got)))
        shares = torch.where(right == 0, 0.0, (values - right) / right).abs()
        return float(shares.max()) if len(got) else 0.0

    def deviation(
        self,
        part: Callable[[T], Tensors],
        got: Tensors,
        names: Sequence[str],
        tolerance: tuple[float, float] | None = None,
        tested: Callable[[Moved], T] | None = None,
        most: float | None = None,
    ) -> Deviation | None:
        """Return where results are beyond the bound; None if they are not.

        part: chooses the exact results to compare with, which must have the same shapes: see `mismatch`.
        names: the names of the results in messages.
        tolerance: atol and rtol, instead of the bound on rounding.
        tested: computes results of the operator under test, as `at` computes exact ones, to tell a wrong result from
            one that is beyond the bound by chance.
        most: the largest bound, relative to a tensor as a whole, with which the tensor is compared, as a whole only.
            Default: each entry is compared, too, with any bound.
        """
        right = part(self.right)
        if tolerance is None and all(map(_is_rounded, got, right)):
            return None  # fast path
        own = [one.dtype for one in got]
        dtypes = [max(self.dtype, dtype, key=rounding_unit) if rounding_unit(dtype) else dtype for dtype in own]
        unit, terms = max(map(rounding_unit, (self.dtype, *own))), self.terms + sum(map(real_size, got))
        deviation, exact = None, Exact.of(right, (), unit)
        for count, times in NUDGES if unit else NUDGES[:1]:
            exact = exact.moved_to(map(part, self.moved(times * unit, count)), times * unit)
            if tolerance is None:
                allowed = self.sides * exact.allowed(dtypes, terms)
            else:
                allowed = tolerance[0] + tolerance[1] * exact.value.abs()
            deviation = exact.deviation(got, names, allowed, dtypes, most)
            if deviation is None:
                break
        finer = max(map(rounding_unit, (one.dtype for one in right)), default=0.0)
        if deviation is not None and tolerance is None and 0 < finer < unit:
            near = self.moved(2 * finer, NEARBY)  # by their last digit: half of it would be rounded away
            size = exact.size_of_terms(map(part, near), finer)
            allowed = allowed + self.sides * exact.allowed_for_terms(dtypes, terms, size)
            deviation = exact.deviation(got, names, allowed, dtypes, most)
        if tested is None or deviation is None or tolerance is not None or deviation.times >= BY_CHANCE:
            return deviation
        wrong = deviation.wrong & ~(self._mean_error(part, tested, deviation, unit) <= deviation.allowed / 2)
        return replace(deviation, wrong=wrong) if bool(wrong.any()) else None

    def _mean_error(
        self, part: Callable[[T], Tensors], tested: Callable[[Moved], T], here: Deviation, unit: float
    ) -> Tensor:
        """Return the mean error of each result over a sample and samples nearby, of shape (N + number of tensors,).

        Samples at which the operator raises are left out.
        """
        errors = [here.values - here.exact.value]
        moves = partial(nudges, ROUNDINGS * unit, NEARBY, self.dtype if rounding_unit(self.dtype) else None)

        def error(move: Moved, again: Moved) -> Tensor:
            exact = Exact.of(part(self.at(move)), (), unit)
            return exact.measured(part(tested(again))) - exact.value

        for pair in zip(moves(), moves(), strict=True):  # equal moves, each with a generator of its own
            nearby = tried(partial(error, *pair))
            errors += [] if isinstance(nearby, Exception) else [nearby]
        return torch.stack(errors).mean(0).abs()


def mismatch(got: Tensors, right: Tensors, names: Sequence[str]) -> str:
    """Return why results cannot be compared entry by entry, in one line; an empty string if they can."""
    if len(got) != len(right):
        return f"{len(got)} results, not {len(right)}"
    for name, one, other in zip(names, got, right, strict=True):
        if one.shape != other.shape:
            return f"{name} has the shape {list(one.shape)}, not {list(other.shape)}"
        if one.is_complex() != other.is_complex():
            return f"{name} is {'complex' if one.is_complex() else 'real'}, and should not be"
    return ""


@dataclass(frozen=True)
class Exact:
    """An exact result and its condition, for each real coordinate of its tensors, then for the length of each tensor.

    The length is the product with a unit vector, in which rounding errors average out: it shows a tensor that is off by
    a factor.
    """

    result: Tensors
    value: Tensor
    """The coordinates, then the lengths, of shape (N + number of tensors,), float64."""
    condition: Tensor
    """How far each of these values moves per relative change of the inputs, of the same shape."""
    units: Tensors
    """The unit vectors along the tensors; zeros for a tensor that is zero or has entries that are not finite."""

    @classmethod
    def of(cls, result: Tensors, others: Iterable[Tensors], unit: float) -> Exact:
        """Return a result and its condition, from the results for inputs that were moved by `unit`."""
        units = tuple(_unit_vector(vector((tensor,))) for tensor in result)
        value = _measured(result, units)
        return cls(tuple(result), value, torch.zeros_like(value), units).moved_to(others, unit)

    def moved_to(self, others: Iterable[Tensors], unit: float) -> Exact:
        """Return the same result, its condition updated by further results for inputs that were moved by `unit`."""
        condition = self.condition
        for other in others:
            condition = torch.maximum(condition, (self.measured(other) - self.value).abs() / unit)
        return replace(self, condition=condition.nan_to_num(nan=float("inf")))

    def size_of_terms(self, others: Iterable[Tensors], unit: float) -> float:
        """Return the size of the largest terms of an entry that cancel out; 0 if none do.

        How far rounding moves the entry tells how large its terms are.

        others: further results for inputs that were moved by `unit`, the rounding unit of this result.
        """
        moved = replace(self, condition=torch.zeros_like(self.value)).moved_to(others, unit)
        sizes = moved.condition[: self.count].nan_to_num(0.0, 0.0, 0.0)
        return float(sizes.where(sizes >= CANCELLED * self.value[: self.count].abs(), 0.0).max())

    @property
    def count(self) -> int:
        """The number of coordinates N, which the lengths of the tensors follow."""
        return len(self.value) - len(self.units)

    def measured(self, result: Tensors) -> Tensor:
        """Return the coordinates of another result, and its products with the unit vectors."""
        return _measured(result, self.units)

    def deviation(
        self, got: Tensors, names: Sequence[str], allowed: Tensor, dtypes: Sequence[torch.dtype], most: float | None
    ) -> Deviation | None:
        """Return where results are off by more than is allowed; None if they are not.

        dtypes: those of the results. most: as for `Computation.deviation`.
        """
        values = self.measured(got)
        error = (values - self.value).abs().nan_to_num(nan=float("inf"))
        has_whole = not all(map(rounding_unit, dtypes))
        beyond = ~(error <= allowed)
        if not has_whole and not bool(beyond.any()):
            return None  # fast path
        wrong = beyond & ~self.is_excusable(values, dtypes)
        if has_whole:
            is_whole = self._spread([not rounding_unit(one.dtype) for one in got]) > 0
            wrong = torch.where(is_whole, self._not_whole(got), wrong)
        if most is not None:
            wrong &= allowed <= most * self.value.abs()
            wrong[: self.count] = False
        return Deviation(self, values, allowed, wrong, tuple(got), names) if bool(wrong.any()) else None

    def allowed(self, dtypes: Sequence[torch.dtype], terms: int) -> Tensor:
        """Return the error that rounding to dtypes, one for each tensor, can cause, of shape (N + number of tensors,).

        terms: the number of numbers in the computation, for the worst case in single precision.
        """
        size = torch.maximum(self.value.abs(), self.condition)[: self.count]
        # Small entries come from differences of large ones, which are rounded too.
        largest = float(size.nan_to_num(0.0, 0.0, 0.0).max()) if size.numel() else 0.0
        times = self._spread(_times(dtypes, terms))
        least = self._spread([ROUNDINGS * _smallest(dtype) for dtype in dtypes])
        # Separate products, since a sum of the largest numbers of a dtype would be infinite.
        return times * self.value.abs() + (ROUNDINGS * times) * self.condition + times * largest + least

    def allowed_for_terms(self, dtypes: Sequence[torch.dtype], terms: int, size: float) -> Tensor:
        """Return the error that rounding terms of some size causes where they cancel out, of the shape of `value`."""
        have_cancelled = size >= CANCELLED * self.value.abs()
        return torch.where(have_cancelled, ROUNDINGS * self._spread(_times(dtypes, terms)) * size, 0.0)

    def is_excusable(self, got: Tensor, dtypes: Sequence[torch.dtype]) -> Tensor:
        """Return a mask of results that equal the exact ones or rightly overflow, of shape (N + number of tensors,)."""
        same = (got == self.value) | (got.isnan() & self.value.isnan())
        most = self._spread([torch.finfo(dtype).max if rounding_unit(dtype) else float("inf") for dtype in dtypes])
        above = 1 + self._spread([2 * rounding_unit(dtype) for dtype in dtypes])
        return same | (got.isinf() & (got.sign() == self.value.sign()) & (self.value.abs() * above >= most))

    def _spread(self, numbers: Sequence[float]) -> Tensor:
        """Return a number for each tensor, repeated for each of its coordinates, of shape (N + number of tensors,)."""
        each = torch.tensor(numbers, dtype=torch.float64, device="cpu")
        if len(set(numbers)) == 1:
            return each[:1].expand(len(self.value))
        counts = torch.tensor([len(unit) for unit in self.units], dtype=torch.int64, device="cpu")
        return torch.cat([each.repeat_interleave(counts), each])

    def _not_whole(self, got: Tensors) -> Tensor:
        """Return where whole numbers differ from the exact ones, as a mask of shape (N + number of tensors,).

        Those that rounding of the inputs moves are left out.
        """
        masks = [
            torch.zeros(real_size(one), dtype=torch.bool, device="cpu")
            if rounding_unit(one.dtype)
            else _not_whole(one, right)
            for one, right in zip(got, self.result, strict=True)
        ]
        lengths = torch.zeros(len(masks), dtype=torch.bool, device="cpu")
        return torch.cat([*(mask.reshape(-1) for mask in masks), lengths]) & (self.condition == 0)


def _times(dtypes: Sequence[torch.dtype], terms: int) -> list[float]:
    """Return the error of one rounding to each of some dtypes, relative to what is rounded.

    In single and double precision, the worst case costs nothing: a term is rounded once for each other term.
    """
    units = map(rounding_unit, dtypes)
    return [unit if unit > HALF else unit * max(terms, OFF_BY_FUNCTIONS) for unit in units]


def _smallest(dtype: torch.dtype) -> float:
    """Return the smallest positive number of a dtype, including subnormal ones; 0 for whole numbers."""
    return float(torch.finfo(dtype).smallest_normal) * float(torch.finfo(dtype).eps) if rounding_unit(dtype) else 0.0


def _unit_vector(values: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(values)
    return values / length if bool(length.isfinite()) and bool(length > 0) else torch.zeros_like(values)


def _measured(result: Tensors, units: Tensors) -> Tensor:
    """Return the coordinates of tensors, and their products with unit vectors; 0 for a unit vector that is zero."""
    parts = [vector((tensor,)) for tensor in result]
    pairs = zip(parts, units, strict=True)
    return vector([*parts, *(part @ unit if bool(unit.any()) else part.new_zeros(()) for part, unit in pairs)])


def _is_rounded(one: Tensor, other: Tensor) -> bool:
    """Return whether a result is the exact one, rounded to its dtype."""
    if not rounding_unit(one.dtype) or not rounding_unit(other.dtype) or one.is_complex() != other.is_complex():
        return False
    if one.dtype is torch.complex32:  # which torch cannot compare
        return False
    one, other = _dense(one), _dense(other)
    return torch.equal(one, other.to(one.dtype))


def _dense(result: Tensor) -> Tensor:
    """Return a result as a strided tensor on the CPU."""
    return (result.detach() if result.layout is torch.strided else result.detach().to_dense()).cpu()


def _not_whole(one: Tensor, other: Tensor) -> Tensor:
    """Return where whole numbers differ from the exact ones, as a mask. Numbers too large for float64 are left out.

    Exact results that are as close to a whole number as special functions come, such as 2.9999999999999996, are
    rounded.
    """
    one, other = _dense(one), _dense(other)
    if one.dtype is torch.bool:
        return one != (other != 0)
    if not other.is_floating_point():
        return one != other.to(one.dtype)  # wraps around
    nearest = other.round()
    is_near = (other - nearest).abs() <= OFF_BY_FUNCTIONS * rounding_unit(other.dtype) * other.abs()
    other = torch.where(is_near, nearest, other)
    held = other.abs() < WHOLE
    return held & ((torch.where(held, other, 0.0).to(torch.int64).to(one.dtype) != one) | (other != other.trunc()))


@dataclass(frozen=True)
class Deviation:
    """Results that are off by more than is allowed: single entries, or tensors that are off by a factor."""

    exact: Exact
    values: Tensor
    """The coordinates and lengths of the results, of shape (N + number of tensors,), as those of `exact`."""
    allowed: Tensor
    wrong: Tensor
    """A mask of the coordinates and lengths that are wrong, of the same shape."""
    got: Tensors
    names: Sequence[str]

    @cached_property
    def error(self) -> Tensor:
        """How far the coordinates and lengths are off, of the same shape."""
        return (self.values - self.exact.value).abs()

    @cached_property
    def excess(self) -> Tensor:
        """The errors of those that are wrong, as multiples of what is allowed, and -1 for others, of the same shape."""
        return torch.where(self.wrong, self.error / self.allowed, -1.0).nan_to_num(nan=float("inf"))

    @property
    def times(self) -> float:
        """The largest error, as a multiple of what is allowed."""
        return float(self.excess.max())

    def headline(self) -> str:
        """Return what is wrong in one line: the worst entry, or else the worst factor."""
        entries = self.excess[: self.exact.count]
        if not bool((entries > 0).any()):
            return self.factor(int(self.excess.argmax()))
        at = int(entries.argmax())
        if not float(self.allowed[at]):
            return f"{self.place(at)} is {float(self.values[at]):.17g}, not {float(self.exact.value[at]):.17g}"
        return f"{self.place(at)} is off by {float(self.error[at]):.2g}, {float(entries[at]):.3g} times what is allowed"

    def lines(self) -> list[str]:
        """Return lines about the first wrong entries, their number, and the tensors that are off by a factor."""
        entries = self.wrong[: self.exact.count].nonzero().flatten().tolist()
        lines = [
            f"{self.place(at)} is {float(self.values[at]):.6g}, not {float(self.exact.value[at]):.6g}; "
            f"allowed: {float(self.allowed[at]):.2g}"
            for at in entries[:SHOWN]
        ]
        if entries:
            lines.append(f"{len(entries):,} of {self.exact.count:,} entries are wrong by themselves")
        return lines + self.factors()

    def factors(self) -> list[str]:
        """Return a line for each tensor that is off as a whole, with its factor."""
        return [self.factor(at) for at in range(self.exact.count, len(self.values)) if self.wrong[at]]

    def factor(self, at: int) -> str:
        """Return by which factor a tensor is off as a whole."""
        got, right, allowed = (float(part[at]) for part in (self.values, self.exact.value, self.allowed))
        name = self.names[at - self.exact.count]
        factor = f"{got / right:.4g}" if abs(got / right - 1) > 1e-3 else f"{got / right:.8g}"  # not "1 times"
        return f"{name} as a whole is {factor} times what it should be; allowed: 1 +- {allowed / right:.2g}"

    def place(self, at: int) -> str:
        """Return the label of an entry in messages, such as `the gradient of weight[2, 0]`."""
        return labels([at], self.got, self.names)[0]
