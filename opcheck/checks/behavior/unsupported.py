"""What a spec disclaims is refused with an error: it neither works nor gives wrong numbers.

Each feature is tried by the check of the claim that it would make: the first one that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from opcheck.checks.calls import has_tangents
from opcheck.checks.per_sample import answer, implementation, prepared, too_coarse, with_sample
from opcheck.checks.subject import Context, Subject
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, inapplicable, remedy, untested
from opcheck.derivatives import tried
from opcheck.planning.kinds import check_kinds
from opcheck.spec.checks import CheckKind
from opcheck.spec.claims import Supports

Answer = Literal["refused", "works", "wrong", "silent", "untried"]
"""What an operator does when a disclaimed feature is tried; silent: the sample cannot show anything about it."""

TESTED_ELSEWHERE = ("out", "outputs", "inplace_backward")
"""What `variants` and `detached` test, and what only some variants have."""


def check(context: Context) -> Iterator[Verdict]:
    """Try each disclaimed feature on all samples. None may give wrong numbers, and at least one must be refused."""
    if context.numbers is None:
        yield too_coarse(context)
        return
    features = disclaimed(context.case.claims.supports, context.case.variant.kind)
    if not features:
        yield untested("what the spec disclaims concerns other variants")
    for feature in features:
        yield from _tried(context, feature)


def disclaimed(supports: Supports, variant: str) -> list[str]:
    """Return the features to try. A feature that builds on a disclaimed one is not tried separately."""
    if variant == "inplace" and not supports.inplace_backward:
        return ["inplace_backward"]
    names = [name for name in supports.disclaimed() if name not in TESTED_ELSEWHERE]
    return [
        name
        for name in names
        if (variant != "inplace" or check_of(name).every_variant)
        and all(getattr(supports, basic) for basic in check_of(name).needs[:-1])
    ]


def check_of(feature: str) -> CheckKind:
    """Return the check that tests the claim of a feature: the first one whose last need it is."""
    if feature == "inplace_backward":
        feature = "backward"
    return next(kind for kind in check_kinds().values() if kind.needs[-1:] == (feature,))


def _tried(context: Context, feature: str) -> Iterator[Verdict]:
    """Yield a verdict for each sample, and one more for the feature if no sample refuses it."""
    answers: set[Answer] = set()
    for sample in context.samples:
        subject = prepared(context, sample, derivative=True)
        if isinstance(subject, Verdict):
            answers.add("silent" if subject.passed else "untried")
            yield subject
        else:
            said, verdict = _answer(feature, subject)
            answers.add(said)
            yield with_sample(verdict, sample, subject)
    if answers & {"refused", "wrong", "untried"}:
        return
    if "works" in answers:
        title = f"unsupported: {feature} is disclaimed, but works on all samples"
        key = f"supports.{feature}"
        yield fails(title, f"take {key} out of the spec", feature=feature, **remedy(key, True))
    else:
        yield cannot(f"unsupported: no sample shows whether {feature} is refused", "add a sample that does")


def _answer(feature: str, subject: Subject) -> tuple[Answer, Verdict]:
    """Return what the operator does, and the verdict on the sample."""
    if not applies(feature, subject):
        return "silent", inapplicable(f"the sample shows nothing about {feature}")
    kind = check_of(feature)
    # A refusal is no matter of opinion: torch's own gradcheck cannot even ask for all features.
    own = replace(subject.context.under(kind.name), by_torch=False)
    tested = own.subject(subject.sample)  # with inputs that nobody has written to
    if feature == "backward" and isinstance(subject.supports.backward, tuple):
        others = tried(lambda: _of_others(tested))
        if isinstance(others, Exception):
            return "refused", HOLDS
        if not others.leaves or not all(leaf.numel() for leaf in others.leaves):
            return "silent", inapplicable("no argument is left out of supports.backward here")
        tested = others
    # If these raise, the check says what is wrong.
    if feature == "backward" and tried(lambda: tested.differentiable_outputs) == ():
        return "refused", HOLDS
    if feature == "forward_ad" and subject.supports.backward is False and tried(lambda: has_tangents(tested)) is False:
        return "refused", HOLDS
    verdict = answer(tested, implementation(kind).judge)
    meaning = _meaning(kind, verdict)
    if meaning == "wrong":
        title = f"unsupported: {feature} is disclaimed, but gives wrong numbers instead of an error"
        return meaning, fails(title, "\n".join(filter(None, (verdict.title, verdict.detail))), feature=feature)
    if meaning == "silent":
        return meaning, inapplicable(verdict.title)
    return meaning, verdict if meaning == "untried" else HOLDS


def _meaning(kind: CheckKind, verdict: Verdict) -> Answer:
    if verdict.state == "error":
        return "untried"
    if verdict.state == "out of reach":
        # torch.func never asks a jvp in Python for its own tangents: see `compare.NO_DOUBLE_JVP`. It cannot refuse.
        return "refused" if kind.name == "fwd_over_fwd" else "silent"
    if verdict.passed:
        return "silent" if verdict.untested else "works"
    return "refused" if verdict.state == "refused" or kind.may_be_wrong else "wrong"


def applies(feature: str, subject: Subject) -> bool:
    """Tell whether a sample can show if a feature works."""
    if feature == "masked":
        return subject.sample.is_sparse
    has_leaves = isinstance(subject.supports.backward, tuple) or bool(subject.leaves)
    return has_leaves and all(leaf.numel() for leaf in subject.leaves)


def _of_others(subject: Subject) -> Subject:
    """Return the operator as a function of the arguments that supports.backward leaves out."""
    claim = subject.supports.backward
    chosen = subject.context.among(claim if isinstance(claim, tuple) else ())
    return subject.at(subject.context.realize(subject.sample, wrt=lambda path: not chosen(path)))
