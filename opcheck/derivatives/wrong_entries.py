"""Describes a failed comparison of Jacobians: which entries are wrong, or which inputs lie on a kink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from opcheck.derivatives.autodiff import Mode, layers
from opcheck.derivatives.comparison import UNIT_OF_SINGLE, Comparison
from opcheck.derivatives.coordinates import labels, located, vector
from opcheck.derivatives.diagnosis import Seen, diagnose
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.directions import Colors
from opcheck.derivatives.disagreement import Disagreement, Entry, Finding, Mismatch, Names, Pair
from opcheck.derivatives.point import Point
from opcheck.derivatives.tolerances import Numbers
from opcheck.derivatives.uncertainty import excess, largest
from opcheck.text import with_more

NAMED = 5
"""The number of wrong entries that a message names."""
OF_ONE = ("random", "zero", "second_order_lost", "torchscript", "sign", "conjugated", "factor")
"""The kinds of findings that hold for the whole operator if they hold for one slice."""
LEAK = "a leak between slices: this output does not depend on this input, so that the derivative should be zero"
HOW = 'to find the wrong entries, use a smaller sample, or jacobian = "full"'
KINK = "the function has a kink or a jump {}: one-sided differences disagree"
ERRATIC = """the function has no derivative here: its values jump from point to point, however near
use other numbers or sizes, such as those of a matrix of full rank"""
EDGE = "the domain of the function ends within a step ({:g}) of the sample"
UNDEFINED = """the function itself is nan at the sample, in {:,} of {:,} entries, as at {}
state numbers in its domain (low, high, exclude); if it is meant to be nan, write outputs = {{ apply = "finite" }}"""
OF_COARSE = "at least some values have only {} precision, too little for finite differences with step {:g}"
IN_COARSE = "values in {} are too coarse for finite differences with step {:g}"
TOO_LARGE = """values as large as {:.2g} are rounded by more than differences may be off, with any step
use numbers for which outputs, and what they are computed from, are smaller"""
NOT_LINEAR: dict[Mode, str] = {
    "reverse": "backward pass is not linear in the cotangent",
    "forward": "jvp is not linear in the tangent",
}


def explain(entries: Comparison) -> Disagreement | None:
    """Return the disagreement with its wrong entries, or with the inputs at a kink; None if no entry is wrong."""
    if dtype := entries.coarse_dtype:
        return Disagreement(OF_COARSE.format(dtype, entries.numbers.eps), "coarse")
    if entries.is_too_coarse:
        name = str(entries.point.coarsest).removeprefix("torch.")
        if entries.point.unit > UNIT_OF_SINGLE:
            return Disagreement(IN_COARSE.format(name, entries.numbers.eps), "coarse")
        return Disagreement(TOO_LARGE.format(largest(entries.point.value)), "inconclusive")
    if (undefined := _undefined(entries)) is not None:
        return undefined
    if (beyond := _beyond_domain(entries)) is not None:
        return beyond
    if bool(entries.kinky.any()) and not bool((entries.wrong & ~entries.at_kink).any()):
        return _at_kink(entries)
    if entries.is_erratic:
        random = Seen.of(entries.point, entries.mode).random
        return Disagreement(random) if random else Disagreement(ERRATIC, "inconclusive")
    if isinstance(entries.directions, Colors):
        return _of_slices(entries, entries.directions)
    return _of_products(entries) if entries.is_projected else _of_whole(entries)


def _undefined(entries: Comparison) -> Disagreement | None:
    """Return that a function is NaN at the sample itself, if that explains all wrong entries; else None.

    Slices and products are not tested, since they may mix outputs.
    """
    point = entries.point
    derived = point.value.isnan()
    if point.directions.extent != "full" or not bool(derived.any()):
        return None
    defined = entries.wrong & ~entries.analytical.isnan()  # 0 times nan is nan, too
    primal, leaves = layers(point.function, point.leaves)[0]
    outputs = primal(*leaves)
    undefined = vector(outputs).isnan()
    if bool((defined.any(dim=1) & ~derived).any()) or not bool(undefined.any()):
        return None
    (place,) = labels([int(undefined.int().argmax())], outputs, Names.of(primal, leaves).outputs)
    return Disagreement(UNDEFINED.format(int(undefined.sum()), undefined.numel(), place), "inconclusive")


def _beyond_domain(entries: Comparison) -> Disagreement | None:
    """Return that the domain of a function ends within a step of the sample, if that explains all wrong entries.

    There, the function is finite at the sample and not within a step of it, and the derivative is not NaN.
    """
    point = entries.point
    if point.directions.extent != "full":
        return None
    outside = ~entries.numerical.isfinite() & point.value.isfinite().unsqueeze(1) & ~entries.analytical.isnan()
    if not bool((entries.wrong & outside).any()) or bool((entries.wrong & ~outside).any()):
        return None
    away = f"\nmove the sample away from {_inputs(entries, outside)}"
    return Disagreement(EDGE.format(entries.numbers.eps) + away, "inconclusive")


def _inputs(entries: Comparison, mask: Tensor) -> str:
    """Return the inputs in which a mask of the shape of the numerical Jacobian is true, with their values, as text."""
    point, columns = entries.point, entries.point.directions.inputs_of(mask)
    named = zip(columns[:8], labels(columns[:8], point.leaves, point.names.leaves), strict=True)
    return with_more([f"{name} = {float(point.coordinates[column]):.8g}" for column, name in named], len(columns))


def not_linear(point: Point, mode: Mode, how: str) -> Disagreement:
    """Return that a derivative is right for each direction, but not linear. how: the error, and for which vectors."""
    each = {"full": "unit vector", "structured": "direction", "projected": "random direction"}[point.directions.extent]
    random = Seen.of(point, mode).random
    return Disagreement(random or f"the {NOT_LINEAR[mode]}: right for each {each}, {how}")


def _at_kink(entries: Comparison) -> Disagreement:
    if random := Seen.of(entries.point, entries.mode).random:
        return Disagreement(random)
    places = _inputs(entries, entries.kinky)
    away = f"\nmove the sample away from {places}" if places else ""
    text = KINK.format("here, and no derivative" if places else "near here") + away
    mismatch = pair_of(entries).mismatch() if entries.point.directions.extent == "full" else None
    return Disagreement(text, "inconclusive", mismatch, agrees=not bool(entries.wrong.any()))


def pair_of(entries: Comparison, excess: Tensor | None = None) -> Pair:
    """Return both Jacobians of a comparison. excess: by how much entries are wrong. Default: `entries.beyond`."""
    point, excess = entries.point, entries.beyond if excess is None else excess
    return Pair(entries.numerical, entries.analytical, excess, point.outputs, point.leaves, point.names)


def _numbers_to_diagnose(entries: Comparison) -> Numbers:
    """Return the tolerances for a diagnosis.

    A derivative as small as atol looks like zero, so that atol is reduced if all wrong entries are below it.
    """
    if not entries.below_atol:
        return entries.numbers
    return replace(entries.numbers, atol=min(entries.numbers.atol, 1e-3 * float(entries.numerical.abs().max())))


def _of_whole(entries: Comparison) -> Disagreement:
    pair = pair_of(entries)
    findings = diagnose(pair, _numbers_to_diagnose(entries), Seen.of(entries.point, entries.mode))
    return Disagreement.of_entries(pair.mismatch(), pair.worst(), findings, pair, below_atol=entries.below_atol)


def _of_products(entries: Comparison) -> Disagreement:
    a, n, point, wrong = entries.analytical, entries.numerical, entries.point, entries.wrong
    row, column = divmod(int(entries.beyond.argmax()), n.shape[1])
    numbers = f"is {float(n[row, column]):.8g} numerically, {float(a[row, column]):.8g} analytically, for random"
    how = Seen.of(point, entries.mode).random or HOW
    if entries.mode == "reverse":
        return Disagreement(
            f"v J u {numbers} directions {row} and {column}\n{int(wrong.sum())} of {wrong.numel()} such projections of "
            f"a Jacobian of shape {tuple(point.size)} differ\n{how}"
        )
    (place,) = labels([row], point.outputs, point.names.outputs)
    return Disagreement(
        f"J u at {place} {numbers} direction {column}\n{int(wrong.any(dim=1).sum())} of {len(wrong)} entries of such "
        f"products differ\n{how}"
    )


# A wrong product shows only that some entry of its sum is wrong: one within a slice, or a leak between two slices.


def _of_slices(entries: Comparison, colors: Colors) -> Disagreement | None:
    search = Search(entries, colors)
    ranked = torch.where(entries.at_kink, 0.0, entries.beyond).flatten()
    slots = [slot for slot in ranked.argsort(descending=True)[: 2 * NAMED].tolist() if ranked[slot] > 0]
    off, width = (entries.analytical - entries.numerical).abs(), entries.analytical.shape[1]
    known: dict[tuple[int, int], Entry] = {}
    culprits: dict[tuple[int, int], Entry] = {}
    for slot in slots:
        place, least = search.culprit(slot // width, slot % width, float(off.flatten()[slot]))
        if place is not None and place not in known and len(culprits) < NAMED:
            entry = known[place] = search.entry(*place)
            if not abs(entry.analytical - entry.numerical) < least / 4:  # weights are less than 2
                culprits[place] = entry
    if not culprits:
        return not_linear(entries.point, entries.mode, "wrong for sums of them") if known else None
    worst = _one_of_each(culprits.values())
    place = next(place for place, entry in culprits.items() if entry is worst[0])
    seen, numbers = Seen.of(entries.point, entries.mode), _numbers_to_diagnose(entries)
    pair = search.slice_around(*place, worst[0], numbers)
    mismatch = Mismatch(worst[0], 0, 0, 1, 1, LEAK) if pair is None else pair.mismatch()
    assert mismatch is not None
    findings = [Finding("random", seen.random, worst[0].output, worst[0].leaf, {})] if seen.random else []
    if pair is not None:
        findings = [finding for finding in diagnose(pair, numbers, seen) if finding.kind in OF_ONE]
    columns = colors.columns_of(entries.mode)
    own = entries.wrong[:, [located(n, columns)[0] == worst[0].leaf for n in range(width)]]
    mismatch = replace(mismatch, worst=worst[0], wrong=int(own.sum()), entries=own.numel())
    return Disagreement.of_entries(mismatch, worst, findings, pair, below_atol=entries.below_atol)


def _one_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """Return the worst entries first; for an element of a complex leaf, only the worse part."""
    first: dict[tuple[object, ...], Entry] = {}
    for entry in sorted(entries, key=lambda entry: -abs(entry.analytical - entry.numerical)):
        first.setdefault((entry.output, entry.leaf, entry.output_index, entry.output_part, entry.leaf_index), entry)
    return list(first.values())


class Search:
    """Searches for wrong entries of a block-diagonal Jacobian, by ordinary calls."""

    def __init__(self, comparison: Comparison, colors: Colors) -> None:
        self.point, self.mode, self.step = comparison.point, comparison.mode, comparison.numbers.eps
        self.colors, self.names = colors, comparison.point.names

    def culprit(self, row: int, column: int, least: float) -> tuple[tuple[int, int] | None, float]:
        """Return the output and input coordinates of an entry that makes a product wrong, or None.

        Also return the error that this entry causes. least: the error of the whole product.
        """
        colors, point = self.colors, self.point
        if self.mode == "reverse":
            likely = (colors.columns[:, colors.of_inputs.colors[column]] == column).double()
            entries = self._moved(_unit(point.size[1], column))
            culprit, error = _narrowed(
                lambda v: point.product("reverse", v)[column] - v @ entries, colors.cotangents[row], likely, least / 2
            )
            return None if culprit is None else (culprit, column), error
        likely = torch.zeros(point.size[1], dtype=torch.float64, device="cpu")
        likely[colors.columns[row, column]] = 1
        culprit, error = _narrowed(
            lambda u: point.product("forward", u)[row] - self._moved(u)[row], colors.tangents[column], likely, least / 4
        )
        return None if culprit is None else (row, culprit), error

    def entry(self, row: int, column: int) -> Entry:
        """Return an entry of the Jacobian, computed numerically and by the mode with ordinary calls."""
        slopes, analytical = entry_of(self.point, self.mode, row, column, self.step)
        numbers = float(slopes.jacobian[row, 0]), float(analytical)
        return self.names.entry(row, column, *numbers, self.point.outputs, self.point.leaves)

    def slice_around(self, row: int, column: int, worst: Entry, numbers: Numbers) -> Pair | None:
        """Return both Jacobians of the slice of an entry; None if its output and its input are in different slices."""
        point, of_outputs, of_inputs = self.point, self.colors.of_outputs, self.colors.of_inputs
        number = int(of_outputs.slices[row])
        rows, columns = of_outputs.places[number], of_inputs.places[number]
        if column not in columns.tolist():
            return None
        n = point.numerical(self.step).jacobian[rows]
        if self.mode == "reverse":
            a = point.products("reverse", _units(point.size[0], rows))[:, columns]
        else:
            a = point.products("forward", _units(point.size[1], columns))[:, rows].T
        beyond = excess(a, n, self.colors.columns_of("forward"), numbers)
        beyond[int((rows == row).nonzero()), int((columns == column).nonzero())] = float("inf")  # named first
        places = [worst.output_index[dim] for dim in of_outputs.dims[worst.output] if dim is not None]
        outputs = [_narrow(y, own, places) for y, own in zip(point.outputs, of_outputs.dims, strict=True)]
        leaves = [_narrow(x, own, places) for x, own in zip(point.leaves, of_inputs.dims, strict=True)]
        called = labels(rows.tolist(), point.outputs), labels(columns.tolist(), point.leaves)
        return Pair(n, a, beyond, outputs, leaves, self.names, *called)

    def _moved(self, direction: Tensor) -> Tensor:
        """Return the central difference along a direction, of shape (M,)."""
        return self.point.looped_differences(direction.unsqueeze(0), self.step).jacobian[:, 0]


def entry_of(point: Point, mode: Mode, row: int, column: int, step: float) -> tuple[Differences, Tensor]:
    """Return the differences with respect to an input, of shape (M, 1), and an entry by a mode, with ordinary calls."""
    tangent = _unit(point.size[1], column)
    slopes = point.looped_differences(tangent.unsqueeze(0), step)
    if mode == "forward":
        return slopes, point.product(mode, tangent)[row]
    return slopes, point.product(mode, _unit(point.size[0], row))[column]


def _units(size: int, coordinates: Tensor) -> Tensor:
    """Return unit vectors as rows."""
    return functional.one_hot(coordinates, size).to(torch.float64)


def _unit(size: int, coordinate: int) -> Tensor:
    return _units(size, torch.tensor(coordinate, device="cpu"))


def _narrowed(
    error: Callable[[Tensor], Tensor], direction: Tensor, likely: Tensor, least: float
) -> tuple[int | None, float]:
    """Return the coordinate of a direction that causes most of an error, and the error it causes.

    Bisects the direction. The coordinate is None if there is no error of `least`. likely: ones for the coordinates to
    try first.
    """

    def off(along: Tensor) -> float:
        return float(error(along).abs().nan_to_num(nan=float("inf")))

    def of(part: Tensor) -> float:
        return off(torch.zeros_like(direction).index_copy(0, part, direction[part]))

    if not off(direction) >= least:
        return None, 0.0
    own = direction * likely
    left = (own if off(own) >= least else direction * (1 - likely)).nonzero().flatten()
    while len(left) > 1:
        left = max(left.tensor_split(2), key=of)
    return (int(left[0]), of(left)) if len(left) else (None, 0.0)


def _narrow(tensor: Tensor, dims: Sequence[int | None], places: Sequence[int]) -> Tensor:
    """Return one slice of a tensor along some dims, which stay as dims of size 1."""
    for dim, place in zip(dims, places, strict=True):
        tensor = tensor if dim is None else tensor.narrow(dim, place, 1)
    return tensor.detach()
