"""Calls of an operator at derived samples. Samples that the CPU or the operator's reference refuses are skipped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from time import thread_time
from typing import Literal

import torch
from torch import Tensor

from opcheck.checks.subject import Context, Subject
from opcheck.checks.truth import Truth, by_reference, on_cpu
from opcheck.checks.verdict import Verdict
from opcheck.derivatives import TooLarge, tried
from opcheck.derivatives.coordinates import vector
from opcheck.planning.expectations import is_about
from opcheck.planning.kinds import check_kinds
from opcheck.samples.cache import once
from opcheck.samples.choices import keywords_of
from opcheck.samples.derive import Change, Derived, Keywords, Scope, derived, in_turn, room_of
from opcheck.samples.derive.alike import keeps_ties
from opcheck.samples.layouts import own
from opcheck.samples.realize import parameter_elements
from opcheck.spec.claims import WAYS, Way
from opcheck.spec.dtypes import real_of
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction
from opcheck.spec.values import Value
from opcheck.text import message_of

NotTested = Literal["refused", "alias", "not called", "too large", "slow", "inconclusive"]
"""Why the derivatives at a sample are not tested.

refused: the operator or one of its twins (see `_twins`) raises. alias: torch.library raises since the operator returns
one of its inputs. not called: no twin can validate the sample. too large: the sample or its outputs have too many
elements, or it has more than `MANY` outputs. slow: the call took longer than `SLOW`. inconclusive: for example,
outputs exceed `HUGE`.
"""
LARGE: tuple[NotTested, ...] = ("inconclusive", "too large")
"""The reasons for which smaller samples are tried instead."""
HUGE = 1e6
"""The largest absolute value of an output at which finite differences are not lost in rounding errors. Infinity and NaN
exceed it. In half precision, which is tested without finite differences, it does not matter.
"""
MANY = 512
"""The largest number of outputs. Each output takes operations of its own, so that a thousand take seconds."""
RETURNS_AN_INPUT = "must not also be an input to this custom operator"
SLOW = 0.25
"""The maximum processor time of a call, in seconds. Wall-clock time would depend on other processes."""


def attempts(
    context: Context, sample: Sample, thorough: bool, ways: Collection[Way] = WAYS
) -> Iterator[tuple[Derived, Attempt]]:
    """Yield the samples derived from a written one in the given ways, each with the result of a call.

    If a sample is refused, its changes are tried one at a time; if it or its outputs are too large, smaller versions
    are tried. Written samples are skipped, since they are tested anyway.

    Unless `thorough`, each change is applied to one written sample, or to the next if the first cannot be tested. There
    are two exceptions. A keyword is varied at every written sample, since the code that it selects may depend on the
    other arguments. All changes are applied to a sample that is known to fail, since its results mean nothing for other
    samples.
    """
    key = "changes", thorough, frozenset(ways), tuple(one.name for one in context.case.samples)
    changes: Changes = context.memo.once(key, lambda: _changes(context, thorough, ways))
    yield from _attempted(context, changes[sample.name])


def attempts_by(
    variation: Callable[[Sample], Iterable[Derived]], context: Context, sample: Sample
) -> Iterator[tuple[Derived, Attempt]]:
    """Yield the samples derived from a written one by a function, each with the result of a call.

    Each change is applied to one written sample, or to the next if the first cannot be tested.
    """
    each = ([(one, other) for other in variation(one)] for one in context.case.samples)
    names = tuple(one.name for one in context.case.samples)
    turns: Changes = context.memo.once((variation, names), lambda: dict(zip(names, in_turn([*each]), strict=True)))
    yield from _attempted(context, turns[sample.name])


def _attempted(context: Context, turns: Sequence[Sequence[Change]]) -> Iterator[tuple[Derived, Attempt]]:
    """Yield the derived samples and their calls. Each change is applied to written samples until one can be tested."""

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
"""The changes by the name of the written sample: each followed by the same change of other written samples, which are
tried if the first cannot be tested.
"""


def _changes(context: Context, thorough: bool, ways: Collection[Way]) -> Changes:
    """Return the changes to apply to each written sample, see `Changes`."""
    operator, path, samples = context.operator, context.case.variant.path, context.case.operator.samples
    call = keywords_of(operator, path, _passed(samples, context.signature.positional))
    module, constructor = _constructor(context)
    may_be_real = context.dtype.is_complex and not context.case.operator.spec.inplace  # which could not hold results
    real = real_of(context.case.dtype) if may_be_real else ""
    scope = Scope(call, module, constructor, thorough, real)
    arguments = attrgetter("args", "kwargs", "module")
    known = [*map(arguments, samples)]

    def changes_of(sample: Sample, ways: Collection[Way]) -> list[Change]:
        is_first = sample.name == context.case.samples[0].name  # varying the constructor at one sample is enough
        ones = derived(sample, scope if is_first else replace(scope, constructor=None), ways)
        return [(sample, one) for one in ones if arguments(one.unnamed) not in known]

    alone = [_alone(context, sample, ways, thorough) for sample in context.case.samples]
    each = [*zip(context.case.samples, alone, strict=True)]
    shared = [changes_of(sample, [way for way in ways if way not in own]) for sample, own in each]
    # Complex dtypes begin with the second sample, so that they apply changes to other samples than real dtypes do.
    turns = in_turn(shared, start=int(context.dtype.is_complex))
    return {
        sample.name: [*turn, *([change] for change in changes_of(sample, own))]
        for turn, (sample, own) in zip(turns, each, strict=True)
    }


def _passed(samples: Sequence[Sample], positional: Sequence[str]) -> list[Mapping[str, Value]]:
    """Return the keyword arguments of each sample, and the plain values that all samples pass at a position, by name.

    A position at which some samples pass a tensor, a list or nothing may mean another overload.
    """
    named = [dict(zip(positional, one.args, strict=False)) for one in samples]
    plain = {name for name in positional if all(isinstance(own.get(name), (bool, int, float, str)) for own in named)}
    return [
        {name: value for name, value in own.items() if name in plain} | one.kwargs
        for own, one in zip(named, samples, strict=True)
    ]


def _constructor(context: Context) -> tuple[Construction | None, Keywords | None]:
    """Return the spec and the keywords of the constructor of a module; (None, None) if the operator is not a module."""
    path, samples = context.case.variant.path, context.case.operator.samples
    recipe = context.module(path)
    if recipe is None:
        return None, None
    passed = (one.module.kwargs for one in samples if one.module is not None)
    return recipe.spec, keywords_of(recipe.make, path, passed, len(recipe.spec.args))


def _alone(context: Context, sample: Sample, ways: Collection[Way], thorough: bool) -> Collection[Way]:
    """Return the ways in which a sample is varied independently of the other written samples.

    These are all ways if `thorough` or if the sample is known to fail, else keywords only.
    """
    checks = ("derived", "backward", "forward_ad")
    known = [expect for check in checks for expect in context.case.expectations_about(check)]
    if thorough or any(is_about(expect, sample.name) for expect in known):
        return ways
    return [way for way in ways if way == "keyword"]


@dataclass(frozen=True, eq=False)
class Attempt:
    """A call of the operator at a sample."""

    written: Sample
    """The written sample: the sample itself, or the one that it was derived from."""
    answer: NotTested | None
    """The reason not to test the derivatives; None if they can be tested."""
    subject: Subject | None = None
    """The operator at the sample; None if it was not called or refused the sample."""
    outputs: tuple[Tensor, ...] = ()

    @property
    def has_values(self) -> bool:
        """Whether values can be compared, as with those of a reference, even if they are too large for differences."""
        return self.answer in (None, "inconclusive")


def attempt(context: Context, written: Sample, sample: Sample) -> Attempt:
    """Call the operator at a sample: a written one, or one derived from it. Return the call."""
    try:
        one = tried(lambda: _attempt(context, written, sample))
    except TooLarge:
        return Attempt(written, "too large")
    if isinstance(one, Exception):
        return Attempt(written, "alias" if RETURNS_AN_INPUT in message_of(one) else "refused")
    return one


def _attempt(context: Context, written: Sample, sample: Sample) -> Attempt:
    twins = _twins(context)
    if not (twins or context.on_cpu is context or keeps_ties(written, sample)):
        return Attempt(written, "not called")
    recipe = context.module(context.case.variant.path, sample) if sample.module != written.module else None
    if recipe and parameter_elements(recipe, context.case.dtype, context.settings.modules) > room_of(sample):
        return Attempt(written, "too large")
    subject = context.at(sample)
    if not all(_accepts(twin, subject) for twin in twins):
        return Attempt(written, "refused")
    began = thread_time()
    with torch.enable_grad():
        # A call may write to leaves that do not require grad; the checks that follow need them as they were.
        outputs = subject.function(*(subject.leaves if context.requires_grad else map(own, subject.leaves)))
    answer: NotTested | None = None
    if thread_time() - began > SLOW:
        answer = "slow"
    elif len(outputs) > MANY or sum(output.numel() for output in outputs) > room_of(sample):
        answer = "too large"
    elif context.numbers and _is_huge([outputs[index] for index in differentiable_indices(outputs)]):
        answer = "inconclusive"
    return Attempt(written, answer, subject, outputs)


def _is_huge(outputs: Sequence[Tensor]) -> bool:
    return not bool((vector(outputs).abs() <= HUGE).all())


Twin = Callable[[Subject], Truth]
"""A function that returns another callable with the arguments of a subject: the operator on the CPU, or its reference.
"""


@once
def _twins(context: Context) -> tuple[Twin, ...]:
    """Return the twins that accept any written sample: the operator on the CPU, and its reference in torch.

    Kernels may not validate their arguments: an index out of range makes a device unusable for the process, and memory
    beyond the end of a tensor is read. Therefore, a derived sample is skipped if one of the twins refuses it. On a
    device without twins, only samples are called whose sizes are equal wherever those of the written sample are.
    """
    candidates = list[Twin]()
    if context.on_cpu is not context:
        candidates.append(on_cpu)
    if context.case.operator.has_differentiable_reference:
        candidates.append(by_reference)

    def made(sample: Sample) -> Subject | Exception:
        return tried(lambda: context.at(sample))

    written = [one for one in map(made, context.case.samples) if isinstance(one, Subject)] if candidates else []
    return tuple(twin for twin in candidates if any(_accepts(twin, one) for one in written))


def _accepts(twin: Twin, subject: Subject) -> bool:
    """Return whether a twin accepts the arguments of a subject.

    A TypeError counts as acceptance: a reference may lack a parameter, which does not make the sample invalid.
    """

    def call() -> tuple[Tensor, ...]:
        own = twin(subject).subject
        return own.function(*own.leaves)

    return isinstance(tried(call), (tuple, TypeError))


def differentiable_indices(outputs: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the indices of the outputs that require grad and have elements."""
    return tuple(index for index, output in enumerate(outputs) if output.requires_grad and output.numel())


def at_derived(
    one: Derived, verdict: Verdict, check: str, sample: Sample, words: Sequence[str] = (),
    how: str = "add this sample",
) -> Verdict:  # fmt: skip
    """Return a verdict on the written sample for a check that fails at a derived sample.

    verdict: the failure of the check at `sample`.
    sample: the derived sample, or a smaller one that still fails.
    words: lines about the sizes and values at which the check begins to fail, see `smallest`.
    how: the instruction to users in front of the sample.

    No line says how to disclaim the check, since it passes at the written sample.
    """
    title = f"derived: {one.what}: {check}: {verdict.title.removeprefix(f'{check}: ')}"
    detail = (line for line in verdict.detail.splitlines() if line != check_kinds()[check].remedy)
    lines = [*words, f"{how}: {sample.toml()}", f"realized: {verdict.realized}", *detail, one.remedy]
    return replace(verdict, title=title, detail="\n".join(filter(None, lines)), at=(check, sample))
