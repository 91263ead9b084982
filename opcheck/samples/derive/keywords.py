"""Varies keywords: those of a sample, the defaults of the signature, and what other samples of the operator pass."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from opcheck.samples.derive.change import Derived, Scope, with_keyword
from opcheck.spec.library import Sample
from opcheck.spec.render import render

UNVARIED = ("inplace", "out", "training", "train", "generator")
"""Keywords that say which operator it is, not what it computes."""


def by_keyword(sample: Sample, scope: Scope) -> Iterator[Derived]:
    """Yield each keyword with other values: of the sample, of the signature, and those that only others pass."""
    own = {**scope.defaults, **sample.kwargs}
    for name in dict.fromkeys((*own, *scope.choices)):
        if name in UNVARIED:
            continue
        value = own.get(name)
        near = islice(_near(name, value), None if scope.is_thorough or _is_dim(name) else 1)
        others = {render(other): other for other in (*near, *scope.choices.get(name, ()))}
        for text, other in others.items():
            if name not in own or text != _text(value):
                yield Derived(f"{name} = {text}", with_keyword(sample, name, other))


def _text(value: Any) -> str:
    return render(value) if value is not None else "{ none = true }"


def _near(name: str, value: Any) -> Iterator[bool | float]:
    """Yield a flag flipped; three times a number, and half; the next whole numbers, and of a dim its negative."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        yield from (value * 3, value / 2) if value else (0.5, -0.5)
    elif isinstance(value, int):
        counts_from_the_end = _is_dim(name)
        yield value + 1
        if counts_from_the_end or value > 1:
            yield value - 1
        if counts_from_the_end:
            yield -value


def _is_dim(name: str) -> bool:
    return name.startswith(("dim", "axis")) or name.endswith(("dim", "axis")) or name in ("diagonal", "offset")
