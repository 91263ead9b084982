"""What a spec disclaims is refused with an error: it neither works nor gives wrong numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import torch

from opcheck.checks import aliasing, calling_context, purity, saved, vmap
from opcheck.checks.context import Context
from opcheck.checks.masked import under
from opcheck.checks.ordinary import differentiate_twice
from opcheck.checks.per_sample import Judge, prepared, too_coarse, too_much, with_sample
from opcheck.checks.raw_gradients import functions_of
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, inapplicable, remedy, told, untested
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.autodiff import pushed
from opcheck.samples import realize
from opcheck.spec.claims import Supports


class Answer(Enum):
    """What an operator does when it is asked for a disclaimed feature."""

    REFUSED = "refused"
    WORKS = "works"
    WRONG = "wrong"
    SILENT = "silent"
    """The sample cannot show anything about it."""


Probe = Callable[[Subject], tuple[Answer, str]]


def check(context: Context) -> Iterator[Verdict]:
    """Try each disclaimed feature on all samples. None may give wrong numbers, and at least one must be refused."""
    if context.numbers is None:
        yield too_coarse(context)
        return
    features = disclaimed(context.case.claims.supports, context.case.variant.kind)
    if not features:
        yield untested("what the spec disclaims concerns other variants")
    for feature in features:
        yield from _probed(context, feature)


TESTED_ELSEWHERE = ("out", "outputs", "vmap", "inplace_backward")
"""What `variants` and `detached` test, and what only some variants have."""

OF_THE_FUNCTION = ("context", "saved", "aliasing")
"""What is tested of the function alone, and not of its variants."""


OF_FORWARD_MODE = ("fwd_over_rev", "rev_over_fwd", "fwd_over_fwd")
OF_SECOND_ORDER = (*OF_FORWARD_MODE, "third_order")
"""The features that build on second order, and those of them that build on forward mode as well."""


def disclaimed(supports: Supports, variant: str) -> list[str]:
    """Return the features to try. A feature that builds on a disclaimed one is not tried separately."""
    names = [name for name in supports.disclaimed() if name not in TESTED_ELSEWHERE]
    if variant == "inplace":
        names = ["inplace_backward"] if not supports.inplace_backward else names
        names = [name for name in names if name not in OF_THE_FUNCTION]
    else:
        names += [name for name in supports.disclaimed() if name == "vmap"]
    if supports.backward is False:
        gone = {"batched_grad", "second_order", "undefined_grad", "masked", "saved", "aliasing", *OF_SECOND_ORDER}
        names = [name for name in names if name not in gone]
    if not supports.forward_ad:
        names = [name for name in names if name not in ("batched_forward_grad", *OF_FORWARD_MODE)]
    if not supports.second_order:
        names = [name for name in names if name not in OF_SECOND_ORDER]
    return names


def _probed(context: Context, feature: str) -> Iterator[Verdict]:
    """Yield a verdict for each sample, and one more for the feature if no sample refuses it."""
    answers, untried = set(), False
    for sample in context.samples:
        subject = prepared(context, sample, derivative=True)
        if isinstance(subject, Verdict):
            untried = untried or not subject.passed
            yield subject
            continue
        try:
            answer, text = _answer(feature, subject)
        except NO_REFUSAL as error:
            untried = True
            yield with_sample(too_much(error), sample, subject)
            continue
        answers.add(answer)
        verdict = HOLDS
        if answer is Answer.SILENT:
            verdict = inapplicable(text)
        elif answer is Answer.WRONG:
            title = f"unsupported: {feature} is disclaimed, but gives wrong numbers instead of an error"
            verdict = fails(title, text, feature=feature)
        yield with_sample(verdict, sample, subject)
    if untried or answers & {Answer.REFUSED, Answer.WRONG}:
        return
    if Answer.WORKS in answers:
        title = f"unsupported: {feature} is disclaimed, but works on all samples"
        key = f"supports.{feature}"
        yield fails(title, f"take {key} out of the spec", feature=feature, **remedy(key, True))
    else:
        yield cannot(f"unsupported: no sample shows whether {feature} is refused", "add a sample that does")


def _answer(feature: str, subject: Subject) -> tuple[Answer, str]:
    if not applies(feature, subject):
        return Answer.SILENT, f"the sample shows nothing about {feature}"
    try:
        return PROBES[feature](subject)
    except NO_REFUSAL:
        raise
    except Exception as error:
        return Answer.REFUSED, told(error)


def applies(feature: str, subject: Subject) -> bool:
    """Tell whether a sample can show if a feature works."""
    if feature == "masked":
        return subject.sample.is_sparse
    has_leaves = isinstance(subject.context.case.claims.supports.backward, tuple) or bool(subject.leaves)
    return has_leaves and all(leaf.numel() for leaf in subject.leaves)


def _asked(check: str, own_vmap: bool = False) -> Probe:
    """Return the probe that puts the claim of a check to the engine.

    own_vmap: whether the claim is about `torch.func.vmap`, so that the default engine has to be asked. torch's own
    gradcheck has another vmap, which takes functions that `torch.func` refuses.
    """

    def probe(subject: Subject) -> tuple[Answer, str]:
        engine = subject.context.default_engine if own_vmap else subject.context.engine
        found = engine.ask(check, subject.request)
        if found is None:
            return Answer.WORKS, ""
        return (Answer.REFUSED if found.kind == "refused" else Answer.WRONG), found.text

    return probe


def _backward(subject: Subject) -> tuple[Answer, str]:
    if isinstance(subject.context.case.claims.supports.backward, tuple):
        return _backward_of_others(subject)
    if not subject.differentiable_outputs:
        return Answer.REFUSED, "no output requires grad"
    return _asked("backward")(subject)


def _backward_of_others(subject: Subject) -> tuple[Answer, str]:
    """Ask for the derivatives with respect to the arguments that supports.backward leaves out."""
    context = subject.context
    claim = context.case.claims.supports.backward
    chosen = context.among(claim if isinstance(claim, tuple) else ())
    inputs = realize(
        subject.sample,
        context.case.dtype,
        context.device,
        context.case.seed(subject.sample),
        modules=context.settings.modules,
        wrt=lambda path: not chosen(path),
        module=context.module(context.case.variant.path),
    )
    if not inputs.leaves or not all(leaf.numel() for leaf in inputs.leaves):
        return Answer.SILENT, "no argument is left out of supports.backward here"
    others = Subject(context, subject.sample, inputs, context.function(subject.sample, inputs))
    if not others.differentiable_outputs:
        return Answer.REFUSED, "no output requires grad"
    return _asked("backward")(others)


def _forward_ad(subject: Subject) -> tuple[Answer, str]:
    leaves = [leaf.detach() for leaf in subject.leaves]
    _, tangents = pushed(subject.function, leaves, [torch.ones_like(leaf) for leaf in leaves])
    if subject.context.case.claims.supports.backward is False and not any(t is not None for t in tangents):
        return Answer.REFUSED, "no output has a tangent"
    return _asked("forward_ad")(subject)


def _second_order(subject: Subject) -> tuple[Answer, str]:
    differentiate_twice(subject)
    return _asked("rev_over_rev")(subject)


def _masked(subject: Subject) -> tuple[Answer, str]:
    found = subject.context.engine.ask("masked", under(subject, masked=True))
    # Semantics are a convention: an operator that does not follow them has no reason to raise.
    return (Answer.WORKS, "") if found is None else (Answer.REFUSED, found.text)


def _fwd_over_fwd(subject: Subject) -> tuple[Answer, str]:
    answer, text = _asked("fwd_over_fwd")(subject)
    # torch.func never asks a jvp in Python for its own tangents: see `higher_order.NOT_ASKED`. It cannot refuse.
    silent = answer is Answer.WRONG and functions_of(subject.differentiable_outputs)
    return (Answer.REFUSED if silent else answer), text


def _vmap(subject: Subject) -> tuple[Answer, str]:
    verdict = vmap.judge(subject)
    return (Answer.WORKS, "") if verdict.passed else (Answer.WRONG, verdict.detail)


def _does_not_hold(judge: Judge) -> Probe:
    """Return the probe for a claim that is disclaimed rightly if its check fails. The operator need not raise."""

    def probe(subject: Subject) -> tuple[Answer, str]:
        verdict = judge(subject)
        if verdict is None or verdict.untested:
            return Answer.SILENT, "the sample shows nothing about it"
        return (Answer.WORKS, "") if verdict.passed else (Answer.REFUSED, verdict.title)

    return probe


PROBES: dict[str, Probe] = {
    "backward": _backward,
    "forward_ad": _forward_ad,
    "batched_grad": _asked("batched_grad", own_vmap=True),
    "batched_forward_grad": _asked("batched_forward_grad", own_vmap=True),
    "second_order": _second_order,
    "fwd_over_rev": _asked("fwd_over_rev"),
    "rev_over_fwd": _asked("rev_over_fwd"),
    "fwd_over_fwd": _fwd_over_fwd,
    "third_order": _asked("rev_over_rev_over_rev"),
    "inplace_backward": _asked("backward"),
    "undefined_grad": _asked("undefined_grad"),
    "masked": _masked,
    "vmap": _vmap,
    "purity": _does_not_hold(purity.judge),
    "context": _does_not_hold(calling_context.judge),
    "saved": _does_not_hold(saved.judge),
    "aliasing": _does_not_hold(aliasing.judge),
}
