"""Calls an operator at samples derived from the written ones, unless the CPU, or its reference, refuses them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from time import thread_time
from typing import Literal

import torch
from torch import Tensor

from opcheck.checks.subject import Context, Subject
from opcheck.checks.truth import Truth, by_reference, on_cpu
from opcheck.checks.verdict import Verdict
from opcheck.derivatives import TooLarge, tried
from opcheck.planning.expectations import is_about
from opcheck.samples.choices import keywords_of
from opcheck.samples.derive import Change, Derived, Keywords, derived, in_turn, keeps_ties, lengthened, room_of
from opcheck.samples.realize import parameter_elements
from opcheck.spec.claims import WAYS, Way
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction

Silence = Literal["refused", "untried", "too large", "slow", "untold"]
"""Why nothing can be said of the derivatives at a sample."""
LARGE: tuple[Silence, ...] = ("untold", "too large")
"""What becomes of a call that smaller samples may tell more of."""
HUGE = 1e6
"""The largest output at which differences are told apart from rounding: infinity and NaN are not."""
SLOW = 0.25
"""The most seconds of processor time of a call for a look to go on: by the clock, company would decide."""


def attempts(
    context: Context, sample: Sample, thorough: bool, ways: Collection[Way] = WAYS
) -> Iterator[tuple[Derived, Attempt]]:
    """Yield the samples derived from a written one in some ways, each with what becomes of a call.

    What is refused is followed by what changes one by one, what is too large, or has outputs that are, by what is
    smaller. What is written is left out: it is looked at anyway. As a standard, a change is the turn of one of the
    written samples that it can be made to; where that tells nothing, it is made to the next one. A keyword varies at
    all of them: which code it leads to depends on the other arguments. So does all else at samples that are known to
    fail: what they tell, or do not, is no answer for others.
    """
    key = "changes", thorough, frozenset(ways), tuple(one.name for one in context.samples)
    changes: Changes = context.memo.once(key, lambda: _changes(context, thorough, ways))
    yield from _attempted(context, changes[sample.name])


def long_sums(context: Context, sample: Sample) -> Iterator[tuple[Derived, Attempt]]:
    """Yield the samples derived from a written one in which sums are long, each with what becomes of a call.

    Each change is the turn of one of the written samples.
    """
    each = ([(one, other) for other in lengthened(one)] for one in context.samples)
    names = tuple(one.name for one in context.samples)
    turns: Changes = context.memo.once(("long", names), lambda: dict(zip(names, in_turn([*each]), strict=True)))
    yield from _attempted(context, turns[sample.name])


def _attempted(context: Context, turns: Sequence[Sequence[Change]]) -> Iterator[tuple[Derived, Attempt]]:
    """Make changes, each to the first of several samples at which it tells anything."""

    def each(written: Sample, one: Derived) -> Generator[tuple[Derived, Attempt], None, bool]:
        context.note(f"sample {written.name} with {one.what}")
        made = attempt(context, written, one.sample)
        yield one, made
        tells = made.answer is None
        others = one.apart if made.answer == "refused" else one.smaller if made.answer in LARGE else tuple
        for other in others():
            tells |= yield from each(written, other)
        return tells

    for change in turns:
        for written, one in change:
            if (yield from each(written, one)):
                break


Changes = dict[str, list[Sequence[Change]]]
"""What is derived from each of the written samples, by its name, each with what to try in its place."""


def _changes(context: Context, thorough: bool, ways: Collection[Way]) -> Changes:
    """Return what is derived from each of the written samples, by its name, each with what to try in its place."""
    operator, path, samples = context.operator, context.case.variant.path, context.case.operator.samples
    call = context.memo.once("keywords", lambda: keywords_of(operator, path, (one.kwargs for one in samples)))
    module, constructor = context.memo.once("constructor", lambda: _constructor(context))
    real = str(context.dtype.to_real()).removeprefix("torch.") if context.dtype.is_complex else ""
    known = [(one.args, one.kwargs, one.module) for one in samples]

    def changes_of(sample: Sample, ways: Collection[Way]) -> list[Change]:
        is_first = sample.name == context.case.samples[0].name  # one of them tells what a constructor does
        ones = derived(sample, call, thorough, ways, module, constructor if is_first else None, real)
        return [(sample, one) for one in ones if (one.sample.args, one.sample.kwargs, one.sample.module) not in known]

    alone = [_alone(context, sample, ways, thorough) for sample in context.samples]
    each = [*zip(context.samples, alone, strict=True)]
    shared = [changes_of(sample, [way for way in ways if way not in own]) for sample, own in each]
    turns = in_turn(shared, start=int(context.dtype.is_complex))  # where the dtype is real, other samples vary
    return {
        sample.name: [*turn, *([change] for change in changes_of(sample, own))]
        for turn, (sample, own) in zip(turns, each, strict=True)
    }


def _constructor(context: Context) -> tuple[Construction | None, Keywords | None]:
    """Return how the module is constructed, and the keywords of its constructor; None if the operator is no module."""
    path, samples = context.case.variant.path, context.case.operator.samples
    recipe = context.module(path)
    if recipe is None:
        return None, None
    passed = (one.module.kwargs for one in samples if one.module is not None)
    return recipe.spec, keywords_of(recipe.make, path, passed, len(recipe.spec.args))


def _alone(context: Context, sample: Sample, ways: Collection[Way], thorough: bool) -> Collection[Way]:
    """Return the ways in which a sample varies whatever the others do."""
    checks = ("derived", "backward", "forward_ad")
    known = [expect for check in checks for expect in context.case.expectations_about(check)]
    if thorough or any(is_about(expect, sample.name) for expect in known):
        return ways
    return [way for way in ways if way == "keyword"]


@dataclass(frozen=True, eq=False)
class Attempt:
    """A call of the operator at a sample."""

    written: Sample
    """The sample that it was derived from, or is."""
    answer: Silence | None
    """Why nothing can be said of its derivatives; None if a look may say something."""
    subject: Subject | None = None
    """None if the operator refuses the sample."""
    outputs: tuple[Tensor, ...] = ()


def attempt(context: Context, written: Sample, sample: Sample) -> Attempt:
    """Call the operator at a sample that was derived from a written one, or is that."""
    try:
        one = tried(lambda: _attempt(context, written, sample))
    except TooLarge:
        return Attempt(written, "too large")
    return Attempt(written, "refused") if isinstance(one, Exception) else one


def _attempt(context: Context, written: Sample, sample: Sample) -> Attempt:
    twins = context.memo.once("twins", lambda: _twins(context))
    if not (twins or context.on_cpu is context or keeps_ties(written, sample)):
        return Attempt(written, "untried")
    recipe = context.module(context.case.variant.path, sample) if sample.module != written.module else None
    if recipe and parameter_elements(recipe, context.case.dtype, context.settings.modules) > room_of(sample):
        return Attempt(written, "too large")
    subject = context.at(sample)
    if not all(_takes(twin, subject) for twin in twins):
        return Attempt(written, "refused")
    began = thread_time()
    with torch.enable_grad():
        outputs = subject.function(*subject.leaves)
    answer: Silence | None = None
    if thread_time() - began > SLOW:
        answer = "slow"
    elif sum(output.numel() for output in outputs) > room_of(sample):
        answer = "too large"
    elif not all(bool((outputs[index].abs() <= HUGE).all()) for index in smooth_places(outputs)):
        answer = "untold"
    return Attempt(written, answer, subject, outputs)


Twin = Callable[[Subject], Truth]
"""Returns what takes the same arguments as an operator at a sample."""


def _twins(context: Context) -> tuple[Twin, ...]:
    """Return what else takes the written samples: the operator on the CPU, and its reference in torch.

    Kernels may not validate their arguments: an index out of range ends all work of a process on a device, and what
    lies beyond the end of a tensor is read. A sample that one of these refuses is therefore skipped. On a device,
    where there is none of them, sizes that are equal in the written sample stay equal.
    """
    candidates = list[Twin]()
    if context.on_cpu is not context:
        candidates.append(on_cpu)
    if context.case.operator.has_differentiable_reference:
        candidates.append(by_reference)

    def made(sample: Sample) -> Subject | Exception:
        return tried(lambda: context.at(sample))

    written = [one for one in map(made, context.samples) if isinstance(one, Subject)] if candidates else []
    return tuple(twin for twin in candidates if any(_takes(twin, one) for one in written))


def _takes(twin: Twin, subject: Subject) -> bool:
    """Tell whether a sample is taken. A reference that lacks a parameter says nothing about its values."""

    def call() -> tuple[Tensor, ...]:
        own = twin(subject).subject
        return own.function(*own.leaves)

    return isinstance(tried(call), (tuple, TypeError))


def smooth_places(outputs: Sequence[Tensor]) -> tuple[int, ...]:
    """Return which outputs have elements, and a derivative."""
    return tuple(index for index, output in enumerate(outputs) if output.requires_grad and output.numel())


def at_derived(
    one: Derived, verdict: Verdict, check: str, sample: Sample, words: Sequence[str] = (),
    how: str = "add this sample",
) -> Verdict:  # fmt: skip
    """Return what a check objects to at a derived sample, or at a smaller one, as a verdict on the written one.

    how: what the sample is for.
    """
    title = f"derived: {one.what}: {check}: {verdict.title.removeprefix(f'{check}: ')}"
    lines = [*words, f"{how}: {sample.toml()}", f"realized: {verdict.realized}", verdict.detail]
    return replace(verdict, title=title, detail="\n".join(lines), at=(check, sample))
