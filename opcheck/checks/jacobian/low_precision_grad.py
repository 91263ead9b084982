"""Outputs and first-order derivatives in a low-precision dtype are right up to rounding.

Outputs, gradients and tangents are compared with exact results for the same inputs (see truth.py). The bound follows
from the dtype and from the condition of each result (see derivatives/rounding.py). If there is a differentiable
reference, the usual rule of the field applies as well: the error is at most `times` the error of the reference in the
same dtype.

Samples also vary, unless derive = "none". In float32, forward also runs under autocast to bfloat16: each result as a
whole may be off by a multiple of the bound for bfloat16 (`FAR_OFF`). In half precision, samples vary in three ways.
With all inputs but the first in float32, as parameters often are, the same bound applies, if the operator accepts such
inputs. In samples with long sums and, in float16, with large numbers, each result as a whole may be off by a multiple
of the bound: a kernel has to accumulate in single precision. If the operator accepts half precision only, samples also
vary as those of the check `derived` do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import itemgetter
from time import thread_time
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.attempts import SLOW, Attempt, at_derived, attempt, attempts, attempts_by
from opcheck.checks.calls import Call, push, recorded, tangents_of
from opcheck.checks.looks import Answer, memories_of
from opcheck.checks.per_sample import PerSample
from opcheck.checks.raw_gradients import raw_gradients
from opcheck.checks.subject import Context, Subject
from opcheck.checks.surroundings import Surroundings, autocast_on, within
from opcheck.checks.truth import (
    Parts,
    Truth,
    differentiable_reference,
    first_order,
    names_of_parts,
    perturbed,
    truth_of,
)
from opcheck.checks.varied import derives_alone
from opcheck.checks.verdict import (
    EMPTY,
    HOLDS,
    NO_GRAPH,
    NO_LEAVES,
    Verdict,
    cannot,
    combine,
    fails,
    how_to_take_out,
    refused_in,
    remedy,
    untested,
)
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import vector
from opcheck.derivatives.rounding import Computation, Moved, mismatch, rounding_unit
from opcheck.samples.derive import Derived, enlarged, lengthened, smallest
from opcheck.samples.results import with_gradient
from opcheck.spec.dtypes import double_of
from opcheck.spec.library import Sample
from opcheck.strides import MEMORIES
from opcheck.text import one_line

HALF = (torch.float16, torch.bfloat16)
FAR_OFF = 8
"""The multiple of the rounding bound that a long sum, or a result under autocast, may be off by. A sum that stopped
growing is off by far more."""
LOST = 1 / 16
"""The smallest relative error of a result that is wrong as a whole, as of a sum that stops growing. Numbers out of
range of the dtype may lose less."""
FAR = 10
"""A result must be finite if the exact ones are below the largest number of the dtype divided by this."""
TELLING = 1 / 2
"""The largest bound, as a share of the result, with which a comparison under autocast or with large numbers is
conclusive."""
OF_ONE_SIGN = "for cotangents and tangents of one sign, at"
LAID_OUT = "for cotangents and tangents of one sign, cotangents in the same memory as the inputs, at"
WELL_CONDITIONED = 3
"""The rounding bound of a sum of numbers of one sign, in roundings of the result. If terms cancel out, the bound is
larger: a result that is off does not show that a sum has stopped growing."""


@dataclass(frozen=True)
class ExactParts:
    """The exact results to compare with, for given cotangents and tangents."""

    truth: Truth
    cotangents: Tensors
    tangents: Tensors

    @property
    def origin(self) -> str:
        """The line of messages that says what results are compared with."""
        return f"compared with {self.truth.source}, for the same numbers"

    @cached_property
    def computation(self) -> Computation[Parts]:
        """The exact results, and their change if the inputs are rounded."""
        return self.truth.computation(self.call)

    @cached_property
    def call(self) -> Callable[[Subject, Moved], Parts]:
        """Computes the results of an operator, with perturbed cotangents and tangents."""
        cotangents, tangents = _wide(self.cotangents), _wide(self.tangents)
        return lambda own, move: first_order(own, map(move, cotangents), [*map(move, tangents)])

    def likewise(self, subject: Subject) -> Parts | Exception:
        """Return the results of an operator for the same cotangents and tangents, or the exception that it raises."""
        return tried(lambda: first_order(subject, self.cotangents, self.tangents))


def check(context: Context) -> Iterator[Verdict]:
    """Judge all samples. At least one of them must test a gradient."""
    return PerSample(partial(_judge, set()), derivative=False, tests="a gradient")(context)


def _judge(finite: set[str], subject: Subject) -> Verdict:
    """Judge a sample and its variations.

    finite: the names of the samples whose gradients stay finite if the arguments are rounded. This is computed until
        there is one; as long as there is none, samples that pass count as untested.
    """
    if not subject.leaves:
        return NO_LEAVES
    truth = truth_of(subject)
    if truth is None:
        return _unknown(subject)
    call = recorded(subject)
    if not call.has_graph:
        return NO_GRAPH
    if not all(any(map(torch.numel, tensors)) for tensors in (subject.leaves, with_gradient(call.outputs))):
        return EMPTY
    tangents = tangents_of(subject)
    got = _tried(subject, call, tangents)
    if isinstance(got, Verdict):
        return got
    exact = ExactParts(truth, call.cotangents, tangents)
    right = tried(lambda: exact.computation.right)
    if isinstance(right, Exception):
        return cannot(
            f"low_precision_grad: cannot compute the expected gradients: {truth.source} raised {one_line(right)}"
        )
    if not finite and exact.computation.stays_finite(itemgetter("gradients")):
        finite.add(subject.sample.name)
    verdict = combine(_verdicts(subject, exact, got, _by_reference(subject, exact)))
    if verdict.passed and not finite:
        verdict = untested("no gradient stays finite if the arguments are rounded")
    if not verdict.passed or subject.context.derive == "none":
        return verdict
    counts = Counter[str]()
    for said in _varied(subject, exact):
        if isinstance(said, Verdict):
            return said
        counts[said] += 1
    return replace(verdict, fields={**verdict.fields, "derived": dict(counts)}) if counts else verdict


def _by_reference(subject: Subject, exact: ExactParts) -> Parts | None:
    """Return the results of the differentiable reference in the same dtype; None if there is none, or it raises."""
    reference = differentiable_reference(subject)
    own = None if reference is None else exact.likewise(reference)
    return None if isinstance(own, Exception) else own


def _varied(subject: Subject, exact: ExactParts) -> Iterator[Verdict | Answer]:
    """Yield a failure or an answer for each variation of a sample.

    In float32, that is autocast; in half precision, mixed dtypes, then long sums; in float16, also large numbers.
    """
    varies_dtype = "dtype" in subject.sample.vary
    if subject.context.dtype is torch.float32 and varies_dtype and (autocast := autocast_on(subject)) is not None:
        yield _under_autocast(subject, exact, autocast)
    if subject.context.dtype not in HALF:
        return
    if varies_dtype and (others := _mixed(subject)) is not None:
        yield _beside_float32(others, exact)
    # One half-precision dtype is enough: a kernel accumulates in the dtype of its inputs for both, or for neither.
    is_first = subject.context.dtype is torch.bfloat16 or "bfloat16" not in subject.case.claims.backward
    extremes = [LONG_SUMS] * is_first + [LARGE_NUMBERS] * (subject.context.dtype is torch.float16)
    variations: list[tuple[Vary, Judge]] = [(partial(attempts_by, one.derive), one.judged) for one in extremes]
    if derives_alone(subject.context):  # `derived`, which needs a more precise dtype, has no case
        variations.append((partial(attempts, thorough=subject.context.is_thorough), _at_other_sizes))
    for vary, judge in variations:
        for one, made in vary(context=subject.context, sample=subject.sample):
            said = _at_derived(made, judge)
            yield _made_smaller(subject, one, made, said, judge) if isinstance(said, Verdict) else said


Vary = Callable[..., Iterator[tuple[Derived, Attempt]]]
"""A function that yields the samples derived from `sample` in `context`, each with a call."""
Judge = Callable[[Subject, ExactParts, Parts], Verdict | Answer]
"""A function that compares results at a derived sample with the exact ones. Returns a failure, or an answer."""


@dataclass(frozen=True)
class Extreme:
    """Samples that are extreme for half precision."""

    where: str
    derive: Callable[[Sample], Iterator[Derived]]
    """Yields them for a written sample."""
    least: float
    """The smallest relative error of a wrong result."""
    most: Callable[[float], float]
    """For a rounding unit, the largest bound, as a share of the result, with which a comparison is conclusive."""
    remedy: str

    def judged(self, subject: Subject, exact: ExactParts, got: Parts) -> Verdict | Answer:
        """Return a failure if a result is off by far too much, or is infinite, else an answer.

        Each result is compared as a whole. A sum that is accumulated in the dtype of the case stops growing, and is off
        by many times the rounding bound; the square of a large number is infinite, even if its root is what is
        returned. If exact results are out of the range of the dtype, the answer is "inconclusive".
        """
        where, most = f"in {subject.case.dtype}, {self.where}", self.most(rounding_unit(subject.context.dtype))
        if _are_finite(got):
            said = _as_a_whole(subject, exact, got, where, most, self.least)
        else:
            said = _overflow(subject, exact, got, where)
        return replace(said, detail=f"{said.detail}\n{self.remedy}") if isinstance(said, Verdict) else said


LONG_SUMS = Extreme(
    "where sums are long",
    lengthened,
    LOST,
    lambda unit: WELL_CONDITIONED * FAR_OFF * unit,
    remedy='add up, and compute positions, in float32; if such sizes are not meant, write vary = ["-sum"]',
)
LARGE_NUMBERS = Extreme(
    "where numbers are large",
    enlarged,
    TELLING,
    lambda unit: TELLING,
    remedy="an intermediate result exceeds the range of the dtype: compute it in float32, or scale the numbers first\n"
    'if that is meant, write vary = ["-sum"]',
)


def _at_other_sizes(subject: Subject, exact: ExactParts, got: Parts) -> Verdict | Answer:
    """Return a failure if a result is not right up to rounding, as at a written sample, else an answer."""
    if not _are_finite(got):
        return _overflow(subject, exact, got, f"in {subject.case.dtype}")
    verdict = combine(_verdicts(subject, exact, got, None))
    return "hold" if verdict.passed else replace(verdict, realized=subject.inputs.describe())


def _made_smaller(subject: Subject, one: Derived, made: Attempt, wrong: Verdict, judge: Judge) -> Verdict:
    """Return the verdict on the smallest sample that still fails. A sample that is expected to fail is not shrunk."""
    if subject.expected:
        return at_derived(one, wrong, subject.check, one.sample, how=OF_ONE_SIGN)

    def said(sample: Sample) -> Verdict | Answer:
        return _at_derived(attempt(subject.context, made.written, sample), judge)

    def look(sample: Sample) -> str:
        answer = said(sample)
        return "wrong" if isinstance(answer, Verdict) else answer

    sample, words = smallest(one, made.written, look, "wrong")
    again = said(sample)
    if isinstance(again, Verdict):  # of a sum, the longer one shows more clearly how much is lost
        wrong = again if judge is _at_other_sizes else replace(wrong, realized=again.realized)
    return at_derived(one, wrong, subject.check, sample, words, LAID_OUT if memories_of(sample) else OF_ONE_SIGN)


def _at_derived(made: Attempt, judge: Judge) -> Verdict | Answer:
    """Compare the results at a derived sample, for cotangents and tangents of one sign.

    Cotangents lie in memory as the inputs do.

    If exact results are unknown, the answer is "inconclusive".
    """
    if made.answer is not None:
        return made.answer
    assert made.subject is not None
    subject = made.subject
    truth = tried(lambda: truth_of(subject))
    if not isinstance(truth, Truth):
        return "inconclusive"
    began = thread_time()
    call = recorded(subject)
    cotangents, tangents = (tuple(map(torch.abs, own)) for own in (call.cotangents, tangents_of(subject)))
    for memory in sorted(memories_of(subject.sample) & MEMORIES.keys())[:1]:
        cotangents = tuple(map(MEMORIES[memory].make, cotangents))
    exact = ExactParts(truth, cotangents, tangents)
    got = exact.likewise(subject)
    if thread_time() - began > SLOW:
        return "slow"
    if isinstance(got, Exception) or isinstance(tried(lambda: exact.computation.right), Exception):
        return "refused in backward"
    return judge(subject, exact, got)


def _overflow(subject: Subject, exact: ExactParts, got: Parts, where: str) -> Verdict | Answer:
    """Return a failure if a result is not finite although all exact ones are far within the range of the dtype.

    Else "inconclusive".
    """
    right, most = exact.computation.right, torch.finfo(subject.context.dtype).max / FAR
    are_within = all(bool((vector(results).abs() < most).all()) for results in right.values())
    named = names_of_parts(subject)
    for part, results in got.items() if are_within else ():
        for name, result, expected in zip(named[part], results, right[part], strict=True):
            lost = (~vector([result]).isfinite()).nonzero()
            if lost.numel():
                one, other = (float(vector([each])[int(lost[0])]) for each in (result, expected))
                title = f"low_precision_grad: {where}, {name} is {one:g} for {other:.3g}"
                verdict = fails(title, exact.origin)
                return replace(verdict, realized=subject.inputs.describe())
    return "inconclusive"


def _are_finite(got: Parts) -> bool:
    return all(bool(vector(results).isfinite().all()) for results in got.values())


def _as_a_whole(
    subject: Subject,
    exact: ExactParts,
    got: Parts,
    where: str,
    most: float,
    least: float = LOST,
    dtype: torch.dtype | None = None,
) -> Verdict | Answer:
    """Return a failure if a result as a whole is off by FAR_OFF times the rounding bound, else "hold".

    where: the circumstances in messages, as in "in bfloat16".
    most: the largest bound, as a share of the result, with which a comparison is conclusive.
    least: the smallest relative error of a wrong result.
    dtype: the dtype of the computation. Default: that of the case.
    """
    right = exact.computation
    computation = replace(right, sides=FAR_OFF * right.sides, dtype=dtype or right.dtype)
    named, tolerance = names_of_parts(subject), subject.context.value_tolerance(subject.case.dtype)
    for part in got:
        if computation.lost(itemgetter(part), got[part]) < least:
            continue
        off = computation.deviation(itemgetter(part), got[part], named[part], tolerance, most=most)
        if off is not None:
            first, *others = off.factors()
            verdict = fails(f"low_precision_grad: {where}, {first}", "\n".join([*others, exact.origin]))
            return replace(verdict, realized=subject.inputs.describe())
    return "hold"


def _under_autocast(subject: Subject, exact: ExactParts, autocast: Surroundings) -> Verdict | Answer:
    """Return a failure if gradients of a forward pass under autocast are wrong, or whether they hold or are refused.

    Backward runs outside autocast, as torch recommends.
    """
    call = tried(lambda: within([autocast], lambda: recorded(subject)))
    if isinstance(call, Exception):
        return "refused"
    gradients = tried(lambda: call.gradients(exact.cotangents))
    if isinstance(gradients, Exception):
        title = f"low_precision_grad: backward of a forward pass under torch.autocast raised {one_line(gradients)}"
        return fails(title, FOR_AUTOCAST, cause=gradients)
    got = {"outputs": call.results, "gradients": gradients}
    if not _are_finite(got):
        return "inconclusive"
    verdict = _as_a_whole(subject, exact, got, "under torch.autocast", TELLING, dtype=torch.bfloat16)
    return replace(verdict, detail=f"{verdict.detail}\n{FOR_AUTOCAST}") if isinstance(verdict, Verdict) else verdict


FOR_AUTOCAST = """\
mark forward with torch.amp.custom_fwd and backward with torch.amp.custom_bwd, so that both run in one mode of autocast
if autocast is not supported, write vary = ["-dtype"]\
"""


def _mixed(subject: Subject) -> Subject | None:
    """Return the operator at the same values, with all inputs but the first in float32; None if no input changes."""

    def widened(item: Any) -> Any:
        is_coarse = isinstance(item, Tensor) and item.dtype == subject.context.dtype
        return item.detach().float().requires_grad_(item.requires_grad) if is_coarse else item

    first, *others = subject.leaves
    wider = [*map(widened, others)]
    inputs = replace(subject.inputs.changed(widened), leaves=(first, *wider))
    if all(one is other for one, other in zip(wider, others, strict=True)):
        return None
    return subject.context.at(subject.sample, inputs)


def _beside_float32(subject: Subject, exact: ExactParts) -> Verdict | Answer:
    """Return a failure for mixed dtypes, or whether they hold or are refused."""
    got = exact.likewise(subject)
    if isinstance(got, Exception):
        return "refused"
    for raw in raw_gradients(subject.function(*subject.leaves), subject.leaves):
        if raw.gradient.dtype != raw.dtype == torch.float32:
            return fails(
                f"low_precision_grad: {raw.function} returns a gradient of {raw.gradient.dtype} for a float32 input; "
                f"expected torch.float32 (the first input is in {subject.case.dtype}, the others in float32)",
                raw.converted,
            )
    verdict = combine(_verdicts(subject, exact, got, None))
    if verdict.passed:
        return "hold"
    return replace(verdict, detail=f"{verdict.detail}\nthe first input is in {subject.case.dtype}, others in float32")


def _unknown(subject: Subject) -> Verdict:
    dtype = subject.case.dtype
    return cannot(
        f"low_precision_grad: no exact gradients to compare {dtype} with: the spec claims no more precise dtype for "
        "this sample, and has no differentiable reference",
        f'add "{double_of(dtype)}" to dtypes.backward, or a reference, as in '
        'reference = { target = "mylib.eager", differentiable = true }',
    )


def _wide(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.cpu().to(torch.complex128 if tensor.is_complex() else torch.float64) for tensor in tensors]


def _tried(subject: Subject, call: Call, tangents: Tensors) -> Parts | Verdict:
    """Return the results of the operator in the dtype of the case, or a failure if it raises."""
    dtype = subject.case.dtype
    gradients = tried(call.gradients)
    if isinstance(gradients, Exception):
        why = f"is refused: {one_line(gradients)}"
        return refused_in("low_precision_grad", dtype, "backward", why, cause=gradients)
    pushed = tried(lambda: push(subject, tangents)) if tangents else ()
    if isinstance(pushed, Exception):
        title = f"low_precision_grad: forward mode is claimed for {dtype}, but is refused: {one_line(pushed)}"
        detail = "if no dtype supports it, set supports.forward_ad = false; else expect this failure"
        return replace(fails(title, detail, cause=pushed, **remedy("supports.forward_ad", False)), state="refused")
    return {"outputs": call.results, "gradients": gradients, "tangents": pushed}


def _verdicts(subject: Subject, exact: ExactParts, got: Parts, reference: Parts | None) -> Iterator[Verdict]:
    """Compare outputs, gradients and tangents with exact ones, then with those of the reference in the same dtype."""
    case, named, source = subject.case, names_of_parts(subject), exact.truth.source
    tested, tolerance = perturbed(subject, exact.call), subject.context.value_tolerance(case.dtype)
    for part, right in exact.computation.right.items():
        if why := mismatch(got[part], right, named[part]):
            yield fails(f"low_precision_grad: other shapes than those of {source}: {why}")
        off = exact.computation.deviation(itemgetter(part), got[part], named[part], tolerance, tested)
        if off is not None:
            lines = [*off.lines(), exact.origin, how_to_take_out(case.dtype, "forward")]
            yield fails(f"low_precision_grad: in {case.dtype}, {off.headline()}", "\n".join(lines))
        yield _like_reference(subject, vector(right), got[part], reference[part], part) if reference else HOLDS


def _like_reference(subject: Subject, value: Tensor, got: Tensors, reference: Tensors, part: str) -> Verdict:
    """Compare the largest error with the largest error of the reference in the same dtype."""
    spec = subject.case.operator.spec.reference_in_full
    own, other = vector(got) - value, vector(reference) - value
    finite = own.isfinite()
    if spec is None or not bool(finite.any()):
        return HOLDS  # results that are not finite were compared before

    def largest(off: Tensor) -> float:
        return float(off[finite].abs().nan_to_num(nan=float("inf")).max())

    error, usual = largest(own), largest(other)
    least = 2 * rounding_unit(subject.context.dtype) * largest(value)  # a reference may be exact by chance
    if error <= spec.times * usual + least:
        return HOLDS
    return fails(
        f"low_precision_grad: the {part} in {subject.case.dtype} are off by up to {error:.2g}, those of the "
        f"reference {spec.target} by {usual:.2g}",
        f"allowed: {spec.times:g} times the error of the reference, and {least:.2g} for one unit in the last place",
    )
