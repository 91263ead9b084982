"""Derivatives hold at samples that are derived from the written ones: see samples/derive.py.

Each gets a look: both modes along one random direction on each side, by ordinary calls. What a look objects to is made
as small as it stays wrong, and then judged like a written sample. A look says nothing where the operator refuses the
sample, as a user would find out, or where differences say nothing: at kinks, for random functions, for numbers that are
too large to be told apart.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch

from opcheck.checks.arguments import parameters, schema_of
from opcheck.checks.base import Context, Subject
from opcheck.checks.jacobian.compare import compared as jacobian
from opcheck.checks.judging import PerSample, per_sample
from opcheck.checks.verdict import HOLDS, Verdict, fails, out_of_reach
from opcheck.derivatives import NO_REFUSAL, TooLarge
from opcheck.derivatives.autodiff import Mode, Primal
from opcheck.derivatives.compare import Comparison
from opcheck.derivatives.coordinates import same
from opcheck.derivatives.differences import looped
from opcheck.derivatives.point import Point
from opcheck.samples.cache import Cache
from opcheck.samples.derive import LARGEST, Derived, derived, smallest
from opcheck.spec.library import Sample

Answer = Literal["hold", "refused", "too large", "untold", "backward", "forward_ad"]
"""What a look says. The last two are checks whose claims do not hold; of those in the middle it knows nothing."""
WRONG: tuple[Answer, ...] = ("backward", "forward_ad")
HUGE = 1e6
"""The largest output at which differences are told apart from rounding: infinity and NaN are not."""
MODES: dict[Answer, Mode] = {"backward": "reverse", "forward_ad": "forward"}


def judge(subject: Subject) -> Verdict:
    """Look at each derived sample. The first one that fails is made smaller, and judged."""
    context, counts = subject.context, Counter[str]()
    for one in derived(subject.sample, _defaults(context), context.is_thorough):
        answer = look(context, one.sample)
        if answer in WRONG:
            verdict = _judged(context, subject.sample, one, answer)
            if verdict is not None:
                return verdict
            answer = "untold"
        counts[answer] += 1
    if not counts["hold"]:
        return out_of_reach("no derived sample tells anything: " + (_listed(counts) or "nothing can be varied"))
    return replace(HOLDS, fields={"derived": dict(counts)})


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {answer}" for answer, count in counts.items())


def look(context: Context, sample: Sample) -> Answer:
    """Return what one direction on each side says about the derivatives at a sample."""
    try:
        inputs = context.realize(sample)
        function = context.function(sample, inputs)
        with torch.enable_grad():
            outputs = function(*inputs.leaves)
    except TooLarge:
        return "too large"
    except NO_REFUSAL:
        raise
    except Exception:
        return "refused"
    chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad and output.numel())
    tested = tuple(outputs[index] for index in chosen)
    if sum(output.numel() for output in outputs) > LARGEST:
        return "too large"
    if not tested or not all(bool((output.abs() <= HUGE).all()) for output in tested):
        return "untold"
    point = Point(Primal(function, chosen), inputs.leaves, outputs=tested)
    along = point.along_one
    try:
        return _compared(context, along)
    except NO_REFUSAL:
        raise
    except Exception:
        return "untold"  # a derivative refuses what forward accepts


def _compared(context: Context, along: Point) -> Answer:
    numbers = context.numbers
    assert numbers is not None
    for check, mode in MODES.items() if context.case.claims.supports.forward_ad else [*MODES.items()][:1]:
        comparison = Comparison.of(along, mode, numbers, looped=True)
        if not comparison.holds_closely:
            # Differences of a random function never settle. Of one that reads what is between elements in memory they
            # do, but its values at copies are others.
            (again,) = looped(along.function, along.leaves, [along.coordinates], 1)
            of_numbers = same(again, along.value, 1e-6, 1e-6)
            return check if of_numbers and comparison.is_settled else "untold"
    return "hold"


def _judged(context: Context, written: Sample, one: Derived, check: Answer) -> Verdict | None:
    """Return what the check says at the smallest sample that is wrong; None if it does not object after all."""
    sample, words = smallest(one, written, partial(look, context), check)
    for candidate in (sample, one.sample):  # which have one name, so that they cannot share a cache
        verdict = PerSample(jacobian).verdict(replace(context.under(check), cache=Cache()), candidate)
        if verdict.is_failure:
            title = verdict.title.removeprefix(f"{check}: ")
            shown = [
                *([f"in sizes, {', '.join(words)}"] if words and candidate is sample else []),
                f"add this sample: {candidate.toml()}",
                f"realized: {verdict.realized}",
            ]
            title = f"derived: {one.what}: {check}: {title}"
            return fails(title, "\n".join([*shown, verdict.detail]), **verdict.fields)
    return None


def _defaults(context: Context) -> dict[str, Any]:
    """Return the keywords of the operator with their defaults, as far as a signature or a schema tells."""
    return context.memo.once("defaults", lambda: dict(keywords(context.operator, context.case.variant.path)))


def keywords(operator: Callable[..., Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the keywords of an operator that have a default, with it."""
    schema = schema_of(operator, path)
    if schema is not None:
        for argument in schema.arguments:
            if argument.has_default_value():
                yield argument.name, argument.default_value
        return
    try:
        own = parameters(operator)
    except (TypeError, ValueError):
        return
    for parameter in own:
        if parameter.default is not inspect.Parameter.empty and parameter.kind not in KEYWORDLESS:
            yield parameter.name, parameter.default


KEYWORDLESS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

check = per_sample(judge)
