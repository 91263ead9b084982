"""Compares all entries of a block-diagonal Jacobian, and names those that are wrong, by ordinary calls for each.

What few directions object to may be of any entry that they add up: one of the slice itself, or one that leaks from
another slice. Halving the direction again and again finds it. Where no single entry is wrong, the function is not
independent after all, and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.compressed import Compressed, Sides
from opcheck.derivatives.coordinates import labels, located, split
from opcheck.derivatives.diagnosis import Seen, diagnose
from opcheck.derivatives.disagreement import Disagreement, Entry, Finding, Mismatch, Names, Pair
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.precision import (
    CERTAIN,
    explained_by_rounding,
    kinks_beyond_rounding,
    least_below_atol,
    wrong_below_atol,
)
from opcheck.derivatives.question import Numbers, Request
from opcheck.derivatives.rule import ACCURATE, NOT_LINEAR, allowed, at_kink, beyond_bound, excess

NAMED = 5
"""How many wrong entries are named."""
OF_ONE = ("random", "zero", "second_order_lost", "torchscript", "sign", "conjugated", "factor")
"""Diagnoses that hold for an operator if they hold for one slice."""
LEAK = "a leak: output and input are of different slices, which the function keeps apart"


class NotIndependent(Exception):
    """What few directions object to is no entry's fault: the function is not independent along the axes found."""


@dataclass(frozen=True)
class Objection:
    """Which entries of a mode's Jacobian are wrong, as masks of its form."""

    sides: Sides
    beyond: Tensor
    """By how much they exceed their tolerance."""
    wrong: Tensor
    small: Tensor
    """Those that are wrong although they are below `atol`."""
    kinky: Tensor
    """Where the function has a kink, in the form of `Pattern.columns`."""
    at_kink: Tensor
    """The same in the form of the mode."""
    linear: bool

    @property
    def any(self) -> bool:
        """Whether there is anything to object to."""
        return bool(self.wrong.any()) or bool(self.kinky.any()) or not self.linear


def contradiction_in_slices(
    evidence: Evidence, compressed: Compressed, mode: Mode, request: Request
) -> Disagreement | None:
    """Return where the Jacobian by a mode contradicts the numerical one, or None if it does not.

    Raises NotIndependent if no entry is at fault.
    """
    numbers = request.numbers
    sides, numerical = compressed.sides(mode), compressed.numerical(numbers.eps)
    if _is_close(sides, evidence.unit, numbers) and numerical.most_bend <= numbers.atol:
        return None  # as almost always
    for looped in (False, True):  # what the batch objects to is confirmed one by one
        found = _objection(evidence, compressed, mode, numbers, looped)
        if not found.any:
            return None
    names = Names.of(evidence.function, request)
    if bool(found.kinky.any()) and not bool((found.wrong & ~found.at_kink).any()):
        columns = sorted({*compressed.pattern.columns[found.kinky].tolist()})
        text = at_kink(columns, evidence.point, evidence.leaves, names.leaves)
        return Disagreement(text, "inconclusive", agrees=not bool(found.wrong.any()))
    if bool(found.wrong.any()):
        return _named(evidence, compressed, mode, request, found)
    how = f"right for each direction, off by {float(found.sides.off.max()):.4g} for their sum"
    return _not_linear(evidence, mode, how)


def _not_linear(evidence: Evidence, mode: Mode, how: str) -> Disagreement:
    return Disagreement(Seen.of(evidence, mode).random or f"the {NOT_LINEAR[mode]}: {how}")


def _is_close(sides: Sides, unit: float, numbers: Numbers) -> bool:
    """Tell whether no rule can object: two Jacobians differ by hardly more than differences must."""
    fine = sides.at(numbers.eps)
    off, least = (sides.analytical - fine.jacobian).abs_(), min(ACCURATE, numbers.atol, least_below_atol(numbers))
    most = float(off.max())
    if not most <= least and most <= numbers.atol:  # a sum of many numbers has more rounding
        most = float(off.sub_(fine.rounding(unit), alpha=CERTAIN).max())
    return most <= least and _is_linear(sides, 1e4 * unit)


def _is_linear(sides: Sides, rounding: float) -> bool:
    return bool((sides.off <= rounding * (1 + sides.scale.max())).all()) if sides.off.numel() else True


