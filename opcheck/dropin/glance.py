"""The common case of `opcheck.gradcheck`: the few calls of a function that show whether its derivatives are right.

A glance tells that all is well, or that a derivative is wrong. It gives no reasons, and leaves to others what is unclear.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import (
    Differentiable,
    Primal,
    Pullback,
    Pushforward,
    Tensors,
    jvp,
    pushforward,
    transformed,
    vjp,
)
from opcheck.derivatives.batching import by_vmap, sweep
from opcheck.derivatives.coordinates import (
    deviation,
    largest_difference,
    modulus,
    parts,
    real_size,
    rows_of,
    same,
    tensors_of,
    vector,
)
from opcheck.derivatives.cotangents import probe, vectors_like, with_gaps
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.errors import CERTAIN, FULL, allowed, excess
from opcheck.derivatives.question import AUTO, Function, Numbers
from opcheck.dropin.memory import elements, kept

FEW_POINTS = 12
"""Up to how many coordinates are moved by single calls of a function. Above that, a batch takes less time."""
FEW_PULLBACKS = 3
"""The same where each call takes a backward pass."""
FEW_ROWS = 8
"""Up to how many backward passes, or calls in forward mode, take less time than a batch of them."""
ROUNDED = 1e4
"""By how many units of rounding two ways to the same derivative may differ."""
SMALL = 1e-3
"""The part of atol that differences may be off by."""

_untyped: Any = torch._C._functions  # what torch's gradcheck uses too: nothing public hands over an undefined cotangent


@dataclass(frozen=True)
class Claims:
    """What to check: the parameters of torch's gradcheck whose names begin with `check_`."""

    forward_ad: bool
    backward_ad: bool
    undefined_grad: bool
    grad_dtypes: bool
    batched_grad: bool
    batched_forward_grad: bool = False


def first_order(function: Function, values: Sequence[Any], numbers: Numbers, claims: Claims) -> bool | None:
    """Return True if all claims hold for a function of the leaves among some values, and False if a Jacobian is wrong.

    None if a glance cannot tell. The values are as before afterwards.
    """

    def look(base: Primal, leaves: Tensors, outputs: Tensors) -> bool | None:
        return Glance(base, leaves, outputs, numbers, claims, FEW_POINTS).verdict()

    return _look(function, values, (), look)


def second_order(
    function: Function, values: Sequence[Any], cotangents: Tensors | None, gaps: bool, numbers: Numbers, claims: Claims
) -> bool | None:
    """Return the same for the gradients of a function, as functions of the leaves and of the cotangents.

    cotangents: None for random ones, with gaps in memory if `gaps`. Those that do not require grad are constant.
    """

    def look(base: Primal, leaves: Tensors, outputs: Tensors) -> bool | None:
        vectors, fixed = cotangents, tuple[Tensor | None, ...]()
        if vectors is None:
            plain = vectors_like(outputs, 1)
            vectors = tuple((with_gaps(v) if gaps else v).requires_grad_() for v in plain)
        else:
            fixed = tuple(None if v.requires_grad else v for v in vectors)
        pullback, every = Pullback(base, len(leaves), fixed=fixed), (*leaves, *(v for v in vectors if v.requires_grad))
        return Glance(pullback, every, pullback(*every), numbers, claims, FEW_PULLBACKS).verdict()

    return _look(function, values, cotangents or (), look)


def _look(
    function: Function, values: Sequence[Any], others: Sequence[Any],
    look: Callable[[Primal, Tensors, Tensors], bool | None],
) -> bool | None:  # fmt: skip
    """Return what a look at the differentiable outputs tells; None if anything raises, or changes the values."""
    leaves = tuple(value for value in values if isinstance(value, Tensor) and value.requires_grad)
    with kept((*values, *others)) as memory:
        try:
            outputs = function(*leaves)
            chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
            if not chosen or memory.is_changed():
                return None
            verdict = look(Primal(function, chosen), leaves, tuple(outputs[index] for index in chosen))
            return None if memory.is_changed() else verdict
        except Exception:  # the full evidence meets it again, where it is reported
            return None


class Pass(NamedTuple):
    """Which tensors take part in a backward pass, or a call in forward mode, by number."""

    those: Collection[int]
    undefined: Collection[int] = ()
    """Those of them whose cotangents or tangents are undefined."""


