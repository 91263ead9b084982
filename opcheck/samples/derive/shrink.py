"""Makes a derived sample that is wrong as small as it stays wrong: sizes, then values, then keywords."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from opcheck.samples.derive.change import Derived, has_indices, with_one
from opcheck.samples.derive.sizes import lowered, resized, symbols
from opcheck.spec.library import Sample
from opcheck.spec.recipe import Tensor

ONE_BY_ONE = 130
"""The sizes below are tried one by one. Beyond, those that are wrong are taken for an interval, which is halved."""
SIMPLE = (0, 1, 2, 3, 5, 10, 11, 20, 30, 100)
"""Numbers that are tried in place of larger ones."""

Look = Callable[[Sample], str]
"""Says what a sample is like: the name of what is wrong, "hold", or something else."""


def smallest(one: Derived, written: Sample, look: Look, wrong: str) -> tuple[Sample, list[str]]:
    """Return the smallest sample that still fails, and what is known of its sizes and values, in words.

    First leading dims are dropped that are not needed, and each size becomes the smallest that still fails, then each
    value the simplest; then keywords that are not needed are dropped.
    """
    sample = one.sample
    while _leads(sample, written) and look(lowered(sample)) == wrong:
        sample = lowered(sample)
    sample, words = _smaller(sample, written, look, wrong)
    sample, more = _simpler(sample, look, wrong)
    for name in sample.kwargs:
        fewer = replace(sample, kwargs={key: value for key, value in sample.kwargs.items() if key != name})
        if look(fewer) == wrong:
            sample = fewer
    usual = replace(sample, module=written.module)
    if sample.module != written.module and look(usual) == wrong:
        sample = usual
    return sample, words + more


def _leads(sample: Sample, written: Sample) -> bool:
    """Tell whether each tensor has more dims than it was written with."""
    pairs = zip(written.tensors, sample.tensors, strict=False)
    return bool(sample.tensors) and all(len(after.sizes) > len(before.sizes) for before, after in pairs)


def _smaller(sample: Sample, written: Sample, look: Look, wrong: str) -> tuple[Sample, list[str]]:
    words = []
    for symbol in sorted(symbols(sample), reverse=True):
        least = max((size for size in symbols(written) if size <= symbol), default=1) if has_indices(sample) else 1

        def said(size: int, sample: Sample = sample, symbol: int = symbol) -> str:
            return look(resized(sample, {symbol: size}))

        size, before = _least_size(least, symbol, said, wrong)
        sample = resized(sample, {symbol: size})
        words += [f"a size of {size - 1} holds where {size} fails"] if before == "hold" and size > 2 else []
    return _untied(sample, written, look, wrong), words


def _least_size(least: int, largest: int, said: Callable[[int], str], wrong: str) -> tuple[int, str]:
    """Return the least size that is wrong, and what the one before it is like; the largest is known to be wrong."""
    before, few = "", min(largest, ONE_BY_ONE)
    for size in range(least, few):
        answer = said(size)
        if answer == wrong:
            return size, before
        before = answer
    low, high = few - 1, largest
    while high - low > 1:
        middle = (low + high) // 2
        answer = said(middle)
        if answer == wrong:
            high = middle
        else:
            low, before = middle, answer
    return high, before


def _untied(sample: Sample, written: Sample, look: Look, wrong: str) -> Sample:
    """Return the sample with sizes made smaller that need not be equal, as they are not in the written one."""
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
    """Return the sample with random values for those that do not matter, and simple ones for those that do."""
    words = []
    for number in range(len(sample.tensors)):
        last = ""
        for own, keys in _simple(sample.tensors[number]):
            simpler = with_one(sample, sample.tensors[number], **keys)
            said, before = look(simpler), last
            if said == wrong:
                sample = simpler
                words += [f"the number {before} holds where {own:g} fails"] if own is not None and before else []
                break
            last = f"{own:g}" if said == "hold" and own is not None else ""
    return sample, words


def _simple(recipe: Tensor) -> Iterator[tuple[float | None, dict[str, Any]]]:
    """Yield keys for random values, then for simpler numbers in place of that which fills a tensor or is an element.

    Of several elements, one alone.
    """
    if recipe.std == 0:
        yield None, {"mean": None, "std": None}
        yield from ((number, {"mean": number}) for number in _below(recipe.mean or 0.0))
    elif recipe.contains is not None:
        yield None, {"contains": None}
        for own in recipe.contains:
            yield from ((number, {"contains": (number,)}) for number in (*_below(own), own))


def _below(value: float) -> Iterator[float]:
    yield from (float(number if value > 0 else -number) for number in SIMPLE if number < abs(value))