def _objection(evidence: Evidence, compressed: Compressed, mode: Mode, numbers: Numbers, looped: bool) -> Objection:
    sides, numerical = compressed.sides(mode, looped=looped), compressed.numerical(numbers.eps, looped=looped)
    fine = sides.at(numbers.eps).jacobian
    beyond = excess(sides.analytical, fine, sides.leaves, numbers)
    beyond[explained_by_rounding(sides.analytical, sides.at, evidence, numbers, sides.leaves)] = 0.0
    wrong = beyond > 0
    bound = allowed(numerical.jacobian, compressed.pattern.slice_leaves, numbers)
    kinky = at_it = torch.zeros(1, 1, dtype=torch.bool)
    if bool((numerical.bend.abs() > bound).any()) or bool(wrong.any()):
        kinky = kinks_beyond_rounding(partial(compressed.numerical, looped=looped), numbers, bound, evidence.unit)
        at_it = kinky if mode == "forward" else compressed.gathered(kinky.double()) != 0
    small = torch.zeros_like(wrong)
    if not bool((wrong & ~at_it).any()):  # else it is wrong anyway
        small = wrong_below_atol(sides.analytical, sides.at, evidence, numbers, sides.leaves) & ~wrong
    beyond = torch.where(small, (sides.analytical - fine).abs(), beyond)
    bound_of_sum = numbers.atol + numbers.rtol * sides.scale
    linear = _is_linear(sides, 1e4 * evidence.unit) or (
        looped and not bool((beyond_bound(sides.off, bound_of_sum) > 0).any())
    )
    return Objection(sides, beyond, wrong | small, small, kinky, at_it, linear)


