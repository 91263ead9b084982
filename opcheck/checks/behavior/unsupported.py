"""Features that a spec disclaims raise an error: they neither work nor give wrong numbers.

Each feature is tested by the check that would test it if it were claimed: the first check that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from opcheck.checks.calls import has_tangents
from opcheck.checks.jacobian.compare import ADVICE
from opcheck.checks.per_sample import implementation, prepared, too_coarse, verdict_by, with_sample
from opcheck.checks.subject import Context, Subject
from opcheck.checks.verdict import HOLDS, OF_NO_LEAVES, Verdict, cannot, fails, inapplicable, remedy, untested
from opcheck.derivatives import tried
from opcheck.planning.kinds import check_kinds
from opcheck.samples.results import with_gradient
from opcheck.spec.checks import CheckKind
from opcheck.spec.claims import TESTED_BY_OTHERS, Supports
from opcheck.spec.library import Sample

Answer = Literal["refused", "works", "wrong", "silent", "untried"]
"""The result of trying a disclaimed feature. silent: the sample cannot show it; untried: the test was impossible."""

EXPECT = 'expect this failure, with when = { check = "unsupported" } and outcome = "fail" in [[operator.expect]]'
OF_LIBRARY = f"torch.library cannot register a forward mode, and torch gives zeros: {EXPECT}"
OF_WRITING = (
    f"autograd ignores what an operator writes to its arguments in torch.library or under torch.no_grad(): {EXPECT}"
)
OF_CONSTANTS = (
    "if an argument is a constant to the operator, write grad = false in its tensor, and no supports.backward"
)


def check(context: Context) -> Iterator[Verdict]:
    """Try each disclaimed feature on all samples. None may give wrong numbers, and at least one sample must raise."""
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
    # Only in-place variants have a claim about `inplace_backward`.
    names = [name for name in supports.disclaimed() if name not in (*TESTED_BY_OTHERS, "inplace_backward")]
    return [
        name
        for name in names
        if (variant != "inplace" or "inplace" in check_of(name).variants)
        and all(getattr(supports, basic) for basic in check_of(name).needs[:-1])
    ]


def check_of(feature: str) -> CheckKind:
    """Return the check that tests the claim of a feature: the first one whose `needs` end with it."""
    if feature == "inplace_backward":
        feature = "backward"
    return next(kind for kind in check_kinds().values() if kind.needs[-1:] == (feature,))


def _tried(context: Context, feature: str) -> Iterator[Verdict]:
    """Yield a verdict for each sample, and one more for the feature if it works, or if all samples are inconclusive."""
    if feature == "backward" and tried(lambda: _lists_all(context)) is True:
        yield HOLDS  # nothing is disclaimed
        return
    answers, has_leaves = set[Answer](), False
    plain, context = context, replace(context, requires_grad=feature == "backward" or context.requires_grad)
    for sample in context.case.samples:
        subject = prepared(context, sample, derivative=True)
        if isinstance(subject, Verdict) and _accepts_plain_tensors(plain, sample):
            answers.add("refused")
            yield with_sample(HOLDS, sample)
        elif isinstance(subject, Verdict):
            answers.add("silent" if subject.passed else "untried")
            yield subject
        else:
            said, verdict = _answer(feature, subject)
            answers.add(said)
            has_leaves = has_leaves or bool(subject.leaves)
            yield with_sample(verdict, sample, subject)
    if answers & {"refused", "wrong", "untried"}:
        return
    if "works" in answers:
        title = f"unsupported: {feature} is disclaimed, but works on all samples"
        key = f"supports.{feature}"
        yield fails(title, f"take {key} out of the spec", feature=feature, **remedy(key, True))
    else:
        hint = "add a sample that does" if has_leaves else OF_NO_LEAVES
        yield cannot(f"unsupported: no sample shows whether {feature} is refused", hint)


def _accepts_plain_tensors(context: Context, sample: Sample) -> bool:
    """Return whether an operator without a derivative accepts a sample whose tensors do not require grad."""
    return not (context.requires_grad or isinstance(prepared(context, sample, derivative=False), Verdict))


def _answer(feature: str, subject: Subject) -> tuple[Answer, Verdict]:
    """Try a feature on a sample. Return what the operator does, and the verdict on the sample."""
    if not can_show(feature, subject):
        return "silent", inapplicable(f"the sample shows nothing about {feature}")
    kind = check_of(feature)
    # Never by torch's gradcheck, which cannot test all features.
    own = replace(subject.context.under(kind.name), by_torch=False)
    tested = own.subject(subject.sample)  # with inputs that no call has changed
    if feature == "backward" and isinstance(subject.supports.backward, tuple):
        others = tried(lambda: _of_others(tested))
        if isinstance(others, Exception):
            return "refused", HOLDS
        if not others.leaves or not all(leaf.numel() for leaf in others.leaves):
            return "silent", inapplicable("no argument is left out of supports.backward here")
        tested = others
    # An exception in one of these conditions is reported by the check below.
    if feature == "backward" and tried(lambda: with_gradient(tested.outputs)) == ():
        return "refused", HOLDS
    if feature == "forward_ad" and subject.supports.backward is False and tried(lambda: has_tangents(tested)) is False:
        return "refused", HOLDS
    verdict = verdict_by(implementation(kind).judge, tested)
    meaning = _meaning(kind, verdict)
    if meaning == "wrong":
        title = f"unsupported: {feature} is disclaimed, but gives wrong numbers instead of an error"
        lines = [verdict.title, *(line for line in verdict.detail.splitlines() if line not in ADVICE)]
        lines.append(_advice(feature, subject))
        return meaning, fails(title, "\n".join(filter(None, lines)), feature=feature)
    if meaning == "silent":
        return meaning, inapplicable(verdict.title)
    return meaning, verdict if meaning == "untried" else HOLDS


def _advice(feature: str, subject: Subject) -> str:
    """Return what to write if an operator cannot refuse a disclaimed feature; empty if it can."""
    if subject.function.writes and feature in ("backward", "forward_ad"):
        return OF_WRITING
    if feature == "backward" and isinstance(subject.supports.backward, tuple):
        return OF_CONSTANTS
    return OF_LIBRARY if feature == "forward_ad" and subject.case.operator.spec.is_registered else ""


def _meaning(kind: CheckKind, verdict: Verdict) -> Answer:
    if verdict.state == "error":
        return "untried"
    if verdict.state == "out of reach":
        # torch.func never takes the jvp of a jvp in Python (see `compare.NO_DOUBLE_JVP`), which thus cannot raise.
        return "refused" if kind.name == "fwd_over_fwd" else "silent"
    if verdict.passed:
        return "silent" if verdict.untested else "works"
    return "refused" if verdict.state == "refused" or kind.may_be_wrong else "wrong"


def can_show(feature: str, subject: Subject) -> bool:
    """Return whether a sample can show that a feature works, or that it does not."""
    if feature == "masked":
        return subject.sample.is_sparse
    has_leaves = isinstance(subject.supports.backward, tuple) or bool(subject.leaves)
    return has_leaves and all(leaf.numel() for leaf in subject.leaves)


def _lists_all(context: Context) -> bool:
    """Return whether supports.backward lists every argument that could have a derivative, in every sample."""
    if not isinstance(context.case.claims.supports.backward, tuple):
        return False
    return not any(_of_others(context.subject(sample)).leaves for sample in context.case.samples)


def _of_others(subject: Subject) -> Subject:
    """Return the operator as a function of the arguments that supports.backward leaves out."""
    claim = subject.supports.backward
    chosen = subject.context.among(claim if isinstance(claim, tuple) else ())
    inputs = subject.context.realize(subject.sample, wrt=lambda path: not chosen(path))
    return subject.context.at(subject.sample, inputs)
