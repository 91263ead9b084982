"""Varies sizes: each size that occurs in a sample, empty tensors, ranks, and broadcast dims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise, product
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
    with_some,
)
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction
from opcheck.spec.recipe import Tensor
from opcheck.spec.values import TupleValue, mapped
from opcheck.text import counted

CONSTRUCTED = 64
"""The largest size to construct modules with. A larger kernel size, for instance, would be slow."""
BLOCKS = (128, 128, 64, 16, 8)
"""The block size to set all sizes of a sample to at once, by the rank of the sample: 0, 1, 2, 3, and above."""
ROW = 256
"""A size for the last dim, and for the one before it but the first: a multiple of all usual block sizes."""
LONG = 4095
"""The number of terms of a long sum. A sum of ones stops growing at 2,048 in float16, and also in bfloat16 if it is
computed in vectors of eight."""
SMALLER = {LONG: 527, 1031: 257, 128: 16, 64: 16}
"""The size to try if one of these sizes is too large."""
LARGE = 256
"""Sizes above are reduced, too."""
DIMS = (2, 1, 2, 1)
"""The dims to add, as many as fit into rank 4."""
ONE_DIM = ((1,), (2,))
"""The choices of a single leading dim."""
TOGETHER = (17, 33)
"""If all sizes of a sample change at once, the first size. Each further size is larger by one."""
MULTIPLES = (5, 17)
"""The number to multiply all sizes by, in samples with three dims or more and with fewer."""


def symbols(sample: Sample) -> set[int]:
    """Return the sizes to vary: those above 1, of tensors that are not empty and have no explicit values."""
    return {size for recipe in sample.tensors if recipe.shape and recipe.numel for size in recipe.shape} - {1}


def resized(sample: Sample, sizes: Mapping[int, int]) -> Sample:
    """Return a sample with sizes replaced as in a mapping, wherever they occur. Explicit values stay.

    If the sample has constructor arguments of a module, integers in them are replaced, too, since most are sizes.
    """
    shaped = _with_sizes(sample, sizes)
    return shaped if sample.module is None else replace(shaped, module=_constructed(sample.module, sizes))


def _with_sizes(sample: Sample, sizes: Mapping[int, int]) -> Sample:
    return _shaped(sample, lambda own: tuple(sizes.get(size, size) for size in own))


def _constructed(module: Construction, sizes: Mapping[int, int]) -> Construction:
    def change(part: Any) -> Any:
        return sizes.get(part, part) if type(part) is int else part

    written = {"args", "kwargs"} & module.model_fields_set
    return module.model_copy(update={key: mapped(getattr(module, key), change) for key in written})


def lowered(sample: Sample) -> Sample:
    """Return a sample without the leading dim of each tensor, except for explicit values."""
    return _shaped(sample, lambda own: own[1:])


def _shaped(sample: Sample, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Sample:
    """Return a sample with the shape of each tensor changed, and with as many special elements as fit."""

    def shaped(recipe: Tensor) -> Tensor:
        if recipe.shape is None:
            return recipe
        other = updated(recipe, shape=change(recipe.shape))
        return updated(other, contains=other.contains[: other.numel] or None) if other.contains else other

    return changed(sample, shaped)


def _several(sample: Sample) -> Iterator[tuple[int, Tensor]]:
    """Yield the tensors without explicit values, each with its number among them, if there are several."""
    recipes = [recipe for recipe in sample.tensors if recipe.shape is not None]
    yield from enumerate(recipes) if len(recipes) > 1 else ()


def by_size(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with one size changed, with all sizes changed at once, and with a longer last dim.

    A large size is also reduced by one and to half. By default, the sizes that are set all at once are set one by one
    only if that sample is refused or too large. If it is refused, all are also multiplied by one number, since one size
    may have to be a multiple of another.
    """
    own = sorted(symbols(sample))
    together = (TOGETHER if scope.is_thorough else TOGETHER[:1]) if len(own) > 1 else ()
    alone = [size for size in scope.sizes if scope.is_thorough or size not in together]
    yield from _alone(sample, product(own, (size for size in alone if size < TOGETHER[0])), scope)
    for first in together:
        sizes = _together(sample, first)
        smaller = None if scope.is_thorough else partial(_alone, sample, sizes.items(), scope)
        yield from _changed(sample, sizes, scope, partial(_apart, sample, sizes, scope), smaller)
    for symbol in own:
        if symbol > LARGE:
            yield from _alone(sample, [(symbol, symbol - 1), (symbol, symbol // 2)], scope)
    yield from _alone(sample, product(own, (size for size in alone if size >= TOGETHER[0])), scope)
    # All sizes equal, as in a square matrix: code may confuse two dims. A size that is a multiple of the block size may
    # also have its own code path.
    rank = rank_of(sample)
    block = max((BLOCKS[min(rank, len(BLOCKS) - 1)], *own))
    equal = {symbol: block for symbol in own if symbol != block}
    if equal:
        yield from _changed(sample, equal, scope)
    largest = max(sample.tensors, key=lambda recipe: recipe.numel).sizes if own and ROW not in scope.sizes else ()
    for symbol in dict.fromkeys(largest[-1:0:-1][:2]):
        yield from _alone(sample, [(symbol, ROW)] if symbol in own else [], scope)
    for symbol in own:
        yield from _oblong(sample, symbol)
    yield from _of_other_lengths(sample)


def _apart(sample: Sample, sizes: Mapping[int, int], scope: Scope) -> Iterator[Derived]:
    """Yield samples with each size changed alone unless thorough, then one with all sizes multiplied by a number."""
    yield from _alone(sample, () if scope.is_thorough else sizes.items(), scope)
    factor = MULTIPLES[rank_of(sample) < 3]
    yield from _changed(sample, {symbol: factor * symbol for symbol in sizes}, scope, tuple, tuple)


def _together(sample: Sample, first: int) -> dict[int, int]:
    """Return a new size for each size of a sample: `first`, then larger ones. None is reduced if there are indices."""
    grows = has_indices(sample)
    return {symbol: max(first, symbol * grows) + index for index, symbol in enumerate(sorted(symbols(sample)))}


def beyond_a_block(sample: Sample, scope: Scope) -> Derived | None:
    """Return a sample with all sizes changed at once, also in the constructor of the module; None if it has none."""
    first = TOGETHER[rank_of(sample) < 3]  # a block may be larger, if the sample does not become too large
    sizes = _together(sample, first)
    inside = _in_module_too(sample, sizes, scope)
    return Derived(_in_words(sizes), _with_sizes(sample, sizes) if inside is None else inside) if sizes else None


def _in_words(sizes: Mapping[int, int]) -> str:
    return f"size{'s' * (len(sizes) > 1)} {', '.join(f'{old} -> {new}' for old, new in sizes.items())}"


def _of_other_lengths(sample: Sample) -> Iterator[Derived]:
    """Yield samples with a tensor more in lists of tensors, one like the last, and with the first tensor alone.

    Lists of one length change together, as parameters and their gradients do; if this is refused, one at a time.
    """
    parts: dict[int | str, Any] = dict(enumerate(sample.args)) | dict(sample.kwargs)
    lists: dict[int, list[int | str]] = {}
    for name, value in parts.items():
        items = _items(value)
        if len(items) > 1 and all(isinstance(item, Tensor) for item in items):
            lists.setdefault(len(items), []).append(name)
    for length, names in lists.items():
        for other in (length + 1, 1):
            alone = [_of_length(sample, {name: parts[name]}, other) for name in names if len(names) > 1]
            together = _of_length(sample, {name: parts[name] for name in names}, other)
            yield replace(together, apart=partial(iter, alone))


def _items(value: Any) -> list[Any]:
    items = value.tuple if isinstance(value, TupleValue) else value
    return items if isinstance(items, list) else []


def _of_length(sample: Sample, lists: Mapping[int | str, Any], length: int) -> Derived:
    """Return a sample with a number of tensors in some lists: one more, or fewer. The keys are the arguments."""

    def changed(value: Any) -> Any:
        items = _items(value)
        several = [*items, items[-1]][:length]
        return TupleValue(tuple=several) if isinstance(value, TupleValue) else several

    new = {name: changed(value) for name, value in lists.items()}
    args = tuple(new.get(index, own) for index, own in enumerate(sample.args))
    kwargs = {key: new.get(key, own) for key, own in sample.kwargs.items()}
    what = f"{counted(length, 'tensor')} in {', '.join(map(str, lists))}"
    return Derived(what, replace(sample, args=args, kwargs=kwargs, grad_outputs=None))


def _oblong(sample: Sample, symbol: int) -> Iterator[Derived]:
    """Yield samples without square tensors: of several dims of one size, the last is larger by one.

    Code may confuse the height and the width of an image. The dim changes in all tensors that have that size there; if
    this is refused, in one square tensor at a time.
    """
    square = [(number, one) for number, one in enumerate(sample.tensors) if (one.shape or ()).count(symbol) > 1]
    for dim in dict.fromkeys(-1 - one.sizes[::-1].index(symbol) for _, one in square if one.numel):

        def wider(own: tuple[int, ...], dim: int = dim) -> tuple[int, ...]:
            has = len(own) >= -dim and own[dim] == symbol
            return _with_size(own, len(own) + dim, symbol + 1) if has else own

        what = f"size {symbol} -> {symbol + 1} in dim {dim}"
        changes = [wider(one.sizes) != one.sizes for one in sample.tensors]
        alone = [
            Derived(f"{what} of tensor {number}", with_one(sample, one, shape=wider(one.sizes)))
            for number, one in square
            if changes[number] and sum(changes) > 1
        ]
        yield Derived(what, _shaped(sample, wider), partial(iter, alone))


def by_length(sample: Sample) -> Iterator[Derived]:
    """Yield samples with one size increased to `LONG`, and positive numbers unless the spec specifies others.

    Sums of positive numbers grow, so that a long sum in a low-precision dtype loses its last terms.
    """
    of_one_sign = with_some(sample, [one for one in sample.tensors if is_free(one)], low=0.5, high=1.5)
    yield from _alone(of_one_sign, product(sorted(symbols(sample)), [LONG]), Scope())


def _alone(sample: Sample, sizes: Iterable[tuple[int, int]], scope: Scope) -> Iterator[Derived]:
    """Yield a sample for each pair of an old and a new size. No size is reduced if there are indices."""
    grows = has_indices(sample)
    for symbol, size in sizes:
        if size > symbol or (size < symbol and not grows):
            yield from _changed(sample, {symbol: size}, scope)


def _changed(
    sample: Sample,
    sizes: Mapping[int, int],
    scope: Scope,
    apart: Others | None = None,
    smaller: Others | None = None,
) -> Iterator[Derived]:
    """Yield a sample with sizes changed; then one in which they are also changed in the constructor of the module.

    apart: the samples to try if the first is refused. Default: change one occurrence of the size at a time.
    smaller: the samples to try if the first is too large. Default: use smaller sizes.
    """
    what = _in_words(sizes)
    apart = apart or partial(_place_by_place, sample, sizes, what)
    yield Derived(what, _with_sizes(sample, sizes), apart, smaller or partial(_smaller, sample, sizes, scope))
    is_possible = 0 < min(sizes.values()) <= max(sizes.values()) <= CONSTRUCTED
    inside = _in_module_too(sample, sizes, scope) if is_possible else None
    if inside is not None:
        yield Derived(f"{what}, in the module too", inside)


def _in_module_too(sample: Sample, sizes: Mapping[int, int], scope: Scope) -> Sample | None:
    """Return a sample with sizes changed, also in the constructor of its module; None if they do not occur there."""
    module = sample.module or scope.module
    if module is None or _constructed(module, sizes) == module:
        return None
    return resized(replace(sample, module=module), sizes)


def _smaller(sample: Sample, sizes: Mapping[int, int], scope: Scope) -> Iterator[Derived]:
    """Yield a sample with the new sizes reduced as in SMALLER, unless these sizes are tried anyway."""
    least = max(sizes)
    smaller = {symbol: max(SMALLER.get(size, size), least) for symbol, size in sizes.items()}
    if not scope.is_thorough and smaller != sizes and least not in smaller.values():
        yield from _changed(sample, smaller, scope)


def _place_by_place(sample: Sample, sizes: Mapping[int, int], what: str) -> Iterator[Derived]:
    """Yield samples with one occurrence of a size changed, if only one size is changed, and it occurs several times."""
    (symbol, size), *others = sizes.items()
    places = [
        (number, recipe, dim)
        for number, recipe in enumerate(sample.tensors)
        for dim, own in enumerate(recipe.shape or ())
        if own == symbol
    ]
    for number, recipe, dim in places if len(places) > 1 and not others else ():
        yield Derived(f"{what} in dim {dim} of tensor {number}", _with_dim(sample, recipe, dim, size))


def by_emptiness(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with one size changed to 0, if there are no indices."""
    for symbol in sorted(symbols(sample)) if not has_indices(sample) else ():
        yield from _changed(sample, {symbol: 0}, scope)


def by_rank(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with leading dims added up to rank 4 (at least one dim), and of rank 0 (if refused: a dim less).

    They are also added to the first tensor alone, as in a batch, since the others may be broadcast along them.
    """
    ranks = {len(recipe.shape) for recipe in sample.tensors if recipe.shape is not None}
    if ranks:
        dims = DIMS[: max(4 - max(ranks), 1)]
        yield from map(partial(_led, sample), [dims] if len(dims) > 1 else ONE_DIM)
    for number, recipe in islice(_several(sample), 1):
        yield from _led_alone(sample, number, recipe, DIMS[: max(4 - len(recipe.sizes), 1)])
    if ranks - {0} and not has_indices(sample):
        yield Derived("rank 0", _shaped(sample, lambda own: ()), lambda: _less(sample, ranks))


def _less(sample: Sample, ranks: Collection[int]) -> Iterator[Derived]:
    """Yield a sample whose tensors all have one dim less, and samples with one tensor of rank 0."""
    if max(ranks) > 1:
        yield Derived("a dim less", lowered(sample))
    for number, recipe in _several(sample):
        if recipe.shape:
            yield Derived(f"rank 0 of tensor {number}", with_one(sample, recipe, shape=()))


def _led(sample: Sample, dims: tuple[int, ...]) -> Derived:
    """Return a sample with leading dims added to all tensors; if refused: one leading dim, or trailing dims."""
    one_dim = partial(map, partial(_led, sample), ONE_DIM)
    apart: Others = one_dim if len(dims) > 1 else partial(_trailed, sample) if dims == (1,) else tuple
    return Derived(_dims_in_words("leading", dims), _shaped(sample, lambda own: (*dims, *own)), apart)


def _led_alone(sample: Sample, number: int, recipe: Tensor, dims: tuple[int, ...]) -> Iterator[Derived]:
    """Yield a sample with leading dims added to one tensor; if refused: with a single dim."""
    fewer = partial(_led_alone, sample, number, recipe, dims[:1]) if len(dims) > 1 else tuple
    what = f"{_dims_in_words('leading', dims)} of tensor {number}"
    yield Derived(what, with_one(sample, recipe, shape=(*dims, *recipe.sizes)), fewer)


def _trailed(sample: Sample) -> Iterator[Derived]:
    """Yield a sample with trailing dims added to the first tensor, up to rank 4, as for images."""
    first = next(recipe for recipe in sample.tensors if recipe.shape is not None)
    dims = DIMS[: max(4 - len(first.sizes), 0)]
    if dims:
        yield Derived(_dims_in_words("trailing", dims), with_one(sample, first, shape=(*first.sizes, *dims)))


def _dims_in_words(which: str, dims: tuple[int, ...]) -> str:
    return f"{which} dims of {', '.join(map(str, dims))}" if len(dims) > 1 else f"a {which} dim of {dims[0]}"


def by_broadcast(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield samples with one dim of one tensor reduced to size 1, if there are several tensors.

    Then yield one where the first dim of a tensor and the last dim of another are: both are broadcast, as a column and
    a row are. Last, a size that several tensors have is larger by one in the last of them.
    """
    wide = [(number, one) for number, one in _several(sample) if one.numel]
    for number, recipe in wide:
        for dim, size in enumerate(recipe.sizes):
            if size > 1:
                yield Derived(f"dim {dim} of tensor {number} -> 1", _with_dim(sample, recipe, dim, 1))
    matrices = [(number, one) for number, one in wide if len(one.sizes) > 1 and min(one.sizes[0], one.sizes[-1]) > 1]
    for (number, row), (other, column) in islice(pairwise(matrices), 1):
        last = len(column.sizes) - 1
        what = f"dim 0 of tensor {number} -> 1, dim {last} of tensor {other} -> 1"
        yield Derived(what, _with_dim(_with_dim(sample, row, 0, 1), column, last, 1))
    for symbol in sorted(symbols(sample)):  # sizes may be equal by chance only
        having = [(number, one) for number, one in wide if symbol in one.sizes]
        if len(having) > 1:
            number, recipe = having[-1]
            dim = recipe.sizes.index(symbol)
            what = f"size {symbol} -> {symbol + 1} in dim {dim} of tensor {number}"
            yield Derived(what, _with_dim(sample, recipe, dim, symbol + 1))


def _with_dim(sample: Sample, recipe: Tensor, dim: int, size: int) -> Sample:
    return with_one(sample, recipe, shape=_with_size(recipe.sizes, dim, size))


def _with_size(sizes: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*sizes[:dim], size, *sizes[dim + 1 :])
