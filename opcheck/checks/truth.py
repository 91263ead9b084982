"""Finds what results are compared with: the operator in a finer dtype or on the CPU, or its reference.

Exact results are those of the operator itself in a finer dtype, on its own device or else on the CPU; or those of its
reference, for operators that do not know double precision, as most Triton kernels do not. The numbers of the sample are
drawn in the coarse dtype first and then widened, so that both sides have the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from opcheck.checks.calls import Tensors, push, recorded
from opcheck.checks.subject import Context, Subject
from opcheck.checks.values.reference import referred
from opcheck.derivatives.coordinates import real_size
from opcheck.derivatives.rounding import Computation, Moved
from opcheck.samples.cache import Memo
from opcheck.samples.inputs import Inputs
from opcheck.samples.results import differentiable
from opcheck.spec.dtypes import double_of, finer_than

T = TypeVar("T")
Parts = dict[str, Tensors]
"""Results by what they are: `outputs`, `gradients` of the leaves, `tangents` of the outputs."""


@dataclass(frozen=True)
class Truth:
    """An operator that gives exact results, at the numbers of a sample."""

    source: str
    """As in "the operator in float64 on the CPU"."""
    subject: Subject
    is_rounded: bool = False
    """Whether its results are rounded like those that they are compared with."""

    def computation(self, call: Callable[[Subject, Moved], T]) -> Computation[T]:
        """Return what a call gives, which also says how far rounding the arguments moves it.

        call: calls a subject. It gets what moves all else that goes in.
        """

        def at(move: Moved) -> T:
            own = self.subject
            changed = own.inputs.changed(lambda item: move(item) if isinstance(item, Tensor) else item)
            inputs = replace(changed, leaves=tuple(map(move, changed.leaves)))
            return call(replace(own, inputs=inputs, function=replace(own.function, inputs=inputs), memo=Memo()), move)

        terms = sum(map(real_size, self.subject.inputs.tensors()))
        return Computation(at, self.subject.context.dtype, terms, 2 if self.is_rounded else 1)


def truth_of(subject: Subject) -> Truth | None:
    """Return the truth about derivatives at a sample; None if there is none.

    Passes on the exceptions of making the tensors.
    """
    case = subject.case
    double = double_of(case.dtype)
    spec, meant = case.operator.spec, subject.sample.goes_with
    if double in case.claims.backward and meant(double):
        return _in_dtype(subject, double)
    if double in spec.dtypes.backward_names() and meant(double) and (spec.devices is None or "cpu" in spec.devices):
        return _in_dtype(subject, double, " on the CPU", subject.context.on_cpu)
    if case.operator.has_differentiable_reference:
        return by_reference(subject, subject.context.on_cpu.realize(subject.sample, finer=double), f" in {double}")
    finer = finer_than(case.dtype, case.claims.backward)
    return _in_dtype(subject, finer) if finer and meant(finer) else None


def truth_of_values(subject: Subject) -> Truth | None:
    """Return the operator in the finest dtype claimed.

    None if no finer one is claimed, if the sample is not meant for it, or if the operator is random: its numbers depend
    on the dtype.
    """
    dtype = finer_than(subject.case.dtype, subject.case.claims.forward)
    if dtype is None or not subject.sample.goes_with(dtype) or subject.function.seed is not None:
        return None
    return _in_dtype(subject, dtype)


def _in_dtype(subject: Subject, dtype: str, where: str = "", context: Context | None = None) -> Truth:
    """Return the operator in a finer dtype. The checks of a sample share its inputs."""
    own = context or subject.context
    inputs = subject.memo.once(("finer", dtype, where), lambda: own.realize(subject.sample, finer=dtype))
    return Truth(f"the operator in {dtype}{where}", own.at(subject.sample, inputs))


def on_cpu(subject: Subject) -> Truth:
    """Return the operator on the CPU, in the dtype of the case. Passes on the exceptions of making the tensors."""
    return Truth("the operator on the CPU", subject.context.on_cpu.at(subject.sample), is_rounded=True)


def by_reference(subject: Subject, inputs: Inputs | None = None, how: str = "") -> Truth:
    """Return the reference of the operator at the inputs of a sample, or at others. Raises Unresolved."""
    inputs = subject.inputs if inputs is None else inputs
    reference = subject.case.operator.spec.reference_in_full
    assert reference is not None
    operator = referred(reference, subject.context.settings.modules)
    function = replace(subject.function, operator=operator, inputs=inputs, inplace=False)
    return Truth(f"{reference.target}{how}", replace(subject, inputs=inputs, function=function))


def values_of(subject: Subject) -> Tensors:
    """Return the outputs under test where no graph is recorded."""
    with torch.no_grad():
        return subject.outputs


def first_order(subject: Subject, cotangents: Iterable[Tensor], tangents: Sequence[Tensor] = ()) -> Parts:
    """Return the outputs under test and their first derivatives. There are no tangents if none are passed."""
    with torch.enable_grad():
        call = recorded(subject)
        parts = {"outputs": call.results, "gradients": call.gradients(cotangents)}
        return parts | {"tangents": push(subject, tangents)} if tangents else parts


def names_of_parts(subject: Subject) -> dict[str, Sequence[str]]:
    """Return what messages call the tensors in each of the `Parts`."""
    named = zip(subject.output_names, subject.outputs, strict=True)
    return {
        "outputs": subject.output_names,
        "gradients": [f"the gradient of {name}" for name in subject.leaf_names],
        "tangents": [f"the tangent of {name}" for name, output in named if differentiable([output])],
    }
