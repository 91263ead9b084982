"""Outputs and first-order gradients in a coarse dtype are right to rounding.

Both modes are compared with exact results for the same numbers (see truth.py), within a bound that follows from the
dtype and from the condition of each result (see derivatives/rounding.py). Where a differentiable reference exists, the
field's own rule holds beside it: the error is at most `times` that of the reference in the same dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

import torch
from torch import Tensor

from opcheck.checks.base import Context, Subject
from opcheck.checks.calls import Directions, FirstOrder, Tensors, names_of_parts, pulled_back, pushed
from opcheck.checks.judging import PerSample, nobody_tests
from opcheck.checks.truth import Truth, by_reference, truth_of
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, first_failure, one_line, remedy
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.coordinates import vector
from opcheck.derivatives.rounding import Computation, Moved, mismatch, rounding_unit
from opcheck.samples import TestedFunction


def check(context: Context) -> Iterator[Verdict]:
    """Judge all samples. At least one of them must test a gradient."""
    judge = _Judge()
    sound = True
    for verdict in PerSample(judge, derivative=False)(context):
        yield verdict
        sound = sound and verdict.passed
    if sound and not judge.pulled_back:
        yield nobody_tests("a gradient", context.case.check, judge.reasons)


@dataclass
class _Judge:
    """Judges one sample after the other."""

    pulled_back: bool = False
    """Whether the gradients of any sample were compared."""
    reasons: dict[str, None] = field(default_factory=dict)
    """Why those of others were not."""

    def __call__(self, subject: Subject) -> Verdict:
        if not subject.leaves:
            return self._untested("no tensor to differentiate with respect to")
        truth = truth_of(subject)
        if truth is None:
            return _unknown(subject)
        directions = Directions.of(subject)
        if not directions.cotangents:
            return self._untested("no output requires grad: there is no backward pass")
        if not all(any(map(torch.numel, tensors)) for tensors in (subject.leaves, directions.cotangents)):
            return self._untested("inputs or outputs are empty")
        got = _tried(subject, directions)
        if isinstance(got, Verdict):
            return got

        def call(function: TestedFunction, move: Moved) -> FirstOrder:
            return FirstOrder.of(function, directions.changed(lambda tensor: move(_wide(tensor))))

        computation = truth.computation(subject, call)
        try:
            computation.right  # noqa: B018 - computed here, so that it is known who raises
        except NO_REFUSAL:
            raise
        except Exception as error:
            return cannot(f"low_precision_grad: {truth.source} would tell what is right, but raises {one_line(error)}")
        if not self.pulled_back and computation.stays_finite(attrgetter("gradients")):
            self.pulled_back = True
        elif not self.pulled_back:
            self._untested("no gradient stays finite if the arguments are rounded")
        return first_failure(_verdicts(subject, truth, computation, directions, got))

    def _untested(self, why: str) -> Verdict:
        self.reasons[why] = None
        return HOLDS


def _unknown(subject: Subject) -> Verdict:
    dtype = subject.case.dtype
    return cannot(
        f"low_precision_grad: nothing tells what is right in {dtype}: double precision is not claimed, and there is no "
        "differentiable reference",
        'name one, as in reference = { target = "mylib.eager", differentiable = true }',
    )


def _tried(subject: Subject, directions: Directions) -> FirstOrder | Verdict:
    """Return what the operator gives in the dtype of the case; if it refuses, the verdict that says so."""
    dtype, function = subject.case.dtype, subject.function
    try:
        outputs, gradients = pulled_back(function, directions.cotangents)
    except NO_REFUSAL:
        raise
    except Exception as error:
        title = f"low_precision_grad: backward is claimed for {dtype}, but is refused: {one_line(error)}"
        detail = f'if it is not meant to work in {dtype}, take "{dtype}" out of dtypes.backward'
        return fails(title, detail, **remedy("dtypes.backward", f"-{dtype}"))
    if directions.tangents is None:
        return FirstOrder(outputs, gradients, ())
    try:
        return FirstOrder(outputs, gradients, pushed(function, directions.tangents))
    except NO_REFUSAL:
        raise
    except Exception as error:
        title = f"low_precision_grad: forward mode is claimed, but is refused in {dtype}: {one_line(error)}"
        return fails(title, "if no dtype supports it, write supports.forward_ad = false; else expect this failure")


def _wide(tensor: Tensor) -> Tensor:
    return tensor.cpu().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _verdicts(
    subject: Subject, truth: Truth, exact: Computation[FirstOrder], directions: Directions, results: FirstOrder
) -> Iterator[Verdict]:
    """Compare part by part: with what is exact, then with what the reference gives in the same dtype."""
    reference = _reference(subject, directions) if subject.case.operator.has_differentiable_reference else None
    for part, names in names_of_parts(subject):
        right, got = getattr(exact.right, part), getattr(results, part)
        if not (got or right):
            continue  # forward mode is not claimed
        if why := mismatch(got, right, names):
            yield fails(f"low_precision_grad: other shapes than those of {truth.source}: {why}")
        off = exact.deviation(attrgetter(part), got, names, _tolerance(subject.context))
        if off is not None:
            lines = [*off.lines(), f"compared with {truth.source}, for the same numbers"]
            yield fails(f"low_precision_grad: in {subject.case.dtype}, {off.headline()}", "\n".join(lines))
        if reference is not None:
            yield _like_reference(subject, vector(right), got, getattr(reference, part), part)


def _reference(subject: Subject, directions: Directions) -> FirstOrder | None:
    """Return what the reference gives in the dtype of the case; None if it raises."""
    other = by_reference(subject, subject.inputs)
    try:
        return FirstOrder.of(other.function, directions)
    except NO_REFUSAL:
        raise
    except Exception:
        return None


def _tolerance(context: Context) -> tuple[float, float] | None:
    """Return atol and rtol if the spec states any for this check: they are the last word."""
    case = context.case
    own = case.claims.value_tolerance(case.check, case.dtype)
    return None if own.atol is None and own.rtol is None else (own.atol or 0.0, own.rtol or 0.0)


def _like_reference(subject: Subject, value: Tensor, got: Tensors, reference: Tensors, part: str) -> Verdict:
    """Hold the largest error against that of the reference in the same dtype."""
    spec = subject.case.operator.spec.reference_in_full
    own, other = vector(got) - value, vector(reference) - value
    finite = own.isfinite()
    if spec is None or not bool(finite.any()):
        return HOLDS  # what is not finite was looked at before

    def largest(off: Tensor) -> float:
        return float(off[finite].abs().nan_to_num(nan=float("inf")).max())

    error, usual = largest(own), largest(other)
    least = 2 * rounding_unit(subject.context.dtype) * largest(value)  # which a lucky reference does not have
    if error <= spec.times * usual + least:
        return HOLDS
    return fails(
        f"low_precision_grad: the {part} in {subject.case.dtype} are off by up to {error:.2g}, those of the "
        f"reference {spec.target} by {usual:.2g}",
        f"allowed: {spec.times:g} times the error of the reference, and {least:.2g} for one unit in the last place",
    )
