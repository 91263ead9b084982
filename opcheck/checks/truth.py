"""Where the exact result comes from that results in a coarse dtype are compared with.

From the operator itself in a finer dtype, on its own device or else on the CPU; or from its reference, for operators
that do not know double precision, as most Triton kernels do not. The numbers of the sample are drawn in the coarse
dtype first and then widened, so that both sides have the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor

from opcheck.checks.base import Context, Subject
from opcheck.checks.values.reference import referred
from opcheck.derivatives.coordinates import real_size
from opcheck.derivatives.rounding import Computation, Moved
from opcheck.samples import Inputs, TestedFunction
from opcheck.spec.dtypes import double_of, finer_than

T = TypeVar("T")


@dataclass(frozen=True)
class Truth:
    """A function that gives exact results, at the numbers of a sample."""

    source: str
    """As in "the operator in float64 on the CPU"."""
    inputs: Inputs
    function: TestedFunction
    is_rounded: bool = False
    """Whether its results are rounded like those that they are compared with."""

    def computation(self, subject: Subject, call: Callable[[TestedFunction, Moved], T]) -> Computation[T]:
        """Return what a call of the function gives, which also says how far rounding the arguments moves it.

        call: calls a function at the leaves of its own inputs. It gets what moves all else that goes in.
        """

        def at(move: Moved) -> T:
            return call(replace(self.function, inputs=_moved(self.inputs, move)), move)

        terms = sum(map(real_size, self.inputs.tensors()))
        return Computation(at, subject.context.dtype, terms, 2 if self.is_rounded else 1)


def _moved(inputs: Inputs, move: Moved) -> Inputs:
    """Return the arguments of a sample with each tensor in them moved."""

    def changed(item: object) -> object:
        return move(item) if isinstance(item, Tensor) else item

    return replace(inputs.changed(changed), leaves=tuple(map(move, inputs.leaves)))


def truth_of(subject: Subject) -> Truth | None:
    """Return the truth about derivatives at a sample; None if there is none.

    Passes on the exceptions of making the tensors.
    """
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


def truth_of_values(subject: Subject) -> Truth | None:
    """Return the operator in the finest dtype claimed.

    None if no finer one is claimed, if the sample is not meant for it, or if the operator is random: its numbers depend
    on the dtype.
    """
    context = subject.context
    dtype = finer_than(context.case.dtype, context.case.claims.forward)
    if dtype is None or not subject.sample.goes_with(dtype) or subject.function.seed is not None:
        return None
    return _own(subject, context, dtype)


def on_cpu(subject: Subject) -> Truth:
    """Return the operator on the CPU, in the dtype of the case. Passes on the exceptions of making the tensors."""
    context = subject.context.on_cpu
    inputs = context.realize(subject.sample)
    return Truth("the operator on the CPU", inputs, context.function(subject.sample, inputs), is_rounded=True)


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
