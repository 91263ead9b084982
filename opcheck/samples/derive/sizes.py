"""Varies sizes: each size that occurs in a sample, empty tensors, ranks, and dims that are broadcast."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from opcheck.samples.derive.change import (
    Derived,
    Others,
    Scope,
    changed,
    has_indices,
    is_free,
    rank_of,
    updated,
    with_one,
)
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction
from opcheck.spec.recipe import Tensor
from opcheck.spec.values import mapped

CONSTRUCTED = 64
"""The largest size that modules are constructed with: as that of a kernel, a larger one takes long."""
BLOCKS = (128, 128, 64, 16, 8)
"""What all sizes of a sample become at once, as that of a block: of samples of rank 0, 1, 2, 3, and beyond."""
ROW = 256
"""What the last dim becomes: without any left over of a block of any usual size."""
LONG = 4095
"""How many terms a sum has that is long: one of ones no longer grows from 2,048 on in float16, and in bfloat16 if it is
taken by vectors of eight."""
SMALLER = {LONG: 527, 1031: 257, 128: 16, 64: 16}
"""What sizes are instead where these are too large."""
LARGE = 256
"""A size above is varied downwards, too."""
DIMS = (2, 1, 2, 1)
"""What dims are added up to rank 4."""
ONE_DIM = ((1,), (2,))
"""One leading dim."""
TOGETHER = (17, 33)
"""Where all sizes of a sample change at once, the first of them; the others are larger by one each."""


def symbols(sample: Sample) -> set[int]:
    """Return the sizes that are varied: those above 1 of tensors that have elements, but no explicit values."""
    return {size for recipe in sample.tensors if recipe.shape and recipe.numel for size in recipe.shape} - {1}


def keeps_ties(written: Sample, other: Sample) -> bool:
    """Tell whether sizes that are equal in a sample are still equal in one that is derived from it.

    A size of 1 counts, too, and so do those of explicit values, which stay as they are. Dims that are added or taken
    away are those in front, of all tensors or of none.
    """
    if len(other.tensors) != len(written.tensors):  # some are left out
        sizes = [recipe.sizes for recipe in written.tensors]
        return all(recipe.sizes in sizes for recipe in other.tensors)
    pairs = [(before.sizes, after.sizes) for before, after in zip(written.tensors, other.tensors, strict=True)]
    if len({len(after) - len(before) for before, after in pairs}) > 1:
        return False
    changes = {(old, new) for before, after in pairs for old, new in zip(before[::-1], after[::-1], strict=False)}
    return len(changes) == len({old for old, _ in changes})


def resized(sample: Sample, sizes: Mapping[int, int]) -> Sample:
    """Return a sample with each size that is a key replaced, wherever it occurs. Explicit values stay.

    If it says how a module is constructed, so are the numbers in there: most of them are sizes.
    """
    shaped = _with_sizes(sample, sizes)
    return shaped if sample.module is None else replace(shaped, module=_constructed(sample.module, sizes))


def _with_sizes(sample: Sample, sizes: Mapping[int, int]) -> Sample:
    return _shaped(sample, lambda own: tuple(sizes.get(size, size) for size in own))


def _constructed(module: Construction, sizes: Mapping[int, int]) -> Construction:
    def change(part: Any) -> Any:
        return sizes.get(part, part) if type(part) is int else part

    own = {key: getattr(module, key) for key in ("args", "kwargs")}
    changed = {key: mapped(value, change) for key, value in own.items()}
    return module.model_copy(update={key: value for key, value in changed.items() if value != own[key]})


def lowered(sample: Sample) -> Sample:
    """Return a sample whose tensors without explicit values lack their leading dim."""
    return _shaped(sample, lambda own: own[1:])


def _shaped(sample: Sample, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Sample:
    def shaped(recipe: Tensor) -> Tensor:
        return recipe if recipe.shape is None else updated(recipe, shape=change(recipe.shape))

    return changed(sample, shaped)


def _several(sample: Sample) -> Iterator[tuple[int, Tensor]]:
    """Yield the tensors without explicit values, with their numbers among these, if there are several."""
    recipes = [recipe for recipe in sample.tensors if recipe.shape is not None]
    yield from enumerate(recipes) if len(recipes) > 1 else ()


def by_size(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each size changed alone, all of them changed to different odd ones, and to one size; then a longer row.

    A large size is also one smaller, and half as large. What all become together is, as a standard, tried alone only
    where that is refused or too large.
    """
    own, grows = sorted(symbols(sample)), has_indices(sample)
    together = (TOGETHER if scope.is_thorough else TOGETHER[:1]) if len(own) > 1 else ()
    alone = [size for size in scope.sizes if scope.is_thorough or size not in together]
    yield from _alone(sample, product(own, (size for size in alone if size < TOGETHER[0])), scope)
    for first in together:
        sizes = {symbol: max(first, symbol * grows) + index for index, symbol in enumerate(own)}
        instead = None if scope.is_thorough else partial(_alone, sample, sizes.items(), scope)
        yield from _changed(sample, sizes, scope, instead)
    for symbol in own:
        if symbol > LARGE:
            yield from _alone(sample, [(symbol, symbol - 1), (symbol, symbol // 2)], scope)
    yield from _alone(sample, product(own, (size for size in alone if size >= TOGETHER[0])), scope)
    # A square matrix, or as many rows as features: code may take one dim for the other. It has a path of its own where
    # no element is left over, too.
    rank = rank_of(sample)
    block = max((BLOCKS[min(rank, len(BLOCKS) - 1)], *own))
    equal = {symbol: block for symbol in own if symbol != block}
    if equal:
        yield from _changed(sample, equal, scope)
    row = max(sample.tensors, key=lambda recipe: recipe.numel).sizes[-1:] if own else ()
    if rank > 1 and row and row[0] in own and ROW not in scope.sizes:
        yield from _alone(sample, [(row[0], ROW)], scope)


def by_length(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each size grown alone to each in scope, with numbers of one sign, if a spec says nothing else of them.

    There sums are long and grow, so that those in a coarse dtype lose what is added last.
    """
    of_one_sign = changed(sample, _of_one_sign)
    yield from _alone(of_one_sign, product(sorted(symbols(sample)), scope.sizes), scope)


def _of_one_sign(recipe: Tensor) -> Tensor:
    return updated(recipe, low=0.5, high=1.5) if is_free(recipe) else recipe


def _alone(sample: Sample, sizes: Iterable[tuple[int, int]], scope: Scope) -> Iterator[Derived]:
    """Yield each of several changes of a size. Where there are indices, none gets smaller."""
    grows = has_indices(sample)
    for symbol, size in sizes:
        if size > symbol or (size < symbol and not grows):
            yield from _changed(sample, {symbol: size}, scope)


def _changed(
    sample: Sample, sizes: Mapping[int, int], scope: Scope, instead: Others | None = None
) -> Iterator[Derived]:
    """Yield a change of sizes; and of a module that is constructed with such sizes, one of these, too.

    instead: what to try where it is refused or too large. Default: each place alone, and smaller sizes.
    """
    what = f"size{'s' * (len(sizes) > 1)} {', '.join(f'{old} -> {new}' for old, new in sizes.items())}"
    apart = instead or partial(_place_by_place, sample, sizes, what)
    yield Derived(what, _with_sizes(sample, sizes), apart, instead or partial(_smaller, sample, sizes, scope))
    module = sample.module or scope.module
    is_possible = 0 < min(sizes.values()) <= max(sizes.values()) <= CONSTRUCTED
    if module is not None and is_possible and _constructed(module, sizes) != module:
        yield Derived(f"{what}, in the module too", resized(replace(sample, module=module), sizes))


def _smaller(sample: Sample, sizes: Mapping[int, int], scope: Scope) -> Iterator[Derived]:
    """Yield a change to smaller sizes, if these are not tried anyway."""
    least = max(sizes)
    smaller = {symbol: max(SMALLER.get(size, size), least) for symbol, size in sizes.items()}
    if not scope.is_thorough and smaller != sizes and least not in smaller.values():
        yield from _changed(sample, smaller, scope)


def _place_by_place(sample: Sample, sizes: Mapping[int, int], what: str) -> Iterator[Derived]:
    """Yield the change of one size at each of its places alone, if there are several."""
    (symbol, size), *others = sizes.items()
    if others:
        return
    places = [
        (number, recipe, dim)
        for number, recipe in enumerate(sample.tensors)
        for dim, own in enumerate(recipe.shape or ())
        if own == symbol
    ]
    for number, recipe, dim in places if len(places) > 1 else ():
        yield Derived(f"{what} in dim {dim} of tensor {number}", _with_dim(sample, recipe, dim, size))


def by_emptiness(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each size changed to 0."""
    for symbol in sorted(symbols(sample)) if not has_indices(sample) else ():
        yield from _changed(sample, {symbol: 0}, scope)


def by_rank(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield leading dims up to rank 4, or beyond, one of them 1; rank 0, or where that is refused a dim less."""
    ranks = {len(recipe.shape) for recipe in sample.tensors if recipe.shape is not None}
    if ranks:
        dims = DIMS[: max(4 - max(ranks), 1)]
        yield from map(partial(_led, sample), [dims] if len(dims) > 1 else ONE_DIM)
    if ranks - {0} and not has_indices(sample):
        yield Derived("rank 0", _shaped(sample, lambda own: ()), lambda: _less(sample, ranks))


def _less(sample: Sample, ranks: Collection[int]) -> Iterator[Derived]:
    """Yield all tensors with a dim less, and each alone of rank 0."""
    if max(ranks) > 1:
        yield Derived("a dim less", lowered(sample))
    for number, recipe in _several(sample):
        if recipe.shape:
            yield Derived(f"rank 0 of tensor {number}", with_one(sample, recipe, shape=()))


def _led(sample: Sample, dims: tuple[int, ...]) -> Derived:
    """Return a change that puts dims in front: in front of all tensors, else one of them, or in front of one tensor."""
    what = _dims_in_words("leading", dims)

    def apart() -> Iterator[Derived]:
        for number, recipe in _several(sample) if dims != (2,) else ():  # a dim of 1 is tried there, too
            yield Derived(f"{what} of tensor {number}", with_one(sample, recipe, shape=(*dims, *recipe.sizes)))
        if len(dims) > 1:
            yield from map(partial(_led, sample), ONE_DIM)
        if dims == (1,):
            yield from _trailed(sample)

    return Derived(what, _shaped(sample, lambda own: (*dims, *own)), apart)


def _trailed(sample: Sample) -> Iterator[Derived]:
    """Yield the first tensor with dims behind, up to rank 4, as of images: where the first dims have a meaning."""
    first = next(recipe for recipe in sample.tensors if recipe.shape is not None)
    dims = DIMS[: max(4 - len(first.sizes), 0)]
    if dims:
        yield Derived(_dims_in_words("trailing", dims), with_one(sample, first, shape=(*first.sizes, *dims)))


def _dims_in_words(which: str, dims: tuple[int, ...]) -> str:
    return f"{which} dims of {', '.join(map(str, dims))}" if len(dims) > 1 else f"a {which} dim of {dims[0]}"


def by_broadcast(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each dim of each of several tensors reduced to one element."""
    for number, recipe in _several(sample):
        for dim, size in enumerate(recipe.sizes if recipe.numel else ()):
            if size > 1:
                yield Derived(f"dim {dim} of tensor {number} -> 1", _with_dim(sample, recipe, dim, 1))


def _with_dim(sample: Sample, recipe: Tensor, dim: int, size: int) -> Sample:
    return with_one(sample, recipe, shape=(*recipe.sizes[:dim], size, *recipe.sizes[dim + 1 :]))
