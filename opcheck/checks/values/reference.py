"""Values agree with a reference: a function of NumPy or SciPy, or any other callable."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.looks import has_same_pattern
from opcheck.checks.relations import agree, off_by
from opcheck.checks.subject import Subject
from opcheck.checks.truth import referred
from opcheck.checks.varied import OfValues
from opcheck.checks.verdict import HOLDS, Verdict, cannot
from opcheck.derivatives import tried
from opcheck.derivatives.coordinates import vector
from opcheck.samples.results import leaves_of, named, names_among
from opcheck.text import class_of, one_line

OF_TENSORS = "it gets NumPy arrays; for tensors, write reference = { target = ..., differentiable = true }"
WHOSE_FAULT = "the operator was not tested: fix the reference, or set reference to another function"


def judge(subject: Subject, up_to_rounding: bool = False) -> Verdict:
    """Compare values, but not dtypes: libraries promote types by different rules.

    up_to_rounding: whether values may also differ by rounding (see `off_by`), which adds up in large samples.
    """
    reference = subject.case.operator.spec.reference_in_full
    assert reference is not None
    callee = referred(reference, subject.context.settings.modules)
    args, kwargs = subject.inputs.detached().fill()
    returned = tried(lambda: callee(*args, **kwargs))
    if isinstance(returned, Exception):
        why = f"reference: {reference.target} raised {one_line(returned)}"
        return cannot(why, OF_TENSORS if "ndarray" in str(returned) else WHOSE_FAULT, cause=returned)
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


check = OfValues(judge, at_derived=partial(judge, up_to_rounding=True), covers=has_same_pattern)