class Passes(NamedTuple):
    """Backward passes, or calls in forward mode."""

    directions: Tensor
    """The cotangents or tangents of each, in real coordinates. What is undefined is zero."""
    each: tuple[Pass, ...]


@lru_cache(maxsize=256)
def backward_passes(sizes: tuple[int, ...], looped: bool, undefined: bool) -> Passes:
    """Return backward passes for outputs of some real sizes.

    If looped, one for each coordinate of an output alone. Then a random one, the same again, one for zeros, and one for
    each of several outputs alone. If `undefined`, those where all, each one, and all but one cotangent are undefined.
    """
    every = range(len(sizes))
    single = [[index] for index in every] if len(sizes) > 1 else []
    others = [[k for k in every if k != index] for (index,) in single]
    alone = single if not looped else []
    missing = [every, *single, *(others if len(sizes) > 2 else [])] if undefined else []
    direction = probe(sum(sizes))
    directions = [direction, direction, torch.zeros_like(direction)]
    directions += [_without(direction, sizes, own) for own in [*(others if alone else []), *missing]]
    each = [Pass(every)] * 3 + [Pass(own) for own in alone] + [Pass(every, own) for own in missing]
    return _with_units(directions, each, sizes, looped)


@lru_cache(maxsize=256)
def forward_passes(sizes: tuple[int, ...], looped: bool, undefined: bool) -> Passes:
    """Return calls in forward mode for leaves of some real sizes: of each coordinate if looped, and a random one.

    If `undefined`, those in which each of the leaves has no tangent.
    """
    every = range(len(sizes))
    missing = [[index] for index in every] if undefined else []
    direction = probe(sum(sizes))
    directions = [direction, *(_without(direction, sizes, own) for own in missing)]
    return _with_units(directions, [Pass(every), *(Pass(every, own) for own in missing)], sizes, looped)


def _without(direction: Tensor, sizes: Sequence[int], missing: Collection[int]) -> Tensor:
    pieces = parts(direction, sizes)
    return torch.cat([piece * 0 if index in missing else piece for index, piece in enumerate(pieces)])


def _with_units(directions: list[Tensor], each: list[Pass], sizes: Sequence[int], looped: bool) -> Passes:
    if looped:
        directions = [*torch.eye(sum(sizes), dtype=torch.float64), *directions]
        each = [*(Pass([index]) for index, size in enumerate(sizes) for _ in range(size)), *each]
    return Passes(torch.stack(directions), tuple(each))


