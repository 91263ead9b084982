"""Outputs and first-order gradients in a coarse dtype are right to rounding.

Both modes are compared with exact results for the same numbers (see truth.py), within a bound that follows from the
dtype and from the condition of each result (see rounding.py). Where a differentiable reference exists, the field's own
rule holds beside it: the error is at most `times` that of the reference in the same dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from opcheck.checks.base import Context, Subject
from opcheck.checks.first_order import (
    Directions,
    FirstOrder,
    Tensors,
    names_of_parts,
    pulled_back,
    pushed_forward,
)
from opcheck.checks.judging import each, nobody_tests
from opcheck.checks.rounding import NUDGES, Exact, moved_inputs, nudges, rounding_unit, tried
from opcheck.checks.truth import Truth, by_reference, truth_of
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, first_failure, one_line, remedy
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.coordinates import index_text, located, real_size, split, vector

SHOWN = 5
"""How many wrong entries a message shows."""


def check(context: Context) -> Iterator[Verdict]:
    """Judge all samples. At least one of them must test a gradient."""
    judge = _Judge()
    sound = True
    for verdict in each(context, judge, derivative=False):
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
        for count in NUDGES:
            try:
                exact = _exact(subject, truth, directions, count)
            except NO_REFUSAL:
                raise
            except Exception as error:
                return cannot(
                    f"low_precision_grad: {truth.source} would tell what is right, but raises {one_line(error)}"
                )
            verdict = first_failure(_verdicts(subject, truth, directions, got, exact))
            if verdict.passed:
                break
        if bool(exact["gradients"].condition.isfinite().any()):
            self.pulled_back = True
        else:
            self._untested("no gradient stays finite if the arguments are rounded")
        return verdict

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
    dtype, function, inputs = subject.case.dtype, subject.function, subject.inputs
    try:
        outputs, gradients = pulled_back(function, inputs, directions.cotangents)
    except NO_REFUSAL:
        raise
    except Exception as error:
        title = f"low_precision_grad: backward is claimed for {dtype}, but is refused: {one_line(error)}"
        detail = f'if it is not meant to work in {dtype}, take "{dtype}" out of dtypes.backward'
        return fails(title, detail, **remedy("dtypes.backward", f"-{dtype}"))
    if directions.tangents is None:
        return FirstOrder(outputs, gradients, ())
    try:
        return FirstOrder(outputs, gradients, pushed_forward(function, inputs, directions.tangents))
    except NO_REFUSAL:
        raise
    except Exception as error:
        title = f"low_precision_grad: forward mode is claimed, but is refused in {dtype}: {one_line(error)}"
        return fails(title, "if no dtype supports it, write supports.forward_ad = false; else expect this failure")


def _exact(subject: Subject, truth: Truth, directions: Directions, count: int) -> dict[str, Exact]:
    """Return the exact results with their condition, by part. Passes on the exceptions of the truth.

    count: how many times inputs are moved to measure the condition, which can only grow with it.
    """

    def at(move: Callable[[Tensor], Tensor]) -> FirstOrder:
        inputs = moved_inputs(truth.inputs, move)
        wide = directions.changed(lambda tensor: move(_wide(tensor)))
        return FirstOrder.of(truth.at(inputs), inputs, wide)

    right, unit = at(lambda tensor: tensor), rounding_unit(subject.context.dtype)
    moved = [result for move in nudges(unit, count) if (result := tried(partial(at, move))) is not None]
    return {
        part: Exact.of(getattr(right, part), [getattr(result, part) for result in moved], unit)
        for part, _ in names_of_parts(subject)
    }


def _wide(tensor: Tensor) -> Tensor:
    return tensor.cpu().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _verdicts(
    subject: Subject, truth: Truth, directions: Directions, results: FirstOrder, exact: dict[str, Exact]
) -> Iterator[Verdict]:
    """Compare part by part: with what is exact, then with what the reference gives in the same dtype."""
    reference = None
    if subject.case.operator.has_differentiable_reference:
        other = by_reference(subject, subject.inputs)
        reference = tried(partial(FirstOrder.of, other.function, subject.inputs, directions))
    for part, names in names_of_parts(subject):
        got = getattr(results, part)
        yield _within_rounding(subject, truth, exact[part], got, names)
        if reference is not None:
            yield _like_reference(subject, exact[part], got, getattr(reference, part), part)


def _within_rounding(subject: Subject, truth: Truth, exact: Exact, got: Tensors, names: Sequence[str]) -> Verdict:
    """Hold results against the bound, or against the tolerance that the spec states for this check."""
    context = subject.context
    if [real_size(one) for one in got] != [len(unit) for unit in exact.units]:
        shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in zip(names, got, strict=True))
        return fails(f"low_precision_grad: other shapes than those of {truth.source}: {shapes}")
    values = exact.measured(got)
    allowed = _allowed(context, exact, sum(map(real_size, (*subject.leaves, *got))))
    error = (values - exact.value).abs().nan_to_num(nan=float("inf"))
    wrong = ~((error <= allowed) | exact.excused(values, context.dtype))
    if not bool(wrong.any()):
        return HOLDS
    report = _Report(subject, exact, values, allowed, wrong, got, names)
    title = f"low_precision_grad: in {context.case.dtype}, {report.headline()}"
    return fails(title, "\n".join([*report.lines(), f"compared with {truth.source}, for the same numbers"]))


@dataclass(frozen=True)
class _Report:
    """Words for what is wrong: entries by themselves, and tensors that are off by a factor."""

    subject: Subject
    exact: Exact
    values: Tensor
    allowed: Tensor
    wrong: Tensor
    got: Tensors
    names: Sequence[str]

    @property
    def count(self) -> int:
        """The number of entries. What follows them are the lengths of the tensors."""
        return len(self.values) - len(self.got)

    def headline(self) -> str:
        """Return what is wrong in one line: the worst entry, or else the worst factor."""
        error = (self.values - self.exact.value).abs()
        times = torch.where(self.wrong, error / self.allowed, -1.0).nan_to_num(nan=float("inf"))
        entries = times[: self.count]
        if not bool((entries > 0).any()):
            return self.factor(int(times.argmax()))
        at = int(entries.argmax())
        return f"{self.place(at)} is off by {float(error[at]):.2g}, {float(times[at]):.3g} times what is allowed"

    def lines(self) -> list[str]:
        """Return the entries that are wrong, as many as are of use, and the factors."""
        entries = self.wrong[: self.count].nonzero().flatten().tolist()
        lines = [
            f"{self.place(at)} is {float(self.values[at]):.6g}, not {float(self.exact.value[at]):.6g}; "
            f"allowed: {float(self.allowed[at]):.2g}"
            for at in entries[:SHOWN]
        ]
        if entries:
            lines.append(f"{len(entries):,} of {self.count:,} entries are wrong by themselves")
        return lines + [self.factor(at) for at in range(self.count, len(self.values)) if self.wrong[at]]

    def factor(self, at: int) -> str:
        """Return by which factor a tensor is off, as a whole."""
        got, right, allowed = (float(part[at]) for part in (self.values, self.exact.value, self.allowed))
        name = self.names[at - self.count]
        return f"{name} as a whole is {got / right:.4g} times what it should be; allowed: 1 +- {allowed / right:.2g}"

    def place(self, at: int) -> str:
        """Return what messages call an entry, as in `the gradient of weight[2, 0]`."""
        index, offset = located(at, self.got)
        return f"{self.names[index]}{index_text(*split(offset, self.got[index]))}"


def _allowed(context: Context, exact: Exact, terms: int) -> Tensor:
    """Return the error that is allowed of each coordinate: the user's last word, or what rounding explains."""
    case = context.case
    own = case.claims.value_tolerance(case.check, case.dtype)
    if own.atol is None and own.rtol is None:
        return exact.allowed(context.dtype, terms)
    return (own.atol or 0.0) + (own.rtol or 0.0) * exact.value.abs()


def _like_reference(subject: Subject, exact: Exact, got: Tensors, reference: Tensors, part: str) -> Verdict:
    """Hold the largest error against that of the reference in the same dtype."""
    spec = subject.case.operator.spec.reference_in_full
    value = exact.value[: sum(map(len, exact.units))]
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
