"""Outputs and first-order gradients in a coarse dtype are right to rounding.

Both modes are compared with exact results for the same numbers (see truth.py), within a bound that follows from the
dtype and from the condition of each result (see derivatives/rounding.py). Where a differentiable reference exists, the
field's own rule holds beside it: the error is at most `times` that of the reference in the same dtype.

Where samples may vary, the same bound holds for the same numbers with all inputs but the first in float32, as
parameters often are, if the operator takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.calls import Call, Tensors, as_they_are, push
from opcheck.checks.per_sample import PerSample
from opcheck.checks.raw_gradients import raw_gradients
from opcheck.checks.relations import NO_GRAPH
from opcheck.checks.subject import Context, Subject
from opcheck.checks.truth import (
    Parts,
    Tally,
    Truth,
    by_reference,
    first_order,
    forward_tangents,
    names_of_parts,
    truth_of,
)
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, first_failure, remedy
from opcheck.derivatives import tried
from opcheck.derivatives.coordinates import vector
from opcheck.derivatives.rounding import Computation, Moved, mismatch, rounding_unit
from opcheck.text import one_line


def check(context: Context) -> Iterator[Verdict]:
    """Judge all samples. At least one of them must test a gradient."""
    tally = Tally()
    verdicts = PerSample(partial(_judge, tally), derivative=False)(context)
    return tally.complete(verdicts, "a gradient", context.case.check)


def _judge(tally: Tally, subject: Subject) -> Verdict:
    if not subject.leaves:
        return tally.untested("no tensor to differentiate with respect to")
    truth = truth_of(subject)
    if truth is None:
        return _unknown(subject)
    with torch.enable_grad():
        call = Call.of(subject, as_they_are(subject))
    if not call.has_graph:
        return tally.untested(NO_GRAPH.title)
    outputs = [output for output in call.outputs if output.requires_grad]
    if not all(any(map(torch.numel, tensors)) for tensors in (subject.leaves, outputs)):
        return tally.untested("inputs or outputs are empty")
    tangents = forward_tangents(subject)
    wide, wide_tangents = _wide(call.cotangents), _wide(tangents)

    def exactly(other: Subject, move: Moved) -> Parts:
        return first_order(other, map(move, wide), tuple(map(move, wide_tangents)))

    got = _tried(subject, call, tangents)
    if isinstance(got, Verdict):
        return got
    exact = truth.computation(exactly)
    right = tried(lambda: exact.right)
    if isinstance(right, Exception):
        return cannot(f"low_precision_grad: {truth.source} would tell what is right, but raises {one_line(right)}")
    if not tally.tested and exact.stays_finite(itemgetter("gradients")):
        tally.tested = True
    elif not tally.tested:
        tally.untested("no gradient stays finite if the arguments are rounded")
    reference = None
    if subject.case.operator.has_differentiable_reference:
        other = by_reference(subject, subject.inputs).subject
        own = tried(lambda: first_order(other, call.cotangents, tangents))
        reference = None if isinstance(own, Exception) else own
    verdict = first_failure(_verdicts(subject, truth, exact, got, reference))
    if not verdict.passed:
        return verdict
    others = _mixed(subject)
    return _beside_float32(others, truth, exact, call.cotangents, tangents) if others else verdict


def _mixed(subject: Subject) -> Subject | None:
    """Return the operator at the same numbers, with all inputs but the first in float32. None if that is no change."""
    is_half = subject.context.dtype in (torch.float16, torch.bfloat16)
    if not is_half or "dtype" not in subject.sample.vary or subject.context.derive == "none":
        return None

    def widened(item: Any) -> Any:
        is_coarse = isinstance(item, Tensor) and item.dtype == subject.context.dtype
        return item.detach().float().requires_grad_(item.requires_grad) if is_coarse else item

    first, *others = subject.leaves
    wider = [*map(widened, others)]
    inputs = replace(subject.inputs.changed(widened), leaves=(first, *wider))
    return subject.at(inputs) if any(one is not other for one, other in zip(wider, others, strict=True)) else None


def _beside_float32(
    subject: Subject, truth: Truth, exact: Computation[Parts], cotangents: Tensors, tangents: Tensors
) -> Verdict:
    """Return what is wrong where dtypes are mixed. What the operator refuses is counted."""
    got = tried(lambda: first_order(subject, cotangents, tangents))
    if isinstance(got, Exception):
        return replace(HOLDS, fields={"derived": {"refused": 1}})
    for raw in raw_gradients(subject.function(*subject.leaves), subject.leaves):
        if raw.gradient.dtype != raw.dtype == torch.float32:
            return fails(
                f"low_precision_grad: beside float32, {raw.function} returns a gradient of {raw.gradient.dtype} for it",
                raw.converted,
            )
    verdict = first_failure(_verdicts(subject, truth, exact, got, None))
    if verdict.passed:
        return replace(HOLDS, fields={"derived": {"hold": 1}})
    return replace(verdict, detail=f"{verdict.detail}\nthe first input is in {subject.case.dtype}, others in float32")


def _unknown(subject: Subject) -> Verdict:
    dtype = subject.case.dtype
    return cannot(
        f"low_precision_grad: nothing tells what is right in {dtype}: double precision is not claimed, and there is no "
        "differentiable reference",
        'name one, as in reference = { target = "mylib.eager", differentiable = true }',
    )


def _wide(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.cpu().to(torch.complex128 if tensor.is_complex() else torch.float64) for tensor in tensors]


def _tried(subject: Subject, call: Call, tangents: Tensors) -> Parts | Verdict:
    """Return what the operator gives in the dtype of the case; if it refuses, the verdict that says so."""
    dtype = subject.case.dtype
    gradients = tried(call.gradients)
    if isinstance(gradients, Exception):
        title = f"low_precision_grad: backward is claimed for {dtype}, but is refused: {one_line(gradients)}"
        detail = f'if it is not meant to work in {dtype}, take "{dtype}" out of dtypes.backward'
        return replace(fails(title, detail, **remedy("dtypes.backward", f"-{dtype}")), refused=True)
    pushed = tried(lambda: push(subject, tangents)) if tangents else ()
    if isinstance(pushed, Exception):
        title = f"low_precision_grad: forward mode is claimed for {dtype}, but is refused: {one_line(pushed)}"
        detail = "if no dtype supports it, write supports.forward_ad = false; else expect this failure"
        return replace(fails(title, detail, **remedy("supports.forward_ad", False)), refused=True)
    return {"outputs": call.results, "gradients": gradients, "tangents": pushed}


def _verdicts(
    subject: Subject, truth: Truth, exact: Computation[Parts], got: Parts, reference: Parts | None
) -> Iterator[Verdict]:
    """Compare part by part: with what is exact, then with what the reference gives in the same dtype."""
    case, named = subject.case, names_of_parts(subject)
    own = case.claims.value_tolerance(case.check, case.dtype)  # if the spec states any, they are the last word
    tolerance = None if own.atol is None and own.rtol is None else (own.atol or 0.0, own.rtol or 0.0)
    for part, right in exact.right.items():
        if why := mismatch(got[part], right, named[part]):
            yield fails(f"low_precision_grad: other shapes than those of {truth.source}: {why}")
        off = exact.deviation(itemgetter(part), got[part], named[part], tolerance)
        if off is not None:
            lines = [*off.lines(), f"compared with {truth.source}, for the same numbers"]
            yield fails(f"low_precision_grad: in {case.dtype}, {off.headline()}", "\n".join(lines))
        yield _like_reference(subject, vector(right), got[part], reference[part], part) if reference else HOLDS


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