@dataclass
class Glance:
    """A function at its leaves, its outputs there, with a graph, and what is claimed of its derivatives."""

    function: Differentiable
    leaves: Tensors
    outputs: Tensors
    numbers: Numbers
    claims: Claims
    few: int
    """Up to how many coordinates single calls move."""
    few_rows: int = FEW_ROWS
    """The same for directions of derivatives."""
    is_batched: bool = False
    """Whether any batch was used."""

    def __post_init__(self) -> None:
        self.of_outputs = tuple(map(real_size, self.outputs))
        self.of_leaves = tuple(map(real_size, self.leaves))
        self.size = sum(self.of_outputs), sum(self.of_leaves)
        self.unit = max(torch.finfo(leaf.dtype).eps for leaf in self.leaves)

    def verdict(self) -> bool | None:
        """Return True if all claims hold, False if a Jacobian is wrong, and None if neither is certain.

        Passes on the exceptions of the function and its derivatives.
        """
        if not 0 < min(self.size) <= max(self.size) <= AUTO.largest:
            return None
        verdict = self._verdict()
        if verdict is False and self.is_batched:  # confirmed one by one
            self.few, self.few_rows = AUTO.largest, AUTO.largest
            return self._verdict()
        return verdict

    def _verdict(self) -> bool | None:
        slopes = self._slopes()
        verdict = self._of_reverse(slopes) if self.claims.backward_ad else True
        return self._of_forward(slopes) if verdict and self.claims.forward_ad else verdict

    # differences

    def _slopes(self) -> Differences:
        size, values = self.size[1], None
        if size > self.few:
            values = self._values_of_copies()
            self.is_batched = values is not None
        if values is None:
            values = self._values_in_place()
        return Differences(values[:size], values[-1], values[size:-1], self.numbers.eps)

    def _values_in_place(self) -> Tensor:
        """Move the leaves themselves, as torch does: a function may read them in another way than as its arguments."""
        eps, size = self.numbers.eps, self.size[1]
        batches = [torch.empty((2 * size + 1, *y.shape), dtype=y.dtype, device=y.device) for y in self.outputs]
        rows = list(zip(*(batch.unbind() for batch in batches), strict=True))
        places = [place for leaf in self.leaves for place in elements(leaf.data)]
        for place, up, down in zip(places, rows, rows[size:], strict=False):
            number = place.item()
            place.fill_(number + eps)
            _copy(self.function(*self.leaves), up)
            place.fill_(number - eps)
            _copy(self.function(*self.leaves), down)
            place.fill_(number)
        _copy(self.outputs, rows[-1])
        return rows_of(batches, len(rows))

    def _values_of_copies(self) -> Tensor | None:
        """Return the same from a batch of copies; None if there is none, or it is about another function.

        One call on the leaves themselves, moved by a random step, tells.
        """
        size, eps = self.size[1], self.numbers.eps
        weights, steps = probe(size, 2), torch.eye(size, dtype=torch.float64).mul_(eps)
        one = weights * eps
        points = torch.cat([steps, -steps, one.unsqueeze(0)]).add_(vector(self.leaves))
        try:
            with _quiet():
                values = sweep(self.function, self.leaves, points, batch=len(points)).values
        except Exception:  # it cannot be batched
            return None
        with kept(self.leaves) as own:
            for memory, move in zip(own.memory, tensors_of(one, self.leaves), strict=True):
                memory.add_(move)
            moved = vector(self.function(*self.leaves))
        copied = values[-1]
        slope = weights.abs_() @ (values[:size] - values[size:-1]).abs_()
        if not bool(((moved - copied).abs_() <= slope.mul_(5e-7) + copied.abs().mul_(32 * self.unit)).all()):
            return None
        values[-1] = vector(self.outputs)
        return values

    # derivatives

    def _of_reverse(self, slopes: Differences) -> bool | None:
        outputs, claims, jacobian = self.outputs, self.claims, None
        if self.size[0] > self.few_rows or claims.batched_grad:
            jacobian = self._batched(
                lambda rows: by_vmap(lambda *v: vjp(outputs, self.leaves, v), rows, outputs, len(rows)),
                self.size[0], claims.batched_grad,
            )  # fmt: skip
        passes = backward_passes(self.of_outputs, jacobian is None, claims.undefined_grad)
        gradients = []
        for own, row in zip(passes.each, _rows(passes.directions, outputs), strict=True):
            chosen = [_undefined(outputs[k]) if k in own.undefined else outputs[k] for k in own.those]
            gradients.append(vjp(chosen, self.leaves, [row[k] for k in own.those]))
        if any(
            g.layout is not torch.strided or g.dtype != leaf.dtype
            for every in gradients for g, leaf in zip(every, self.leaves, strict=True)
        ):  # fmt: skip
            return None
        jacobian, products, directions = _split(gradients, passes.directions, jacobian)
        agrees = self._agrees(jacobian, slopes)
        is_linear = self._are_products(products, directions, jacobian) and not bool(products[2].any())
        if agrees and not (is_linear and deviation(products[0], products[1]) <= self.numbers.nondeterminism):
            return None
        return agrees

    def _of_forward(self, slopes: Differences) -> bool | None:
        points, claims, jacobian = tuple(leaf.detach() for leaf in self.leaves), self.claims, None
        if self.size[1] > self.few_rows or claims.batched_forward_grad:
            nested = Pushforward(transformed(self.function), transform=True)
            jacobian = self._batched(
                lambda rows: by_vmap(lambda *t: nested(*points, *t), rows, points, len(rows)),
                self.size[1], claims.batched_forward_grad,
            )  # fmt: skip
        passes, push = (
            forward_passes(self.of_leaves, jacobian is None, claims.undefined_grad),
            pushforward(self.function),
        )
        tangents = []
        for own, row in zip(passes.each, _rows(passes.directions, points), strict=True):
            if own.undefined:
                given = [None if k in own.undefined else t for k, t in enumerate(row)]
                tangents.append(jvp(self.function, points, given))
            else:
                tangents.append(push(*points, *(t.clone() for t in row)))  # some operators refuse views
        jacobian, products, directions = _split(tangents, passes.directions, jacobian)
        agrees = self._agrees(jacobian.T, slopes)
        return None if agrees and not self._are_products(products, directions, jacobian) else agrees

    def _batched(self, of: Callable[[Tensor], Tensor], size: int, is_claimed: bool) -> Tensor | None:
        """Return what `of` gives for unit vectors; None if it raises, unless it is claimed not to.

        A random direction among them shows whether they are mixed up.
        """
        direction = probe(size)
        try:
            with _quiet():
                every = of(torch.cat([torch.eye(size, dtype=torch.float64), direction.unsqueeze(0)]))
        except Exception:
            if is_claimed:
                raise
            return None
        if not self._are_products(every[-1], direction, every[:-1]):
            return None
        self.is_batched = True
        return every[:-1]

    def _agrees(self, jacobian: Tensor, slopes: Differences) -> bool | None:
        """Return True if a Jacobian is the numerical one, up to the error of differences, and False if it is another one.

        None if digits are missing, if the function has a kink, or if rounding may be what differs.
        """
        numbers, numerical = self.numbers, slopes.jacobian
        grid, least = CERTAIN * self.unit / numbers.eps, SMALL * numbers.atol
        if largest_difference(jacobian, numerical) <= min(grid / 2, least) and slopes.most_bend <= numbers.atol:
            return True  # as almost always
        rounding = slopes.rounding(CERTAIN * self.unit)
        beyond = excess(jacobian, numerical, self.leaves, numbers)
        if bool((beyond > modulus(rounding, self.leaves)).any()):
            return False
        off, size, farthest = (jacobian - numerical).abs(), numerical.abs(), float(vector(self.leaves).abs().max())
        has_digits = off <= FULL * float(size.max()) + grid * max(1.0, farthest)
        is_small = off <= rounding + least + numbers.rtol * size
        is_smooth = slopes.bend.abs() <= allowed(numerical, self.leaves, numbers)
        return True if bool((has_digits & is_small & is_smooth & (beyond == 0)).all()) else None

    def _are_products(self, products: Tensor, directions: Tensor, jacobian: Tensor) -> bool:
        """Tell whether derivatives along some directions are those of the Jacobian, up to rounding."""
        rounding = ROUNDED * self.unit
        return same(products, directions @ jacobian, rounding, rounding)


