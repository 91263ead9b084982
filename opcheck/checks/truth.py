"""Finds the expected results: those of the operator in a finer dtype or on the CPU, or of its reference.

Exact results are those of the operator in a finer dtype, on its own device or else on the CPU. For operators without
double precision, such as most Triton kernels, they are those of the reference. The numbers of a sample are drawn in the
coarse dtype and then converted to the finer one, so that both computations have equal inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from opcheck.checks.calls import push, recorded
from opcheck.checks.subject import Context, Subject
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import real_size
from opcheck.derivatives.rounding import Computation, Moved
from opcheck.samples.inputs import Inputs, unchanged
from opcheck.samples.resolve import Unresolved, resolve
from opcheck.samples.results import has_derivative
from opcheck.spec.claims import Reference
from opcheck.spec.dtypes import double_of, finer_than
from opcheck.spec.limits import REFERENCE_MODULES

T = TypeVar("T")
Parts = dict[str, Tensors]
"""Results by kind: `outputs`, `gradients` of the leaves, and `tangents` of the outputs."""


@dataclass(frozen=True)
class Truth:
    """A callable that computes the expected results, at the numbers of a sample."""

    source: str
    """The name for messages, as in "the operator in float64 on the CPU"."""
    subject: Subject
    """The callable with its inputs."""
    is_rounded: bool = False
    """Whether its results have rounding errors as large as those of the tested results. If not, they are exact."""

    def computation(self, call: Callable[[Subject, Moved], T]) -> Computation[T]:
        """Return the expected result of `call`, as a computation that can be repeated with perturbed inputs.

        The perturbed results show how far rounding errors of the inputs move the result.

        call: see `perturbed`.
        """
        terms = sum(map(real_size, self.subject.inputs.tensors()))
        return Computation(
            perturbed(self.subject, call), self.subject.context.dtype, terms, 2 if self.is_rounded else 1
        )


def perturbed(subject: Subject, call: Callable[[Subject, Moved], T]) -> Callable[[Moved], T]:
    """Return a function that returns the results of `call` at perturbed inputs.

    call: calls a subject and returns the results. Its second argument is the function that perturbs tensors, which is
        applied to the inputs of the subject already; `call` applies it to other inputs, such as cotangents.
    """

    def at(move: Moved) -> T:
        changed = subject.inputs.changed(lambda item: move(item) if isinstance(item, Tensor) else item)
        inputs = replace(changed, leaves=tuple(map(move, changed.leaves)))
        return call(subject.calling(inputs=inputs), move)

    return at


def truth_of(subject: Subject) -> Truth | None:
    """Return the source of exact derivatives at a sample; None if there is none.

    It is the operator in double precision, if claimed, on the device or else on the CPU; else the differentiable
    reference in double precision; else the operator in the finest claimed dtype that is finer than that of the case.

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
    """Return the operator in the finest dtype of the forward pass that is claimed.

    Returns None if no finer dtype is claimed, if the sample is not meant for that dtype, or if the operator is random,
    since random numbers depend on the dtype.
    """
    dtype = finer_than(subject.case.dtype, subject.case.claims.forward)
    if dtype is None or not subject.sample.goes_with(dtype) or subject.function.is_random:
        return None
    return _in_dtype(subject, dtype)


def _in_dtype(subject: Subject, dtype: str, where: str = "", context: Context | None = None) -> Truth:
    """Return the operator in a finer dtype. Its inputs are made once and shared by the checks of a sample.

    where: the suffix of the name, as in " on the CPU".
    context: the context of another device. Default: that of the subject.
    """
    own = context or subject.context
    inputs = subject.memo.once(("finer", dtype, where), lambda: own.realize(subject.sample, finer=dtype))
    return Truth(f"the operator in {dtype}{where}", own.at(subject.sample, inputs))


def on_cpu(subject: Subject) -> Truth:
    """Return the operator on the CPU, in the dtype of the case. Passes on the exceptions of making the tensors."""
    return Truth("the operator on the CPU", subject.context.on_cpu.at(subject.sample), is_rounded=True)


def by_reference(subject: Subject, inputs: Inputs | None = None, how: str = "") -> Truth:
    """Return the reference of the operator. Raises Unresolved if it cannot be found.

    inputs: the inputs to call it with. Default: those of the subject.
    how: the suffix of the name, as in " in float64".
    """
    inputs = subject.inputs if inputs is None else inputs
    reference = subject.case.operator.spec.reference_in_full
    assert reference is not None
    operator = referred(reference, subject.context.settings.modules)
    return Truth(
        f"{reference.target}{how}", subject.calling(operator=operator, inputs=inputs, writes={}, on_copies=True)
    )


def differentiable_reference(subject: Subject) -> Subject | None:
    """Return the differentiable reference at the inputs of a subject; None if there is none, or if it is not found.

    The check `reference` reports one that is not found.
    """
    if not subject.case.operator.has_differentiable_reference:
        return None
    try:
        return by_reference(subject).subject
    except Unresolved:
        return None


def referred(reference: Reference, modules: Sequence[str]) -> Callable[..., Any]:
    """Return the reference as a function of the operator's arguments. Raise Unresolved if it is not found.

    Tensors are passed to it as NumPy arrays, unless it is a function of torch or the spec declares it differentiable.
    """
    callee = resolve(reference.target, (*modules, *REFERENCE_MODULES))
    takes_tensors = reference.is_differentiable or (getattr(callee, "__module__", None) or "").startswith("torch")
    convert: Callable[[Any], Any] = unchanged if takes_tensors else _to_numpy

    def called(*args: Any, **kwargs: Any) -> Any:
        positional = [convert(arg) for arg in args]
        renamed = {reference.rename.get(name, name): convert(value) for name, value in kwargs.items()}
        if reference.positional:
            return callee(*positional, *renamed.values(), **reference.kwargs)
        return callee(*positional, **{**renamed, **reference.kwargs})

    return called


def _to_numpy(value: Any) -> Any:
    """Return a value with arrays in place of tensors, in containers, named tuples and dataclasses, too."""
    if isinstance(value, Tensor):
        own = value.detach().cpu().resolve_conj().resolve_neg()
        return (own.float() if own.dtype is torch.bfloat16 else own).numpy()  # NumPy has no bfloat16
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_to_numpy, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_to_numpy, value))
    if isinstance(value, dict):
        return {key: _to_numpy(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _to_numpy(getattr(value, one.name)) for one in fields(value) if one.init})
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value


def values_of(subject: Subject, _: Moved | None = None) -> Tensors:
    """Return the outputs under test, computed under `torch.no_grad()` unless they are cached. For `perturbed`."""
    with torch.no_grad():
        return subject.outputs


def first_order(subject: Subject, cotangents: Iterable[Tensor], tangents: Sequence[Tensor] = ()) -> Parts:
    """Return the outputs under test and their first derivatives. Tangents of outputs are included if any are passed."""
    with torch.enable_grad():
        call = recorded(subject)
        parts = {"outputs": call.results, "gradients": call.gradients(cotangents)}
        return parts | {"tangents": push(subject, tangents)} if tangents else parts


def names_of_parts(subject: Subject) -> dict[str, Sequence[str]]:
    """Return the names of the tensors in each of the `Parts`, for messages."""
    named = zip(subject.output_names, subject.outputs, strict=True)
    return {
        "outputs": subject.output_names,
        "gradients": [f"the gradient of {name}" for name in subject.leaf_names],
        "tangents": [f"the tangent of {name}" for name, output in named if has_derivative(output)],
    }
