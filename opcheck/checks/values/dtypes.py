"""Forward and backward work in the claimed dtypes and, if the spec sets `dtypes.exact`, in no other.

Forward works if its values agree, up to rounding, with those in a finer dtype for the same inputs. Whether gradients
are right is tested by `low_precision_grad`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from opcheck.checks.calls import ordinary
from opcheck.checks.per_sample import PerSample, out_of_memory, refused_sample
from opcheck.checks.subject import Context, Subject
from opcheck.checks.truth import perturbed, truth_of_values, values_of
from opcheck.checks.verdict import (
    EMPTY,
    HOLDS,
    NO_GRAPH,
    NO_LEAVES,
    Verdict,
    cannot,
    fails,
    how_to_take_out,
    refused_in,
    remedy,
)
from opcheck.derivatives import NO_REFUSAL, tried
from opcheck.derivatives.rounding import mismatch
from opcheck.samples.modules import ModuleCall
from opcheck.samples.results import WHAT_IS_TESTED, Untestable
from opcheck.spec.dtypes import is_differentiable
from opcheck.text import one_line


def check(context: Context) -> Iterator[Verdict]:
    """Test what the spec claims about the dtype of the case: that it works, or that it is refused."""
    claims, dtype = context.case.claims, context.case.dtype
    if dtype not in claims.forward:
        yield _refused(context, "forward")
        return
    # Some operators without a backward pass reject inputs that require grad.
    forward = context if dtype in claims.backward else replace(context, requires_grad=False)
    backward = claims.supports.backward is not False and dtype in claims.backward
    judge, tests = (_values_and_gradients, "the claim about backward") if backward else (_values, "the claim")
    yield from PerSample(judge, derivative=False, refusal=_refused_dtype, tests=tests)(forward)
    if claims.exact and claims.supports.backward and is_differentiable(dtype) and dtype not in claims.backward:
        yield _refused(context, "backward")


def _refused_dtype(subject: Subject, why: str) -> Verdict:
    """Return a failure, since the claim is that the dtype is accepted; an error if no claimed dtype is accepted."""
    dtype, claims = subject.case.dtype, subject.case.claims.forward
    others = [other for other in claims if other != dtype and subject.sample.goes_with(other)]
    if others and not any(_accepts(subject, other) for other in others):
        return refused_sample(subject, why)
    return refused_in("dtypes", dtype, "forward", why)


def _accepts(subject: Subject, dtype: str) -> bool:
    """Return whether the operator accepts the sample in another dtype."""
    context, sample = subject.context, subject.sample
    outputs = tried(lambda: values_of(context.at(sample, context.realize(sample, finer=dtype))))
    return not isinstance(outputs, Exception)


def _values_and_gradients(subject: Subject) -> Verdict:
    verdict = _values(subject)
    return _gradients(subject) if verdict.passed else verdict


def _values(subject: Subject) -> Verdict:
    truth = truth_of_values(subject)
    if truth is None:
        return HOLDS  # the operator has already been called without an error
    computation = truth.computation(values_of)
    right = tried(lambda: computation.right)
    if isinstance(right, Exception):
        return cannot(f"dtypes: cannot compute the expected values: {truth.source} raised {one_line(right)}")
    dtype, got, names = subject.case.dtype, subject.outputs, subject.output_names
    title = f"dtypes: values in {dtype} are not those of {truth.source} for the same numbers: "
    if why := mismatch(got, right, names):
        return fails(f"{title}{why}", how_to_take_out(dtype, "forward"))
    off = computation.deviation(tuple, got, names, tested=perturbed(subject, values_of))
    if off is None:
        return HOLDS
    return fails(f"{title}{off.headline()}", "\n".join([*off.lines(), how_to_take_out(dtype, "forward")]))


def _gradients(subject: Subject) -> Verdict:
    if not subject.leaves:
        return NO_LEAVES
    here = tried(lambda: ordinary(subject))
    if isinstance(here, Exception):
        error = here.__cause__ or here
        return refused_in("dtypes", subject.case.dtype, "backward", f"is refused: {one_line(error)}", cause=error)
    if not here.has_graph:
        return replace(NO_GRAPH, fields=remedy("dtypes.backward", f"-{subject.case.dtype}"))
    if not here.values.numel() or not any(leaf.numel() for leaf in subject.leaves):
        return EMPTY
    return HOLDS


def _refused(context: Context, what: str) -> Verdict:
    """Return the verdict on a dtype that is not claimed: at least one sample must be refused; others may work."""
    dtype, tries = context.case.dtype, 0
    operator = context.operator
    if isinstance(operator, ModuleCall) and operator.converts and not is_differentiable(dtype):
        return HOLDS  # Module.to rejects the dtype, so there is no module to call
    for sample in context.case.samples:
        try:
            subject = context.subject(sample)
        except Exception:
            continue  # the sample cannot be made in this dtype
        tries += 1
        try:
            works = tried(partial(_works, subject, what))
        except NO_REFUSAL as error:
            return out_of_memory(error)
        if isinstance(works, Untestable):
            return cannot(str(works), WHAT_IS_TESTED)
        if works is not True:
            return HOLDS
    if not tries:
        return cannot(f"dtypes: no sample can be made in {dtype}, so it is unknown whether {dtype} is refused")
    return fails(
        f"dtypes: {what} is not claimed for {dtype}, but works on all samples",
        f'add "{dtype}" to dtypes.{what}, or take dtypes.exact out, so that the spec claims nothing about {dtype}',
        **remedy(f"dtypes.{what}", dtype),
    )


def _works(subject: Subject, what: str) -> bool:
    """Run the forward pass and return True, or run both passes and return whether there is a graph.

    Exceptions of the operator propagate.
    """
    if what == "forward":
        subject.function.result(*(leaf.detach() for leaf in subject.leaves))
        return True
    return ordinary(subject).has_graph
