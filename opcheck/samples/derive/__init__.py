"""Derives further samples from a written one: other sizes, ranks, values, keywords and memory layouts.

One property is varied at a time. A size that occurs several times in a sample changes everywhere at once. Bounds,
structures and explicit floating values are not changed, since the author of the spec chose them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from random import Random

from opcheck.samples.derive.change import Derived, Keywords, Others, Scope, is_free, with_one
from opcheck.samples.derive.keywords import by_keyword
from opcheck.samples.derive.layouts import by_layout
from opcheck.samples.derive.shrink import smallest
from opcheck.samples.derive.sizes import (
    TOGETHER,
    by_broadcast,
    by_emptiness,
    by_length,
    by_rank,
    by_size,
    resized,
    symbols,
)
from opcheck.samples.derive.values import by_dtype, by_integer, by_mask, by_value
from opcheck.spec.claims import WAYS, Way
from opcheck.spec.library import Sample
from opcheck.spec.recipe import SPARSE_LAYOUTS

__all__ = [
    "LARGEST", "SIZES", "Change", "Derived", "Keywords", "Scope", "derived", "enlarged", "in_turn", "lengthened",
    "room_of", "smallest", "squared",
]  # fmt: skip

SIZES = (1, 2, 16, 17, 33, 64, 128, 256, 257, 520, 1031)
"""Sizes on both sides of the block sizes of kernels, and of multiples of the length of vector instructions."""
LARGEST = 1 << 14
"""The maximum number of elements of all tensors of a derived sample, unless the written sample is larger."""
PAIRS = 200
"""The number of random pairs of variations, since all pairs would be too many."""

BY_WAY: dict[Way, Callable[[Sample, Scope], Iterator[Derived]]] = {
    "size": by_size,
    "empty": by_emptiness,
    "rank": by_rank,
    "broadcast": by_broadcast,
    "value": by_value,
    "integer": by_integer,
    "mask": by_mask,
    "layout": by_layout,
    "keyword": by_keyword,
    "dtype": by_dtype,
}
"""The function that varies samples in each way. Not in the table: "sum", see `lengthened`, `enlarged` and
low_precision_grad.
"""
UNMEANT = 'if such arguments are not meant, let the operator refuse them, or write vary = ["-{}"]'
REMEDIES: dict[Way, str] = {
    **{way: UNMEANT.format(way) for way in ("size", "empty", "rank", "broadcast", "keyword")},
    "value": "if such numbers are not meant, write low, high or exclude in the sample",
    "mask": 'if the tensor is not a mask, write vary = ["-mask"]',
}
"""What to write if an operator is not meant for the samples of a way that have no remedy of their own."""
LARGE = 300.0
"""A number in the range of float16, which ends at 65,504, and whose square is not."""


def derived(sample: Sample, scope: Scope, ways: Collection[Way] = WAYS) -> Iterator[Derived]:
    """Yield the samples derived from a written one. Repeated calls yield the same samples.

    Samples that are too large are replaced by smaller ones, or left out.

    ways: the ways to vary, out of those of the sample. The second variation of a pair is one of them, the first need
        not be.
    """
    if not ways or not all(recipe.layout in ("strided", *SPARSE_LAYOUTS) for recipe in sample.tensors):
        return
    scope = replace(scope, sizes=SIZES) if scope.is_thorough else scope
    varied = (way for way in sample.vary if way in BY_WAY and (scope.is_thorough or way in ways))
    ones = {way: [_advised(one, REMEDIES.get(way, "")) for one in BY_WAY[way](sample, scope)] for way in varied}
    wanted = [one for way, own in ones.items() if way in ways for one in own]
    pairs = _paired(sample, ones, scope, ways) if scope.is_thorough and wanted else ()
    for one in chain(wanted, pairs):
        yield from _within(one, room_of(sample))


def lengthened(sample: Sample) -> Iterator[Derived]:
    """Yield the samples derived from a written one in which one size is large, so that sums are long."""
    for one in by_length(sample) if _may_sum(sample) else ():
        yield from _within(one, room_of(sample))


def enlarged(sample: Sample) -> Iterator[Derived]:
    """Yield a written sample with large numbers in the first tensor whose numbers the spec does not specify.

    In one tensor alone, since products of several would exceed the range of float16 by themselves.
    """
    for recipe in [*filter(is_free, sample.tensors)][:1] if _may_sum(sample) else ():
        yield Derived(f"numbers about {LARGE:g}", with_one(sample, recipe, mean=LARGE, std=LARGE / 10))


def _may_sum(sample: Sample) -> bool:
    return "sum" in sample.vary and all(recipe.layout == "strided" for recipe in sample.tensors)


def squared(one: Derived) -> Iterator[Derived]:
    """Yield a derived sample with all sizes equal, so that code that confuses two dims does not raise.

    Not if it is too large, or if its sizes are equal already.
    """
    own = symbols(one.unnamed)
    if len(own) > 1:
        size = max(own)
        what = f"{one.what}, all sizes {size}"
        other = Derived(what, resized(one.unnamed, dict.fromkeys(own, size)), remedy=one.remedy)
        yield from _within(other, room_of(one.unnamed))


Change = tuple[Sample, Derived]
"""A written sample, and a sample derived from it."""


def in_turn(each: Sequence[Sequence[Change]], start: int = 0) -> list[list[Sequence[Change]]]:
    """Distribute changes among the written samples in turn, so that each change is applied to one sample.

    Return the share of each written sample: each of its changes, followed by the same change of other samples, to be
    tried if it is inconclusive.

    each: for each written sample, all its changes. `Derived.what` identifies a change.
    start: number of the written sample that gets the first change.
    """
    able: dict[str, list[tuple[int, Change]]] = {}
    for place, own in enumerate(each):
        for change in own:
            able.setdefault(change[1].what, []).append((place, change))
    turns: list[list[Sequence[Change]]] = [[] for _ in each]
    for number, those in enumerate(able.values(), start):
        turn = number % len(those)
        turned = [*those[turn:], *those[:turn]]
        turns[turned[0][0]].append([change for _, change in turned])
    return turns


def _advised(one: Derived, remedy: str) -> Derived:
    """Return a derived sample with a remedy, unless it has one, and likewise those to try in its place."""

    def advised(others: Others) -> Others:
        return lambda: (_advised(other, remedy) for other in others())

    return replace(one, remedy=one.remedy or remedy, apart=advised(one.apart), smaller=advised(one.smaller))


def _within(one: Derived, room: int) -> Iterator[Derived]:
    """Yield a sample if it has at most `room` elements, else smaller versions that do."""
    if one.unnamed.elements <= room:
        yield one
    else:
        for other in one.smaller():
            yield from _within(other, room)


def room_of(sample: Sample) -> int:
    """Return the maximum number of elements of a sample derived from `sample`."""
    return max(LARGEST, sample.elements)


def _paired(
    sample: Sample, ones: Mapping[Way, Sequence[Derived]], scope: Scope, ways: Collection[Way]
) -> Iterator[Derived]:
    together = replace(scope, sizes=TOGETHER)
    firsts = [one for own in ones.values() for one in own]
    seconds = [way for way, own in ones.items() if own]
    for number in range(PAIRS):
        draw = Random(f"{sample.name}, {number}")  # its own seed, so that pairs do not depend on the ways
        first, way = draw.choice(firsts), draw.choice(seconds)
        others = list(BY_WAY[way](first.unnamed, together)) if way in ways else []
        if others:
            second = draw.choice(others)
            yield Derived(f"{first.what}, {second.what}", second.unnamed, remedy=first.remedy)
