"""Reduces a derived sample that fails to the smallest one that still fails: sizes, then memory, values and keywords."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from opcheck.samples.derive.change import Derived, changed, has_indices, updated, with_one
from opcheck.samples.derive.sizes import lowered, resized, symbols
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor

ONE_BY_ONE = 130
"""Sizes below are tried one by one. Larger ones are bisected, assuming that all above the smallest failing one fail."""
SIMPLE = (0, 1, 2, 3, 5, 10, 11, 20, 30, 100)
"""The numbers that are tried in place of larger ones."""

Look = Callable[[Sample], str]
"""Tests a sample. Returns the name of the failure, "hold", or another answer."""


def smallest(one: Derived, written: Sample, look: Look, wrong: str) -> tuple[Sample, list[str]]:
    """Return the smallest sample that still fails, and facts about its sizes and values for a message.

    wrong: the answer of `look` that counts as the same failure.
    """
    sample = one.sample
    while "rank" in written.vary and _leads(sample, written) and look(lowered(sample)) == wrong:
        sample = lowered(sample)
    sample, words = _smaller(sample, written, look, wrong)
    simpler, more = _simpler(sample, look, wrong)
    if simpler != sample:  # without special values, sizes may be smaller still
        sample, words = _smaller(simpler, written, look, wrong)
    for name in sample.kwargs:
        fewer = replace(sample, kwargs={key: value for key, value in sample.kwargs.items() if key != name})
        if look(fewer) == wrong:
            sample = fewer
    usual = replace(sample, module=written.module)
    if sample.module != written.module and look(usual) == wrong:
        sample = usual
    return sample, [*dict.fromkeys(words + more)]


def _leads(sample: Sample, written: Sample) -> bool:
    """Return whether each tensor has more dims than in the written sample."""
    pairs = zip(written.tensors, sample.tensors, strict=False)
    return bool(sample.tensors) and all(len(after.sizes) > len(before.sizes) for before, after in pairs)


def _smaller(sample: Sample, written: Sample, look: Look, wrong: str) -> tuple[Sample, list[str]]:
    """Return the sample with smaller sizes, unless the written one keeps its own, and facts about them."""
    words = list[str]()
    if "size" not in written.vary:
        return sample, words
    for symbol in sorted(symbols(sample), reverse=True):
        least = max((size for size in symbols(written) if size <= symbol), default=1) if has_indices(sample) else 1
        size, holds_below = _least_size(sample, symbol, least, look, wrong)
        sample = _resized(sample, symbol, size)
        words += [f"passes with size {size - 1}, fails with size {size}"] if holds_below and size > 2 else []
    return _untied(sample, written, look, wrong), words


def _resized(sample: Sample, symbol: int, size: int) -> Sample:
    """Return a sample with another size, and with as many specified elements as fit."""

    def fitting(recipe: Tensor) -> Tensor:
        return updated(recipe, nnz=min(recipe.nnz, recipe.places)) if recipe.nnz else recipe

    return changed(resized(sample, {symbol: size}), fitting)


def _least_size(sample: Sample, symbol: int, least: int, look: Look, wrong: str) -> tuple[int, bool]:
    """Return the smallest size to replace a size by so that the sample fails, and whether one less holds."""
    answers: dict[int, str] = {}

    def fails(size: int) -> bool:
        answers[size] = look(_resized(sample, symbol, size))
        return answers[size] == wrong

    few = min(symbol, ONE_BY_ONE)
    size = next(filter(fails, range(least, few)), None)
    if size is None:
        size = few + bisect_left(range(few, symbol), True, key=fails)  # it is known to fail with the size as it is
    return size, answers.get(size - 1) == "hold"


def _untied(sample: Sample, written: Sample, look: Look, wrong: str) -> Sample:
    """Return the sample with each size of the written one reduced by itself: sizes need not have become equal."""
    pairs = zip(written.tensors, sample.tensors, strict=False)
    sizes = {old: new for before, after in pairs for old, new in zip(before.sizes, after.sizes, strict=False)}
    whole = resized(written, sizes)
    is_all = (whole.args, whole.kwargs, whole.module) == (sample.args, sample.kwargs, sample.module)
    for symbol in sorted(symbols(written)) if is_all and not has_indices(written) else ():
        for size in range(1, min(sizes[symbol], ONE_BY_ONE)):
            smaller = replace(resized(written, {**sizes, symbol: size}), name=sample.name)
            if look(smaller) == wrong:
                sample, sizes[symbol] = smaller, size
                break
    return sample


def _simpler(sample: Sample, look: Look, wrong: str) -> tuple[Sample, list[str]]:
    """Return the sample with simpler memory and random or simpler values, and facts about the values for a message."""
    words = []
    for number, simple in product(range(len(sample.tensors)), (_contiguous, _filled_simpler, _elements_simpler)):
        last = ""
        for own, keys in simple(sample.tensors[number]):
            simpler = with_one(sample, sample.tensors[number], **keys)
            said, before = look(simpler), last
            if said == wrong:
                sample = simpler
                words += [f"passes with the number {before}, fails with {own:g}"] if own is not None and before else []
                break
            last = f"{own:g}" if said == "hold" and own is not None else ""
    return sample, words


Simpler = Iterator[tuple[float | None, dict[str, Any]]]
"""Changes of a recipe: each a number (None: random values), and the keys to update."""


def _contiguous(recipe: Tensor) -> Simpler:
    """Yield the change of a tensor to contiguous memory."""
    if recipe.memory != "contiguous":
        yield None, {"memory": None}


def _filled_simpler(recipe: Tensor) -> Simpler:
    """Yield changes of a tensor that is filled with one number: to random values, then to simpler numbers."""
    if recipe.std == 0:
        yield None, {"mean": None, "std": None}
        yield from ((number, {"mean": number}) for number in _below(recipe.mean or 0.0))


def _elements_simpler(recipe: Tensor) -> Simpler:
    """Yield changes of special elements: to those of the rest of the tensor, then to one simpler number."""
    if recipe.contains is not None:
        yield None, {"contains": None}
        for own in recipe.contains:
            yield from ((number, {"contains": (number,)}) for number in (*_below(own), own))


def _below(value: float) -> Iterator[float]:
    yield from (float(number if value > 0 else -number) for number in SIMPLE if number < abs(value))
