"""Derives further samples from a written one: other sizes, ranks, values, keywords and layouts of memory.

A size that occurs in a sample is one symbol, wherever it occurs. One respect is varied at a time. What a spec states is
the author's word: explicit values, bounds and structures stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from random import Random

from opcheck.samples.derive.change import Derived, Keywords, Scope
from opcheck.samples.derive.keywords import by_keyword
from opcheck.samples.derive.layouts import by_layout
from opcheck.samples.derive.shrink import smallest
from opcheck.samples.derive.sizes import (
    LONG,
    TOGETHER,
    by_broadcast,
    by_emptiness,
    by_length,
    by_rank,
    by_size,
    keeps_ties,
)
from opcheck.samples.derive.values import by_dtype, by_integer, by_mask, by_value
from opcheck.spec.claims import WAYS, Way
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction

__all__ = [
    "LARGEST", "SIZES", "Change", "Derived", "Keywords", "derived", "in_turn", "keeps_ties", "lengthened", "room_of",
    "smallest",
]  # fmt: skip

SIZES = (1, 2, 16, 17, 33, 64, 128, 256, 257, 520, 1031)
"""On both sides of the blocks that kernels work in, and of the multiples that vector instructions take."""
FEWER = (1, 17, 1031)
"""Those that are tried as a standard."""
LARGEST = 1 << 14
"""The most elements of all tensors of a derived sample, if it is not the written one that is larger."""
PAIRS = 200
"""How many pairs of variations are tried where all of them would be too many."""

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
"""How samples vary in a way; in coarse dtypes they do where rounding has a bound: see low_precision_grad."""


def derived(
    sample: Sample,
    call: Keywords,
    thorough: bool = False,
    ways: Collection[Way] = WAYS,
    module: Construction | None = None,
    constructor: Keywords | None = None,
    real: str = "",
) -> Iterator[Derived]:
    """Yield the samples derived from a written one, the same ones each time, but for those that are too large.

    call: the keywords that a call may have.
    thorough: whether there are more sizes and values, and pairs of variations, drawn by the name of the sample.
    ways: in which of the ways of the sample they vary, the second of a pair of variations or both.
    module: how it is constructed, if the operator is one.
    constructor: the keywords that its constructor may have, if these are to be varied, too.
    real: the real dtype that tensors may have, if that of the case is complex.
    """
    if not ways or not all(recipe.layout == "strided" for recipe in sample.tensors):
        return
    scope = Scope(SIZES if thorough else FEWER, call, module, constructor, thorough, real)
    varied = (way for way in sample.vary if way in BY_WAY and (thorough or way in ways))
    ones = {way: list(BY_WAY[way](sample, scope)) for way in varied}
    wanted = [one for way, own in ones.items() if way in ways for one in own]
    pairs = _paired(sample, ones, scope, ways) if thorough and wanted else ()
    room = room_of(sample)
    for one in chain(wanted, pairs):
        yield from _within(one, room)


def lengthened(sample: Sample) -> Iterator[Derived]:
    """Yield the samples derived from a written one in which one size is a large one, so that sums are long."""
    if "sum" in sample.vary and all(recipe.layout == "strided" for recipe in sample.tensors):
        for one in by_length(sample, Scope((LONG,), Keywords())):
            yield from _within(one, room_of(sample))


Change = tuple[Sample, Derived]
"""A written sample, and what was derived from it."""


def in_turn(each: Sequence[Sequence[Change]], start: int = 0) -> list[list[Sequence[Change]]]:
    """Share out what is derived from each written sample: a change that several can be made to is the turn of one.

    Return the changes of each sample, every one followed by the same change of the others, from the next one on. So a
    change is made once, and each sample is changed in several ways, whatever distinguishes it from the others.

    start: which of the samples begins.
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


def _within(one: Derived, room: int) -> Iterator[Derived]:
    """Yield a sample if it has no more than some number of elements, else smaller ones that have not."""
    if one.sample.elements <= room:
        yield one
    else:
        for other in one.smaller():
            yield from _within(other, room)


def room_of(sample: Sample) -> int:
    """Return the most elements that a sample derived from it may have."""
    return max(LARGEST, sample.elements)


def _paired(
    sample: Sample, ones: Mapping[Way, Sequence[Derived]], scope: Scope, ways: Collection[Way]
) -> Iterator[Derived]:
    together = replace(scope, sizes=TOGETHER)
    firsts = [one for own in ones.values() for one in own]
    seconds = [way for way, own in ones.items() if own]
    for number in range(PAIRS):
        draw = Random(f"{sample.name}, {number}")  # each by itself: the same, whichever ways are wanted
        first, way = draw.choice(firsts), draw.choice(seconds)
        others = list(BY_WAY[way](first.unnamed, together)) if way in ways else []
        if others:
            second = draw.choice(others)
            yield Derived(f"{first.what}, {second.what}", second.unnamed)
