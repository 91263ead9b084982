"""How far results in a coarse dtype may be from the exact ones: the bound that docs/precision.md derives.

A sound computation in a dtype with the rounding unit u gives the exact result, rounded, of inputs that are off by a few
u. So its error is u |y| and a few u C, where C is the condition of the result y: how far y moves per relative change of
its inputs. C is measured, by moving the inputs of the exact computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.coordinates import vector
from opcheck.samples import Inputs

NUDGES = (2, 8)
"""How many times inputs are moved at random: at first, and where a result is then beyond the bound.

An entry that depends on a single input moves as far each time."""
ROUNDINGS = 5
"""How many times as far as one random rounding of each input moves a result it may be off. By Hoeffding's inequality,
a sum of independent roundings exceeds five times its standard deviation with a probability below 1e-5."""
HALF = 1e-4
"""The rounding unit of half precision is larger, that of single precision smaller."""

T = TypeVar("T")
Moved = Callable[[Tensor], Tensor]


def rounding_unit(dtype: torch.dtype) -> float:
    """Return the largest relative error of rounding to a dtype: half the distance from 1 to the next number."""
    return float(torch.finfo(dtype).eps) / 2


def nudges(unit: float, count: int) -> Iterator[Moved]:
    """Yield `count` functions that move each element of a tensor by a relative change of +-`unit`, at random.

    Elements that are zero stay so, and with them the structure of a matrix. Integers stay as they are, too. The
    signs are the same each time.
    """
    for number in range(count):
        generator = torch.Generator().manual_seed(number)

        def moved(tensor: Tensor, generator: torch.Generator = generator) -> Tensor:
            if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
                return tensor
            shape = tensor.shape if tensor.layout is torch.strided else ()  # a sparse tensor is scaled as a whole
            signs = 2 * torch.randint(2, shape, generator=generator, dtype=torch.float64) - 1
            factors = (1 + unit * signs).to(tensor.dtype).to(tensor.device)  # not every device has double precision
            return (tensor.detach() * factors).requires_grad_(tensor.requires_grad)

        yield moved


def moved_inputs(inputs: Inputs, move: Moved) -> Inputs:
    """Return the arguments of a sample with each tensor in them moved."""

    def changed(item: object) -> object:
        return move(item) if isinstance(item, Tensor) else item

    return replace(inputs.changed(changed), leaves=tuple(map(move, inputs.leaves)))


@dataclass(frozen=True)
class Exact:
    """An exact result with its condition: each real coordinate of its tensors, then the length of each tensor.

    The length is the product with a unit vector, in which rounding errors average out: it shows what is off by a
    factor.
    """

    value: Tensor
    """Of shape (N + number of tensors,), float64."""
    condition: Tensor
    """How far each of them moves if the inputs do, relative to how far these move, of the same shape."""
    units: tuple[Tensor, ...]
    """The unit vectors along the tensors; zero where one has entries that are not finite."""

    @classmethod
    def of(cls, result: Sequence[Tensor], others: Iterable[Sequence[Tensor]], unit: float) -> Exact:
        """Return a result with what it becomes for inputs that were moved by `unit`."""
        units = tuple(_unit_vector(vector((tensor,))) for tensor in result)
        value = _measured(result, units)
        condition = torch.zeros_like(value)
        for other in others:
            condition = torch.maximum(condition, (_measured(other, units) - value).abs() / unit)
        return cls(value, condition.nan_to_num(nan=float("inf")), units)

    def measured(self, result: Sequence[Tensor]) -> Tensor:
        """Return the coordinates of another result, and its products with the unit vectors."""
        return _measured(result, self.units)

    def allowed(self, dtype: torch.dtype, terms: int) -> Tensor:
        """Return the error that rounding to a dtype can cause, of shape (N,).

        terms: how many numbers go into the computation, for the worst case in single precision.
        """
        unit, info = rounding_unit(dtype), torch.finfo(dtype)
        # In single precision the worst case costs nothing: each term is rounded once for each of the others.
        times = 1 if unit > HALF else terms
        size = torch.maximum(self.value.abs(), self.condition)[: sum(map(len, self.units))]
        # Small entries come from differences of large ones, which are rounded too.
        largest = float(size.nan_to_num(0.0, 0.0, 0.0).max()) if size.numel() else 0.0
        least = ROUNDINGS * float(info.smallest_normal) * float(info.eps)
        return times * unit * (self.value.abs() + ROUNDINGS * self.condition + largest) + least

    def excused(self, got: Tensor, dtype: torch.dtype) -> Tensor:
        """Return where a result that is not finite is as it should be, as a mask of shape (N,)."""
        same = (got == self.value) | (got.isnan() & self.value.isnan())
        beyond = self.value.abs() * (1 + torch.finfo(dtype).eps) >= torch.finfo(dtype).max
        return same | (got.isinf() & (got.sign() == self.value.sign()) & beyond)


def _unit_vector(values: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(values)
    return values / length if bool(length.isfinite()) and bool(length > 0) else torch.zeros_like(values)


def _measured(result: Sequence[Tensor], units: Sequence[Tensor]) -> Tensor:
    parts = [vector((tensor,)) for tensor in result]
    lengths = [_along(part, unit) for part, unit in zip(parts, units, strict=True)]
    return torch.cat([*parts, *lengths]) if parts else torch.zeros(0, dtype=torch.float64)


def _along(values: Tensor, unit: Tensor) -> Tensor:
    """Return the product with a unit vector, of shape (1,); 0 for a vector that is zero, as where nothing is known."""
    return (values @ unit if bool(unit.any()) else values.new_zeros(())).reshape(1)


def tried(call: Callable[[], T]) -> T | None:
    """Return the result of a call; None if it raises, as where inputs have left what an operator accepts."""
    try:
        return call()
    except NO_REFUSAL:
        raise
    except Exception:
        return None
