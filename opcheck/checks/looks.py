"""Looks at the derivatives of an operator at a sample: at the derived ones, above all (see attempts.py).

A look is a cheap test: derivatives along one random direction on each side, by ordinary calls. It says nothing where
the operator refuses the sample, or where differences say nothing: at kinks, for random functions, for numbers that are
too large to be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from opcheck.checks.attempts import Attempt, Silence, smooth_places
from opcheck.checks.subject import Subject
from opcheck.derivatives import Disagreement, Request, tried
from opcheck.derivatives.autodiff import Primal, vjp
from opcheck.derivatives.comparison import Comparison
from opcheck.derivatives.coordinates import same, vector
from opcheck.derivatives.differences import looped
from opcheck.derivatives.gradients import memory_of_cotangents
from opcheck.derivatives.objection import derivative_named
from opcheck.derivatives.point import Point
from opcheck.samples.results import with_gradient
from opcheck.spec.library import Sample
from opcheck.text import one_line

Answer = Literal[
    Silence, "refused in backward", "hold", "cotangent", "nothing", "memory", "backward", "forward_ad", "rev_over_rev"
]
"""What a look says. The last three are checks whose claims do not hold."""
PLAIN: dict[Answer, str] = {
    "cotangent": "the gradient depends on the memory of the cotangent",
    "nothing": "the gradient of outputs without elements is not zero",
    "memory": "the values depend on the memory of the inputs",
}
"""What is wrong as it stands, without a comparison with differences."""
FIRST: tuple[Answer, ...] = ("backward", "forward_ad")
SECOND: tuple[Answer, ...] = ("rev_over_rev",)
"""The claims that are looked at: of first order everywhere, of second order where a sample is new in some respect."""
FOR_MEMORY = """\
copies of the inputs, which have the same values in memory of their own, give others
if it is a function of memory, as torch.as_strided is, leave "layout" out of vary"""


@dataclass(frozen=True)
class Look:
    """What one direction on each side says about the derivatives at a sample."""

    answer: Answer
    note: str = ""
    """What is worth to be known, be it a failure or not."""
    disagreement: Disagreement | None = None
    """Of a gradient that depends on the memory of the cotangent."""


def look(made: Attempt, memories: Sequence[str] = (), claims: Sequence[Answer] = FIRST) -> Look:
    """Return what one direction on each side says about the derivatives.

    memories: how cotangents lie in memory, beside plain ones. If there are any, copies of inputs that are not
        contiguous have to give the same values, too.
    claims: the names of the checks of these derivatives, as far as the spec claims them.
    """
    if made.answer is not None:
        return Look(made.answer)
    assert made.subject is not None
    leaves, outputs = made.subject.leaves, made.outputs
    chosen = smooth_places(outputs)
    if not chosen:
        said = tried(lambda: _empty(leaves, outputs))
    else:
        tested = tuple(outputs[index] for index in chosen)
        point = Point(Primal(made.subject.function, chosen), leaves, outputs=tested)
        said = tried(partial(_compared, made.subject, point, memories, claims))
    if isinstance(said, Exception):
        return Look("refused in backward", f"refused in backward: {one_line(said)}")
    return said


def _empty(leaves: Sequence[Tensor], outputs: Sequence[Tensor]) -> Look:
    """Run a backward pass of outputs without elements: it may raise, or give memory that nobody has written."""
    smooth = with_gradient(outputs)
    gradients = vjp(smooth, leaves, [torch.ones_like(output) for output in smooth]) if smooth else ()
    if any(bool(gradient.any()) for gradient in gradients):
        return Look("nothing", "backward has to give zeros, as it does for a cotangent of zeros")
    return Look("hold" if smooth else "untold")


def memories_of(sample: Sample) -> frozenset[str]:
    """Return how tensors lie in memory that are not contiguous."""
    return frozenset(recipe.memory for recipe in sample.tensors) - {"contiguous"}


def _depends_on_memory(point: Point) -> bool:
    """Tell whether a function gives other values at copies of the leaves. It may not be random."""
    values = _at_copies(point)
    if _agree(values, point.value):
        return False
    return _agree(_at_copies(point), values) and _agree(vector(point.function(*point.leaves)), point.value)


def _at_copies(point: Point) -> Tensor:
    """Return the values of a function at copies of its leaves, of shape (M,)."""
    return looped(point.function, point.leaves, [point.coordinates])[0]


def _agree(one: Tensor, other: Tensor) -> bool:
    return same(one, other, 1e-6, 1e-6)


def _compared(subject: Subject, point: Point, memories: Sequence[str], claims: Sequence[Answer]) -> Look:
    context = subject.context
    numbers = context.numbers_in(context.coarsest(point.outputs))
    if numbers is None:
        return Look("untold")  # too coarse for differences
    if memories and memories_of(subject.sample) and _depends_on_memory(point):
        return Look("memory", FOR_MEMORY)
    for check in claims:
        if check == "forward_ad" and not subject.supports.forward_ad:
            continue
        place = derivative_named(check)
        assert place is not None, check
        steps, mode = place
        along = point.derived(*steps).along_one
        comparison = Comparison.of(along, mode, numbers, looped=True)
        if not comparison.holds_closely:
            # Differences of a random function never settle. Of one that reads what is between elements in memory they
            # do, but its values at copies are others.
            if _agree(_at_copies(along), along.value) and comparison.is_settled:
                return Look(check)
            is_nan = bool(comparison.analytical.isnan().any()) and bool(comparison.numerical.values.isfinite().all())
            return Look("untold", f"{check} is nan at a kink" if is_nan else "")
    request = Request(subject.function, subject.leaves, numbers, leaf_names=subject.leaf_names)
    bad = memory_of_cotangents(point.along_one, request, memories, 1e-6)
    return Look("hold") if bad is None else Look("cotangent", bad.text.partition("\n")[2], bad)
