"""Values agree with a reference: a function of NumPy or SciPy, or any other callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch import Tensor

from opcheck.checks.per_sample import PerSample
from opcheck.checks.relations import agree, off_by
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, cannot
from opcheck.derivatives import tried
from opcheck.derivatives.coordinates import vector
from opcheck.samples.inputs import unchanged
from opcheck.samples.resolve import Unresolved, resolve
from opcheck.samples.results import leaves_of, named, names_among
from opcheck.spec.claims import Reference
from opcheck.spec.limits import REFERENCE_MODULES
from opcheck.text import class_of, one_line

OF_TENSORS = "it gets NumPy arrays; for tensors, write reference = { target = ..., differentiable = true }"
WHOSE_FAULT = "the operator was not tested: fix the reference, or set reference to another function"


def judge(subject: Subject, up_to_rounding: bool = False) -> Verdict:
    """Compare values, but not dtypes: libraries promote types by different rules.

    up_to_rounding: whether values may also differ by rounding (see `off_by`), which adds up in large samples.
    """
    reference = subject.case.operator.spec.reference_in_full
    assert reference is not None
    try:
        callee = referred(reference, subject.context.settings.modules)
    except Unresolved as error:
        return cannot(f"reference: {error}", f'did you mean "{error.hint}"?' if error.hint else "")
    args, kwargs = subject.inputs.detached().fill()
    returned = tried(lambda: callee(*args, **kwargs))
    if isinstance(returned, Exception):
        why = f"reference: {reference.target} raised {one_line(returned)}"
        return replace(cannot(why, OF_TENSORS if "ndarray" in str(returned) else WHOSE_FAULT), cause=returned)
    try:
        expected = tuple(map(_to_tensor, _as_tuple(returned)))
    except (TypeError, ValueError):
        expected = ()
    if not expected:
        kind = "None" if returned is None else class_of(returned)
        title = f"reference: {reference.target} returned {kind}; expected tensors, arrays or numbers"
        return cannot(title, WHOSE_FAULT)
    paths, got = zip(*named(subject.function.result(*(leaf.detach() for leaf in subject.leaves))), strict=True)
    values = [tensor.cpu() for tensor in got]
    has_shapes = [one.shape for one in values] == [other.shape for other in expected]
    if up_to_rounding and has_shapes and not off_by(subject, vector(values), vector(expected)):
        return HOLDS
    return agree(subject, values, expected, reference.target, names=names_among(paths), same_arithmetic=False)


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
    if isinstance(value, Tensor):
        return value.detach().cpu().resolve_conj().resolve_neg().numpy()
    if isinstance(value, (list, tuple)):
        return type(value)(_to_numpy(item) for item in value)
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value


def _as_tuple(result: Any) -> tuple[Any, ...]:
    if isinstance(result, (tuple, list)):
        return tuple(result)
    parts = [part for _, part in leaves_of(result)]
    return tuple(part for part in parts if isinstance(part, (Tensor, numpy.ndarray, numpy.generic))) or tuple(parts)


def _to_tensor(value: Any) -> Tensor:
    # numpy.array copies, since torch warns of read-only arrays. A reference in torch returns tensors on the device.
    return value.cpu() if isinstance(value, Tensor) else torch.from_numpy(numpy.array(value, order="C"))


check = PerSample(judge, derivative=False)
