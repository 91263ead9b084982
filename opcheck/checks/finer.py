"""Holds what an operator gives against what it gives in a finer dtype, or on the CPU, for the same numbers.

Rounding is excused: a few units of rounding of the largest element, and what rounding the arguments would do to the
result. Whole numbers have none. They wrap around where the dtype does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.rounding import moved_inputs
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.coordinates import index_text, split, vector
from opcheck.derivatives.cotangents import vectors_like
from opcheck.samples import Inputs, TestedFunction
from opcheck.spec.dtypes import finer_than

UNITS = {"half": 8, "single": 256}
"""How many units of rounding a result may be off by, and how many times the effect of rounding the arguments. In half
precision that is some percent; in single precision a wide margin costs nothing."""
NUDGES = 4
"""How often the arguments are rounded at random to see the effect."""
SINGLE = 1e-6
"""The rounding unit of half precision is larger, that of single precision smaller."""
WHOLE = 2.0**53
"""The least number above which float64 does not hold every whole number."""

Results = tuple[Tensor, ...]


@dataclass(frozen=True)
class Finer:
    """An operator at a sample, with the numbers of the case in a finer dtype, or on the CPU."""

    dtype: str
    inputs: Inputs
    function: TestedFunction
    unit: float
    """The rounding unit of the case; 0 if its dtype has none."""

    @classmethod
    def of(cls, subject: Subject) -> Finer | None:
        """Return the operator in the finest dtype claimed.

        None if no finer one is claimed, if the sample is not meant for it, or if the operator is random: its numbers
        depend on the dtype.
        """
        context = subject.context
        dtype = finer_than(context.case.dtype, context.case.claims.forward)
        if dtype is None or not subject.sample.goes_with(dtype) or subject.function.seed is not None:
            return None
        inputs = context.realize(subject.sample, finer=dtype)
        return cls(dtype, inputs, replace(subject.function, inputs=inputs), _unit(context.dtype))

    @classmethod
    def on_cpu(cls, subject: Subject) -> Finer:
        """Return the operator on the CPU, in the dtype of the case. Passes on the exceptions of making the sample."""
        context = subject.context.on_cpu
        inputs = context.realize(subject.sample)
        function = context.function(subject.sample, inputs)
        return cls(context.case.dtype, inputs, function, _unit(context.dtype))

    def contradicts(self, got: Results, names: Sequence[str], results: Callable[[Finer], Results]) -> str:
        """Return where results are off by more than rounding, in a line; an empty string if they are not.

        got: results in the dtype of the case, with their names; results: gives those in the finer one.
        """
        expected = results(self)
        if len(got) != len(expected):
            return f"{len(got)} results, not {len(expected)}"
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            if one.shape != other.shape:
                return f"{names[index]} has the shape {list(one.shape)}, not {list(other.shape)}"
            one, other = _dense(one), _dense(other)
            if _is_rounded(one, other):
                continue  # as usual
            unit = max(self.unit, _unit(one.dtype))
            off = _off(one, other, unit)
            if unit and bool(off.any()):
                # Small gradients come from differences of large ones.
                least = max(map(_largest, expected)) if unit < SINGLE else 0.0
                off = _off(one, other, unit, self._moved(results, index, other, unit), least)
            if bool(off.any()):
                return f"{names[index]}{_describe(one, other, off)}"
        return ""

    def _moved(self, results: Callable[[Finer], Results], index: int, expected: Tensor, unit: float) -> Tensor:
        """Return how far rounding the arguments moves the coordinates of a result, of shape (N,). NaN counts as far."""
        values = vector((expected,))
        most = torch.zeros_like(values)
        for number in range(NUDGES):
            inputs = _nudged(self.inputs, unit, number)
            try:
                other = results(replace(self, inputs=inputs, function=replace(self.function, inputs=inputs)))[index]
            except NO_REFUSAL:
                raise
            except Exception:
                continue  # outside of what the operator accepts
            moved = (vector((other,)) - values).abs().nan_to_num(nan=float("inf"))
            most = torch.maximum(most, moved)
        return most


def _nudged(inputs: Inputs, unit: float, number: int) -> Inputs:
    """Return arguments moved at random by the rounding unit of their largest element. Sparse ones stay as they are."""

    def moved(tensor: Tensor) -> Tensor:
        if not _is_number(tensor) or tensor.layout is not torch.strided or not tensor.numel():
            return tensor
        values = tensor.detach()
        (noise,) = vectors_like((values,), number)
        return (values + unit * _largest(values) * noise).requires_grad_(tensor.requires_grad)

    return moved_inputs(inputs, moved)


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _unit(dtype: torch.dtype) -> float:
    """Return the rounding unit of a dtype; 0 if it has none."""
    return torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0


def _dense(result: Tensor) -> Tensor:
    """Return a result as a strided tensor on the CPU."""
    return (result.detach() if result.layout is torch.strided else result.detach().to_dense()).cpu()


def _is_rounded(one: Tensor, other: Tensor) -> bool:
    """Tell whether a result is the expected one, rounded to its dtype."""
    known = _is_number(one) and _is_number(other) and one.dtype is not torch.complex32  # which torch cannot compare
    return known and torch.equal(one, other.to(one.dtype))


def _largest(result: Tensor) -> float:
    """Return the largest finite modulus of a coordinate; 0 if there is none."""
    size = vector((result,)).abs()
    return float(size.nan_to_num(0.0, 0.0, 0.0).max()) if size.numel() else 0.0


def _off(one: Tensor, other: Tensor, unit: float, moved: Tensor | None = None, least: float = 0.0) -> Tensor:
    """Return the coordinates at which a result is not the expected one, as a mask of shape (N,).

    moved: how far rounding the arguments moves them; None if that is not known.
    least: the least size that the result is taken to have.
    """
    if not _is_number(one):
        wrong = _not_whole(one, other).reshape(-1)
        return wrong if moved is None else wrong & (moved == 0)
    info = torch.finfo(one.dtype)
    got, expected = vector((one,)), vector((other,))
    if got.shape != expected.shape:
        return torch.ones(max(one.numel(), 1), dtype=torch.bool)  # one is complex, the other is not
    units = UNITS["single" if unit < SINGLE else "half"]
    admitted = units * (unit * max(least, _largest(other)) + info.tiny)
    excused = (got == expected) | (got.isnan() & expected.isnan())
    excused |= got.isinf() & (got.sign() == expected.sign()) & (expected.abs() * (1 + unit) >= info.max)
    return ~(excused | ((got - expected).abs() <= (admitted if moved is None else admitted + units * moved)))


def _not_whole(one: Tensor, other: Tensor) -> Tensor:
    """Return where whole numbers are not the expected ones, as a mask. float64 has no say about very large ones."""
    if one.dtype is torch.bool:
        return one != (other != 0)
    if not other.is_floating_point():
        return one != other.to(one.dtype)  # wraps around
    held = other.abs() < WHOLE
    return held & ((torch.where(held, other, 0.0).to(torch.int64).to(one.dtype) != one) | (other != other.trunc()))


def _describe(one: Tensor, other: Tensor, off: Tensor) -> str:
    """Return the first coordinate that is off, as in `[2, 0] is 0, not 0.25`."""
    if one.is_complex() != other.is_complex():
        return f" is {'complex' if one.is_complex() else 'real'}, and should not be"
    got, expected = vector((one,)), vector((other,))
    difference = torch.where(off, (got - expected).abs().nan_to_num(nan=float("inf")), -1.0)
    worst = int(difference.argmax())
    place = index_text(*split(worst, one))
    shown, true = _apart(float(got[worst]), float(expected[worst]))
    return f"{place} is {shown}, not {true}"


def _apart(one: float, other: float) -> tuple[str, str]:
    """Return two numbers as text, with as many digits as it takes to tell them apart."""
    texts = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in (6, 9, 12))
    return next((pair for pair in texts if pair[0] != pair[1]), (repr(one), repr(other)))


def values(finer: Finer) -> Results:
    """Return the outputs under test."""
    with torch.no_grad():
        return finer.function(*finer.inputs.leaves)


def cotangents_of(outputs: Sequence[Tensor]) -> Results:
    """Return random cotangents, the same ones each time; ones for outputs that are not strided."""
    if all(output.layout is torch.strided for output in outputs):
        return vectors_like(outputs)
    return tuple(torch.ones_like(output) for output in outputs)