def _named(evidence: Evidence, compressed: Compressed, mode: Mode, request: Request, found: Objection) -> Disagreement:
    """Return the disagreement with the entries that are wrong. Raises NotIndependent if there are none."""
    numbers, names = request.numbers, Names.of(evidence.function, request)
    search = Search(evidence, compressed, mode, numbers)
    ranked = torch.where(found.at_kink, 0.0, found.beyond).flatten()
    slots = [slot for slot in ranked.argsort(descending=True)[: 2 * NAMED].tolist() if ranked[slot] > 0]
    off = (found.sides.analytical - found.sides.at(numbers.eps).jacobian).abs()
    width = off.shape[1]
    looked_at: dict[tuple[int, int], Entry] = {}
    culprits: dict[tuple[int, int], Entry] = {}
    for slot in slots:
        place, least = search.culprit(slot // width, slot % width, float(off.flatten()[slot]))
        if place is not None and place not in looked_at and len(culprits) < NAMED:
            entry = looked_at[place] = search.entry(*place, names)
            if not abs(entry.analytical - entry.numerical) < least / 4:  # weights are less than 2
                culprits[place] = entry
    if not culprits and looked_at:
        return _not_linear(evidence, mode, "right for each unit vector, wrong for others")
    if not culprits:
        raise NotIndependent
    worst = _one_of_each(culprits.values())
    row, column = next(place for place, entry in culprits.items() if entry is worst[0])
    mismatch, findings, pair = _around(search, row, column, worst[0], numbers, names)
    leaf = located(column, evidence.leaves)[0]
    own = found.wrong[:, [located(n, found.sides.leaves)[0] == leaf for n in range(width)]]
    result = Disagreement(
        "the Jacobians differ", "wrong", replace(mismatch, wrong=int(own.sum()), entries=own.numel()), findings,
        tuple(worst), pair, below_atol=not bool((found.wrong & ~found.small).any()),
    )  # fmt: skip
    return replace(result, text=result.shown())


def _one_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """Return the worst entries first; of an element of a complex leaf the worse part."""
    found: dict[tuple[object, ...], Entry] = {}
    for entry in sorted(entries, key=lambda entry: -abs(entry.analytical - entry.numerical)):
        found.setdefault((entry.output, entry.leaf, entry.output_index, entry.output_part, entry.leaf_index), entry)
    return list(found.values())


@dataclass(frozen=True)
class Search:
    """Looks for wrong entries, by ordinary calls."""

    evidence: Evidence
    compressed: Compressed
    mode: Mode
    numbers: Numbers

    def culprit(self, row: int, column: int, least: float) -> tuple[tuple[int, int] | None, float]:
        """Return an entry that makes a product of the mode wrong, by its output and input coordinates, or None.

        Also return by how much its part of the direction is off. least: by how much the whole product is.
        """
        pattern = self.compressed.pattern
        if self.mode == "reverse":
            direction = self.compressed.cotangents[row]
            own = (pattern.columns[:, pattern.groups[column]] == column).double()
            entries = self._column(column)
            off = self._off(lambda v: self.evidence.vjp(v)[column] - v @ entries)
            found, error = _narrowed(off, direction, own, least / 2)
            return None if found is None else (found, column), error
        direction = self.compressed.tangents[column]
        own = torch.zeros_like(direction)
        own[pattern.columns[row, column]] = 1
        off = self._off(lambda u: self.evidence.jvp(u)[row] - self._moved(u)[row])
        found, error = _narrowed(off, direction, own, least / 4)
        return None if found is None else (row, found), error

    def entry(self, row: int, column: int, names: Names) -> Entry:
        """Return an entry of the Jacobian, both sides by ordinary calls."""
        outputs, leaves = self.evidence.outputs, self.evidence.leaves
        (i, m), (j, n) = located(row, outputs), located(column, leaves)
        places = *split(m, outputs[i]), *split(n, leaves[j])
        numerical, analytical = float(self._column(column)[row]), float(self.analytical([row], [column]))
        return Entry(i, j, *places, numerical, analytical, names.outputs[i], names.leaves[j])

    def analytical(self, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
        """Return some rows and columns of the Jacobian by the mode, from unit directions."""
        size = self.evidence.size
        if self.mode == "reverse":
            return torch.stack([self.evidence.vjp(_unit(size[0], row))[columns] for row in rows])
        return torch.stack([self.evidence.jvp(_unit(size[1], column))[rows] for column in columns], 1)

    def _column(self, column: int) -> Tensor:
        return self._moved(_unit(self.evidence.size[1], column))

    def _moved(self, direction: Tensor) -> Tensor:
        """Return the central difference along a direction, of shape (M,)."""
        return self.evidence.looped_differences(direction.unsqueeze(0), self.numbers.eps).jacobian[:, 0]

    def _off(self, error: Callable[[Tensor], Tensor]) -> Callable[[Tensor], float]:
        return lambda direction: float(error(direction).abs().nan_to_num(nan=float("inf")))


def _unit(size: int, coordinate: int) -> Tensor:
    found = torch.zeros(size, dtype=torch.float64)
    found[coordinate] = 1
    return found


def _narrowed(off: Callable[[Tensor], float], direction: Tensor, own: Tensor, least: float) -> tuple[int | None, float]:
    """Return the coordinate of a direction that most of an error comes from, and what comes from it.

    It is None if there is no such error. own: ones where the error is most likely to be.
    """
    if not off(direction) >= least:
        return None, 0.0
    likely = direction * own
    left = (likely if off(likely) >= least else direction * (1 - own)).nonzero().flatten()

    def of(part: Tensor) -> float:
        return off(torch.zeros_like(direction).index_copy(0, part, direction[part]))

    while len(left) > 1:
        left = max(left.tensor_split(2), key=of)
    return (int(left[0]), of(left)) if len(left) else (None, 0.0)


def _around(
    search: Search, row: int, column: int, worst: Entry, numbers: Numbers, names: Names
) -> tuple[Mismatch, tuple[Finding, ...], Pair | None]:
    """Return both Jacobians of the slice of an entry as text, what is wrong with them, and both as they are."""
    evidence, compressed = search.evidence, search.compressed
    pattern = compressed.pattern
    rows = (pattern.slices == pattern.slices[row]).nonzero().flatten()
    columns = pattern.columns[row]
    seen = Seen.of(evidence, search.mode)
    if column not in columns.tolist():
        random = Finding("random", seen.random, worst.output, worst.leaf, {})
        return Mismatch(worst, 0, 0, 1, 1, LEAK), (random,) * bool(seen.random), None
    n = compressed.numerical(numbers.eps, looped=True).jacobian[rows]
    a = search.analytical(rows.tolist(), columns.tolist())
    beyond = excess(a, n, compressed.pattern.slice_leaves, numbers)
    here = int((rows == row).nonzero()), int((columns == column).nonzero())
    beyond[here] = float("inf")  # the entry that the text is about, also if it is below atol
    axes = pattern.axes
    places = [worst.output_index[axis.outputs[worst.output]] for axis in axes]
    outputs = [_narrow(y, [axis.outputs[k] for axis in axes], places) for k, y in enumerate(evidence.outputs)]
    leaves = [_narrow(x, [axis.leaves[k] for axis in axes], places) for k, x in enumerate(evidence.leaves)]
    called = labels(rows.tolist(), evidence.outputs), labels(columns.tolist(), evidence.leaves)
    pair = Pair(n, a, beyond, outputs, leaves, names, *called)
    mismatch = pair.mismatch()
    assert mismatch is not None
    findings = [finding for finding in diagnose(pair, numbers, seen) if finding.kind in OF_ONE]
    return replace(mismatch, worst=worst), tuple(findings), pair


def _narrow(tensor: Tensor, dims: Sequence[int | None], labels: Sequence[int]) -> Tensor:
    """Return one slice of a tensor along some dims, which stay as dims of size 1."""
    for dim, label in zip(dims, labels, strict=True):
        tensor = tensor if dim is None else tensor.narrow(dim, label, 1)
    return tensor.detach()
