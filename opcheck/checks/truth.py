"""Where the exact result comes from that results in a coarse dtype are compared with.

From the operator itself in double precision, on its own device or else on the CPU; or from its reference, for operators
that do not know double precision, as most Triton kernels do not. The numbers of the sample are drawn in the coarse
dtype first and then widened, so that both sides have the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opcheck.checks.base import Context, Subject
from opcheck.checks.values.reference import referred
from opcheck.samples import Inputs, TestedFunction
from opcheck.spec.dtypes import double_of, finer_than


@dataclass(frozen=True)
class Truth:
    """A function that gives exact results, at the numbers of a sample."""

    source: str
    """As in "the operator in float64 on the CPU"."""
    inputs: Inputs
    function: TestedFunction

    def at(self, inputs: Inputs) -> TestedFunction:
        """Return the function for other arguments."""
        return replace(self.function, inputs=inputs)


def truth_of(subject: Subject) -> Truth | None:
    """Return the truth about a sample; None if there is none. Passes on the exceptions of making the tensors."""
    context = subject.context
    case = context.case
    double = double_of(case.dtype)
    spec, meant = case.operator.spec, subject.sample.goes_with
    if double in case.claims.backward and meant(double):
        return _own(subject, context, double)
    if double in spec.dtypes.backward_names() and meant(double) and (spec.devices is None or "cpu" in spec.devices):
        return _own(subject, context.on_cpu, double, " on the CPU")
    if case.operator.has_differentiable_reference:
        return by_reference(subject, context.on_cpu.realize(subject.sample, finer=double), f" in {double}")
    finer = finer_than(case.dtype, case.claims.backward)
    return _own(subject, context, finer) if finer and meant(finer) else None


def _own(subject: Subject, context: Context, dtype: str, where: str = "") -> Truth:
    inputs = context.realize(subject.sample, finer=dtype)
    return Truth(f"the operator in {dtype}{where}", inputs, context.function(subject.sample, inputs))


def by_reference(subject: Subject, inputs: Inputs, how: str = "") -> Truth:
    """Return the reference of the operator at some inputs of a sample. Raises Unresolved."""
    reference = subject.case.operator.spec.reference_in_full
    assert reference is not None
    operator = referred(reference, subject.context.settings.modules)
    function = replace(subject.function, operator=operator, inputs=inputs, inplace=False)
    return Truth(f"{reference.target}{how}", inputs, function)
