"""Changes of a written sample that may make it meet a condition. Explicit values, bounds and structures stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from opcheck.samples.derive.change import changed, with_keyword
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor

Change = Callable[[Sample, tuple[Sample, ...]], Iterator[Sample]]
"""From a written sample, and all written samples of its operator, to others."""
Recipe = Callable[[Tensor], Tensor]


def nothing(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Make no sample."""
    yield from ()


def _each_and_all(sample: Sample, change: Recipe) -> Iterator[Sample]:
    """Yield the sample with all tensors changed, then with each alone. Those that do not change are left out."""
    recipes = [recipe for recipe in sample.tensors() if recipe.shape is not None and recipe.layout == "strided"]
    for chosen in [recipes, *([recipe] for recipe in recipes)]:
        new = [(recipe, change(recipe)) for recipe in chosen]
        if any(one is not other for one, other in new):
            ids = {id(one): other for one, other in new}
            yield changed(sample, lambda recipe, ids=ids: ids.get(id(recipe), recipe))  # type: ignore[misc]


def _shaped(recipe: Tensor, *sizes: int) -> Tensor:
    return recipe.model_copy(update={"shape": sizes})


def _resized(sample: Sample, sizes: dict[int, int]) -> Sample:
    """Return a sample with sizes changed wherever they occur."""

    def resized(recipe: Tensor) -> Tensor:
        if recipe.shape is None or recipe.layout != "strided":
            return recipe
        return _shaped(recipe, *(sizes.get(size, size) for size in recipe.shape))

    return changed(sample, resized)


def _symbols(sample: Sample) -> list[int]:
    return sorted({size for recipe in sample.tensors() if recipe.shape is not None for size in recipe.shape} - {0})


def dims_of_1(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Make each size 1, then add a dim of 1."""
    for symbol in _symbols(sample):
        yield _resized(sample, {symbol: 1})
    yield from _each_and_all(sample, lambda recipe: _shaped(recipe, 1, *recipe.sizes))


def larger(count: int) -> Change:
    """Return what makes a tensor have more elements than some number."""

    def change(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
        for symbol in reversed(_symbols(sample)):
            for recipe in sample.tensors():
                times = recipe.sizes.count(symbol)
                rest = prod(size for size in recipe.sizes if size != symbol)
                if recipe.shape is not None and times and rest:
                    size = int((count / rest) ** (1 / times)) + 1
                    yield _resized(sample, {symbol: max(size, symbol)})
        yield from _each_and_all(
            sample, lambda recipe: _shaped(recipe, count // max(recipe.numel, 1) + 1, *recipe.sizes)
        )

    return change


def odd_last_dim(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Make the last size of each tensor no multiple of 4."""
    for recipe in sample.tensors():
        if recipe.shape:
            yield _resized(sample, {recipe.shape[-1]: 5})


def rank_0(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Take all dims away."""
    yield from _each_and_all(sample, lambda recipe: _shaped(recipe) if recipe.shape else recipe)


def rank_4(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Add leading dims."""

    def change(recipe: Tensor) -> Tensor:
        more = 4 - len(recipe.sizes)
        return _shaped(recipe, *(2, 1, 2, 1)[:more], *recipe.sizes) if more > 0 else recipe

    yield from _each_and_all(sample, change)


def with_gaps(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Arrange tensors with gaps in memory."""

    def change(recipe: Tensor) -> Tensor:
        return recipe.model_copy(update={"memory": "noncontiguous"}) if recipe.numel > 1 else recipe

    yield from _each_and_all(sample, change)


def broadcast(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Make each dim of one of several tensors 1, then take all dims of it away."""
    recipes = sample.tensors()
    if len(recipes) < 2:
        return
    for dim in range(max(len(recipe.sizes) for recipe in recipes)):

        def change(recipe: Tensor, dim: int = dim) -> Tensor:
            sizes = recipe.sizes
            return _shaped(recipe, *sizes[:dim], 1, *sizes[dim + 1 :]) if dim < len(sizes) else recipe

        yield from _each_and_all(sample, change)
    yield from rank_0(sample, others)


PLAIN = {"shape", "dtype", "grad", "memory"}


def _is_free(recipe: Tensor) -> bool:
    """Tell whether an author says nothing of the values of a tensor of the dtype of the case."""
    return recipe.dtype in (None, "real", "complex") and recipe.model_fields_set <= PLAIN


def with_a_zero(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Give tensors explicit values, one of them 0."""

    def change(recipe: Tensor) -> Tensor:
        if not _is_free(recipe) or not 0 < recipe.numel <= 64:
            return recipe
        count = recipe.numel
        values = [round(index * (1 if index % 2 else -1) * 0.75 / max(count / 4, 1), 2) for index in range(count)]
        kept = {key: getattr(recipe, key) for key in recipe.model_fields_set - {"shape"}}
        return Tensor(values=_nested(values, recipe.sizes), **kept)

    yield from _each_and_all(sample, change)


def _nested(values: list[float], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    step = len(values) // shape[0]
    return [_nested(values[at : at + step], shape[1:]) for at in range(0, len(values), step)]


def beyond_10(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Draw values above 10."""

    def change(recipe: Tensor) -> Tensor:
        return recipe.model_copy(update={"low": 10.5, "high": 12.0}) if _is_free(recipe) and recipe.numel else recipe

    yield from _each_and_all(sample, change)


def repeated_index(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Make all whole numbers of a tensor one of them."""
    for recipe in sample.tensors():
        values = _flat(recipe.values) if recipe.values is not None else []
        if len(values) > 1 and all(type(value) is int for value in values):
            same = recipe.model_copy(update={"values": _nested([values[0]] * len(values), recipe.sizes)})
            yield changed(sample, lambda one, recipe=recipe, same=same: same if one is recipe else one)  # type: ignore[misc]


def _flat(values: Any) -> list[Any]:
    return [one for row in values for one in _flat(row)] if isinstance(values, (list, tuple)) else [values]


def empty(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
    """Make each size 0."""
    for symbol in _symbols(sample):
        yield _resized(sample, {symbol: 0})


def keyword(name: str, default: Any) -> Change:
    """Return what sets a keyword: as other samples do, or to another value of the type of its default."""

    def change(sample: Sample, others: tuple[Sample, ...]) -> Iterator[Sample]:
        values = [other.kwargs[name] for other in others if name in other.kwargs]
        for value in (*values, *_other_than(default)):
            if name not in sample.kwargs or sample.kwargs[name] != value:
                yield with_keyword(sample, name, value)

    return change


def _other_than(default: Any) -> tuple[Any, ...]:
    if isinstance(default, bool):
        return (not default,)
    # One more, not one less: some kernels divide by a stride or a number of groups of 0, and end the process.
    return (default + 1,) if isinstance(default, (int, float)) else ()