def _rows(directions: Tensor, like: Sequence[Tensor]) -> Iterator[Tensors]:
    """Yield each of some directions as tensors, in memory of its own."""
    return zip(*(own.unbind() for own in tensors_of(directions, like)), strict=True)


def _split(results: Sequence[Tensors], directions: Tensor, jacobian: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Jacobian, of which the first results are the rows if there is none yet, the others, their directions."""
    products = rows_of([torch.stack(own) for own in zip(*results, strict=True)], len(results))
    if jacobian is not None:
        return jacobian, products, directions
    count = directions.shape[1]
    return products[:count], products[count:], directions[count:]


def _copy(outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for output, target in zip(outputs, targets, strict=True):
        if output.shape != target.shape or output.dtype != target.dtype:
            raise ValueError("the outputs change where the inputs are moved")
        target.copy_(output.detach())


def unlike_zeros(gradient: Tensor, leaf: Tensor) -> str:
    """Return what torch says about a gradient for cotangents of zeros; empty if it is as it should be."""
    if gradient.layout is not torch.strided:
        return f"grad is incorrect layout ({gradient.layout} is not {leaf.layout})"
    if bool(gradient.any()):
        most = float(gradient.detach().abs().max())
        return f"backward not multiplied by grad_output\nfor cotangents of zeros it gives up to {most:.4g}"
    for what, own, expected in (
        ("type", gradient.dtype, leaf.dtype),
        ("device", gradient.device, leaf.device),
        ("size", gradient.shape, leaf.shape),
    ):
        if own != expected:
            return f"grad is incorrect {what}\nit has {own}, not {expected}"
    return ""


def _undefined(output: Tensor) -> Tensor:
    marked: Tensor = _untyped.UndefinedGrad()(output) if output.requires_grad else output
    return marked


@contextmanager
def _quiet() -> Iterator[None]:
    """Do without torch's remark that it has no batching rule for an operator."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet implemented")
        yield
