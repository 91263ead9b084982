"""Forward and backward work in the dtypes claimed and, where a spec says so, in no other.

To work is to be right: up to rounding, the values are those of a finer dtype for the same numbers. Whether
gradients are right is the claim of `low_precision_grad`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from opcheck.checks.base import Context, Subject
from opcheck.checks.calls import cotangents_of, outputs_of
from opcheck.checks.judging import PerSample, nobody_tests, too_much
from opcheck.checks.truth import truth_of_values
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, one_line, remedy
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.autodiff import vjp
from opcheck.derivatives.rounding import mismatch
from opcheck.samples.modules import ModuleCall
from opcheck.samples.results import WHAT_IS_TESTED, Untestable, with_gradient
from opcheck.spec.dtypes import is_differentiable


def check(context: Context) -> Iterator[Verdict]:
    """Test what the spec claims about the dtype of the case: that it works, or that it is refused."""
    claims, dtype = context.case.claims, context.case.dtype
    if dtype not in claims.forward:
        yield _refused(context, "forward")
        return
    # Without a backward pass, some operators refuse inputs that require grad.
    forward = context if dtype in claims.backward else replace(context, requires_grad=False)
    judge = _Judge(dtype, claims.supports.backward is not False and dtype in claims.backward)
    sound = True
    for verdict in PerSample(judge, derivative=False, refusal=partial(_broken, dtype))(forward):
        yield verdict
        sound = sound and verdict.passed
    if sound and judge.backward and not judge.pulled_back:
        yield nobody_tests("the claim about backward", "dtypes", judge.reasons)
    if claims.exact and claims.supports.backward and is_differentiable(dtype) and dtype not in claims.backward:
        yield _refused(context, "backward")


def _broken(dtype: str, refusal: str) -> Verdict:
    # Elsewhere a refused sample is an error. Here, that the operator accepts the dtype is the claim.
    title = f"dtypes: forward is claimed for {dtype}, but {refusal}"
    return fails(title, _take_out(dtype, "forward"), **remedy("dtypes.forward", f"-{dtype}"))


def _take_out(dtype: str, what: str) -> str:
    return f'if it is not meant to work in {dtype}, take "{dtype}" out of dtypes.{what}'


@dataclass
class _Judge:
    """Judges one sample after the other: forward, then backward where it is claimed."""

    dtype: str
    backward: bool
    pulled_back: bool = False
    """Whether the backward pass of any sample was tested."""
    reasons: dict[str, None] = field(default_factory=dict)
    """Why that of others was not."""

    def __call__(self, subject: Subject) -> Verdict:
        verdict = self._values(subject)
        return self._gradients(subject) if verdict.passed and self.backward else verdict

    def _values(self, subject: Subject) -> Verdict:
        truth = truth_of_values(subject)
        if truth is None:
            return HOLDS  # before a sample is judged, the operator has been called
        computation = truth.computation(subject, lambda function, _: outputs_of(function))
        try:
            right = computation.right
        except NO_REFUSAL:
            raise
        except Exception as error:
            return cannot(f"dtypes: {truth.source} would tell what is right, but raises {one_line(error)}")
        got, names = subject.outputs, subject.output_names
        title = f"dtypes: values in {self.dtype} are not those of {truth.source} for the same numbers: "
        if why := mismatch(got, right, names):
            return fails(f"{title}{why}", _take_out(self.dtype, "forward"))
        off = computation.deviation(tuple, got, names)
        if off is None:
            return HOLDS
        return fails(f"{title}{off.headline()}", "\n".join([*off.lines(), _take_out(self.dtype, "forward")]))

    def _gradients(self, subject: Subject) -> Verdict:
        if not subject.leaves:
            return self._untested("no tensor to differentiate with respect to")
        try:
            with torch.enable_grad():
                outputs = with_gradient(subject.function(*subject.leaves))
            if not outputs:
                return self._untested("no output requires grad: there is no backward pass")
            vjp(outputs, subject.leaves, cotangents_of(outputs))
        except NO_REFUSAL:
            raise
        except Exception as error:
            what = f"dtypes: backward is claimed for {self.dtype}, but is refused: {one_line(error)}"
            return fails(what, _take_out(self.dtype, "backward"), **remedy("dtypes.backward", f"-{self.dtype}"))
        if not any(output.numel() for output in outputs) or not any(leaf.numel() for leaf in subject.leaves):
            return self._untested("inputs or outputs are empty")
        self.pulled_back = True
        return HOLDS

    def _untested(self, why: str) -> Verdict:
        self.reasons[why] = None
        return HOLDS


def _refused(context: Context, what: str) -> Verdict:
    """Return the verdict on a dtype that is not claimed: at least one sample must be refused. Some may slip through."""
    dtype, tried = context.case.dtype, 0
    operator = context.operator
    if isinstance(operator, ModuleCall) and operator.converts and not is_differentiable(dtype):
        return HOLDS  # Module.to refuses it, so that there is no such module to call
    for sample in context.samples:
        try:
            subject = context.subject(sample)
        except Exception:
            continue  # the sample does not exist in this dtype
        tried += 1
        try:
            if what == "forward":
                subject.function.result(*(leaf.detach() for leaf in subject.leaves))
            elif not _has_backward(subject):
                return HOLDS
        except Untestable as error:
            return cannot(str(error), WHAT_IS_TESTED)
        except NO_REFUSAL as error:
            return too_much(error)
        except Exception:
            return HOLDS
    if not tried:
        return cannot(f"dtypes: no sample can be made in {dtype}, so it is unknown whether {dtype} is refused")
    return fails(
        f"dtypes: {what} is not claimed for {dtype}, but works on all samples",
        f'add "{dtype}" to dtypes.{what}, or take dtypes.exact out, so that the spec claims nothing about {dtype}',
        **remedy(f"dtypes.{what}", dtype),
    )


def _has_backward(subject: Subject) -> bool:
    """Run the backward pass, and tell whether there is one. Passes on its exceptions."""
    with torch.enable_grad():
        outputs = with_gradient(subject.function(*subject.leaves))  # of the leaves themselves, and no copies
    if outputs:
        vjp(outputs, subject.leaves, [torch.ones_like(output) for output in outputs])
    return bool(outputs)
