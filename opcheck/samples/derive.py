"""Derives further samples from a written one: other sizes, ranks, keywords and layouts of memory.

A size that occurs in a sample is one symbol, wherever it occurs. One respect is varied at a time. What a spec states is
the author's word: explicit values, bounds and structures stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from random import Random
from typing import Any

from opcheck.spec.claims import Way
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor
from opcheck.spec.values import with_tensors

SIZES = (1, 2, 16, 17, 33, 64, 130, 520)
"""On both sides of the blocks that kernels work in, and of the multiples that vector instructions take."""
TOGETHER = (17, 33)
"""Where all sizes of a sample change at once, the first of them; the others are larger by one each."""
LARGEST = 1 << 14
"""The most elements of all tensors of a derived sample."""
UNVARIED = ("inplace", "out", "training", "train", "generator")
"""Keywords that say which operator it is, not what it computes."""

FEWER = (1, 17, 130)
"""Those that are tried as a standard."""
PAIRS = 200
"""How many pairs of variations are tried where all of them would be too many."""

Defaults = Mapping[str, Any]
"""The keywords that a call may have, with their defaults."""


@dataclass(frozen=True)
class Derived:
    """A sample that was derived from a written one."""

    what: str
    """What was varied, as in "size 3 -> 17"."""
    sample: Sample


def derived(sample: Sample, defaults: Defaults, thorough: bool = False) -> Iterator[Derived]:
    """Yield the samples derived from a written one, the same ones each time, but for those that are too large.

    thorough: whether there are more sizes, and pairs of variations, drawn by the name of the sample.
    """
    if not all(recipe.layout == "strided" for recipe in sample.tensors()):
        return
    ones = list(_varied(sample, defaults, SIZES if thorough else FEWER))
    pairs = _paired(sample, ones, defaults) if thorough and ones else ()
    for one in chain(ones, pairs):
        if sum(recipe.numel for recipe in one.sample.tensors()) <= LARGEST:
            yield replace(one, sample=replace(one.sample, name=f"{sample.name}~{one.what}"))


def _varied(sample: Sample, defaults: Defaults, sizes: Sequence[int]) -> Iterator[Derived]:
    ways: dict[Way, Iterator[Derived]] = {
        "size": _by_size(sample, sizes),
        "rank": _by_rank(sample),
        "broadcast": _by_broadcast(sample),
        "layout": _by_layout(sample),
        "keyword": _by_keyword(sample, defaults),
    }
    for way in sample.vary:
        yield from ways[way]


def _paired(sample: Sample, ones: Sequence[Derived], defaults: Defaults) -> Iterator[Derived]:
    draw = Random(sample.name)
    for _ in range(PAIRS):
        first = draw.choice(ones)
        seconds = list(_varied(first.sample, defaults, TOGETHER))
        if seconds:
            second = draw.choice(seconds)
            yield Derived(f"{first.what}, {second.what}", second.sample)


def smallest(one: Derived, written: Sample, look: Callable[[Sample], str], wrong: str) -> tuple[Sample, list[str]]:
    """Return a derived sample as small as it stays wrong, and what is known of its sizes, in words.

    Each size in turn is the smallest one that is wrong, and then keywords go that are not needed.

    look: says what a sample is like: `wrong`, "hold", or something else.
    """
    sample, words = one.sample, []
    for symbol in sorted(_symbols(sample), reverse=True):
        least = max((size for size in _symbols(written) if size <= symbol), default=1) if _has_indices(sample) else 1
        last = ""
        for size in range(least, symbol + 1):
            smaller = _resized(sample, {symbol: size})
            said = look(smaller) if size < symbol else wrong
            if said == wrong:
                sample = smaller
                words += [f"{size - 1} holds where {size} fails"] if last == "hold" and size > 2 else []
                break
            last = said
    for name in sample.kwargs:
        fewer = replace(sample, kwargs={key: value for key, value in sample.kwargs.items() if key != name})
        if look(fewer) == wrong:
            sample = fewer
    return sample, words


def _changed(sample: Sample, change: Callable[[Tensor], Tensor]) -> Sample:
    """Return a sample with a function applied to the recipes that have a shape. Explicit values stay."""

    def changed(recipe: Tensor) -> Tensor:
        return change(recipe) if recipe.shape is not None else recipe

    args, kwargs = with_tensors(sample.args, changed), with_tensors(sample.kwargs, changed)
    return replace(sample, args=args, kwargs=kwargs, grad_outputs=None)


def _shaped(recipe: Tensor, shape: tuple[int, ...]) -> Tensor:
    return recipe.model_copy(update={"shape": shape})


def _resized(sample: Sample, sizes: Mapping[int, int]) -> Sample:
    def resized(recipe: Tensor) -> Tensor:
        return _shaped(recipe, tuple(sizes.get(size, size) for size in recipe.sizes))

    return _changed(sample, resized)


def _symbols(sample: Sample) -> set[int]:
    """Return the sizes that are varied: those of tensors without explicit values, above 1."""
    return {size for recipe in sample.tensors() if recipe.shape is not None for size in recipe.sizes} - {0, 1}


def _has_indices(sample: Sample) -> bool:
    """Tell whether there are whole numbers, which may be indices: then no size gets smaller."""
    return any(recipe.dtype is not None or recipe.shape is None for recipe in sample.tensors())


def _by_size(sample: Sample, sizes: Sequence[int]) -> Iterator[Derived]:
    """Yield each size changed alone, then all of them changed to different odd ones."""
    symbols, grows = sorted(_symbols(sample)), _has_indices(sample)
    for symbol in symbols:
        for size in sizes:
            if size > symbol or (size < symbol and not grows):
                yield Derived(f"size {symbol} -> {size}", _resized(sample, {symbol: size}))
    for first in TOGETHER if len(symbols) > 1 else ():
        together = {symbol: max(first, symbol * grows) + index for index, symbol in enumerate(symbols)}
        yield Derived(f"sizes {', '.join(f'{a} -> {b}' for a, b in together.items())}", _resized(sample, together))


def _by_rank(sample: Sample) -> Iterator[Derived]:
    """Yield a leading dim more, of one element and of two; rank 0."""
    for size in (1, 2):
        yield Derived(f"a leading dim of {size}", _changed(sample, lambda r, n=size: _shaped(r, (n, *r.sizes))))  # type: ignore[misc]
    if any(recipe.shape and len(recipe.shape) == 1 for recipe in sample.tensors()):
        yield Derived("rank 0", _changed(sample, lambda r: _shaped(r, r.sizes[1:])))


def _by_broadcast(sample: Sample) -> Iterator[Derived]:
    """Yield each dim of each of several tensors reduced to one element."""
    recipes = [recipe for recipe in sample.tensors() if recipe.shape is not None]
    for number, recipe in enumerate(recipes if len(recipes) > 1 else ()):
        for dim, size in enumerate(recipe.sizes):
            if size > 1:

                def reduced(other: Tensor, recipe: Tensor = recipe, dim: int = dim) -> Tensor:
                    sizes = other.sizes
                    return _shaped(other, (*sizes[:dim], 1, *sizes[dim + 1 :])) if other is recipe else other

                yield Derived(f"dim {dim} of tensor {number} -> 1", _changed(sample, reduced))


def _by_layout(sample: Sample) -> Iterator[Derived]:
    """Yield each memory format that a recipe can have, for all tensors that are contiguous as written."""
    ranks = [len(recipe.sizes) for recipe in sample.tensors() if recipe.memory == "contiguous"]
    for memory, least in (("noncontiguous", 1), ("transposed", 2), ("channels_last", 4)):
        if any(rank >= least for rank in ranks):

            def arranged(recipe: Tensor, memory: str = memory, least: int = least) -> Tensor:
                fits = len(recipe.sizes) == 4 if memory == "channels_last" else len(recipe.sizes) >= least
                plain = recipe.memory == "contiguous" and not recipe.conj and not recipe.neg
                return recipe.model_copy(update={"memory": memory}) if fits and plain else recipe

            yield Derived(f"memory {memory}", _changed(sample, arranged))


def _by_keyword(sample: Sample, defaults: Defaults) -> Iterator[Derived]:
    """Yield each flag flipped, each number halved and tripled: of the sample, and defaults of the signature."""
    for name, value in {**defaults, **sample.kwargs}.items():
        if name in UNVARIED:
            continue
        others: tuple[bool | float, ...] = ()
        if isinstance(value, bool):
            others = (not value,)
        elif isinstance(value, float):
            others = (value / 2 if value else 0.5, value * 3 if value else -0.5)
        for other in others:
            yield Derived(f"{name} = {str(other).lower()}", replace(sample, kwargs={**sample.kwargs, name: other}))
