"""Values agree with a reference: a function of NumPy or SciPy, or any other callable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.relations import agree, off_by
from opcheck.checks.subject import Subject
from opcheck.checks.truth import by_reference, perturbed, referred
from opcheck.checks.varied import OfValues
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import vector
from opcheck.derivatives.rounding import Moved, mismatch
from opcheck.samples.derive.alike import has_same_pattern
from opcheck.samples.modules import ModuleCall, buffers_at_the_end
from opcheck.samples.results import has_derivative, leaves_of, named, names_among
from opcheck.spec.dtypes import HALF, double_of
from opcheck.text import class_of, one_line

OF_TENSORS = "it gets NumPy arrays; for tensors, write reference = { target = ..., differentiable = true }"
OF_TIES = 'if these are positions, and any of equal numbers may be meant, write vary = ["-value"]'
WHOSE_FAULT = "the operator was not tested: fix the reference, or set reference to another function"


def judge(subject: Subject, up_to_rounding: bool = False) -> Verdict:
    """Compare values, but not dtypes: libraries promote types by different rules.

    In half precision, values may also be those of the reference in double precision, up to rounding (see precision.md).

    up_to_rounding: whether values may also differ by rounding (see `off_by`), which adds up in large samples.
    """
    reference = subject.case.operator.spec.reference_in_full
    assert reference is not None
    callee = referred(reference, subject.context.settings.modules)
    args, kwargs = subject.inputs.fill([leaf.detach().clone() for leaf in subject.leaves])  # it may write to them
    returned = tried(lambda: callee(*args, **kwargs))
    if isinstance(returned, Exception):
        why = f"reference: {reference.target} raised {one_line(returned)}"
        return cannot(
            why, WHOSE_FAULT if reference.is_differentiable else f"{WHOSE_FAULT}\n{OF_TENSORS}", cause=returned
        )
    try:
        expected = tuple(map(_to_tensor, _as_tuple(returned)))
    except (TypeError, ValueError):
        expected = ()
    if not expected:
        kind = "None" if returned is None else class_of(returned)
        title = f"reference: {reference.target} returned {kind}; expected tensors, arrays or numbers"
        return cannot(title, WHOSE_FAULT)
    operator = subject.function.operator
    watched: AbstractContextManager[dict[str, Tensor]] = nullcontext({})
    if isinstance(operator, ModuleCall):
        watched = buffers_at_the_end(operator.module)
    with watched as buffers:
        paths, got = zip(*named(_result(subject)), strict=True)
    values = [tensor.cpu() for tensor in got]
    has_shapes = [one.shape for one in values] == [other.shape for other in expected]
    may_be_rounded = up_to_rounding and has_shapes and _have_equal_positions(values, expected)
    if may_be_rounded and not off_by(subject, vector(values), vector(expected)):
        return _of_state(subject, buffers, kwargs, reference.target)
    verdict = agree(subject, values, expected, reference.target, names=names_among(paths), same_arithmetic=False)
    if verdict.passed or (has_shapes and _are_exact(subject, got)):
        return _of_state(subject, buffers, kwargs, reference.target)
    may_be_of_ties = up_to_rounding and any(map(_is_whole, values)) and any(map(_has_ties, subject.leaves))
    return replace(verdict, detail=f"{verdict.detail}\n{OF_TIES}") if may_be_of_ties else verdict


def _of_state(subject: Subject, own: Mapping[str, Tensor], other: Mapping[str, Any], target: str) -> Verdict:
    """Compare the buffers that both a module and its reference change, such as running statistics.

    own: the buffers after the call of the module. other: the keyword arguments of the reference, after its call.
    """
    operator = subject.function.operator
    if not isinstance(operator, ModuleCall):
        return HOLDS
    _, before = subject.inputs.detached().fill()
    keys = operator.named_in(before)
    for name, here in own.items():
        if name not in keys or not has_derivative(here):
            continue
        was, there = before[keys[name]], other[keys[name]]
        if torch.equal(here, was) or torch.equal(there, was):
            continue
        if off_by(subject, vector([here]), vector([there])):
            return fails(f"reference: {name} is not that of {target} after the call", "both calls change it")
    return HOLDS


def _have_equal_positions(got: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether the integers and booleans of two results of equal shapes are equal: they are not rounded."""
    return all(has_derivative(one) or bool((one == other).all()) for one, other in zip(got, expected, strict=True))


def _is_whole(tensor: Tensor) -> bool:
    return not has_derivative(tensor) and tensor.dtype is not torch.bool


def _has_ties(tensor: Tensor) -> bool:
    is_real = tensor.layout is torch.strided and tensor.is_floating_point()
    return is_real and bool((tensor.detach().flatten().sort().values.diff() == 0).any())


def _result(subject: Subject) -> Any:
    return subject.function.result(*(leaf.detach() for leaf in subject.leaves))


def _are_exact(subject: Subject, got: Sequence[Tensor]) -> bool:
    """Return whether results in half precision are those of the reference in double precision, up to rounding.

    A kernel that computes in single precision is more exact than a reference that rounds each step to half precision.
    """
    dtype, context = subject.case.dtype, subject.context
    if dtype not in HALF or context.value_tolerance() is not None or subject.function.is_random:
        return False

    def values(own: Subject, _: Moved | None = None) -> Tensors:
        return tuple(tensor for _, tensor in named(_result(own)))

    def are_exact() -> bool:
        inputs = context.on_cpu.realize(subject.sample, finer=double_of(dtype))
        computation, names = by_reference(subject, inputs).computation(values), [""] * len(got)
        right = [tensor.to(own.device) for own, tensor in zip(got, computation.right, strict=True)]
        if mismatch(tuple(got), computation.right, names) or not _have_equal_positions(got, right):
            return False
        return computation.deviation(tuple, tuple(got), names, tested=perturbed(subject, values)) is None

    return tried(are_exact) is True


def _as_tuple(result: Any) -> tuple[Any, ...]:
    if isinstance(result, (tuple, list)):
        return tuple(result)
    parts = [part for _, part in leaves_of(result)]
    return tuple(part for part in parts if hasattr(part, "__array__")) or tuple(parts)  # tensors and arrays, if any


def _to_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.cpu()  # a reference in torch returns tensors on the device
    import numpy  # only where a reference needs it: opcheck itself does not

    return torch.from_numpy(numpy.array(value, order="C"))  # a copy, since torch warns of read-only arrays


check = OfValues(judge, judge_derived=partial(judge, up_to_rounding=True), covers=has_same_pattern)
