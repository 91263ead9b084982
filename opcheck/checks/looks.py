"""Looks: quick tests of the derivatives of an operator at a sample, mainly at derived samples (see attempts.py).

A look compares derivatives along one random direction of the inputs and one of the outputs, by ordinary calls. It is
inconclusive if the operator refuses the sample, or if finite differences are unreliable: at kinks, for random
functions, and for numbers so large that rounding dominates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from opcheck.checks.attempts import Attempt, NotTested, differentiable_indices
from opcheck.checks.calls import Call
from opcheck.checks.relations import off_by
from opcheck.checks.subject import Subject
from opcheck.checks.surroundings import dirty
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Primal, vjp
from opcheck.derivatives.check_claim import derivative_of
from opcheck.derivatives.comparison import Comparison
from opcheck.derivatives.coordinates import same, vector
from opcheck.derivatives.differences import looped
from opcheck.derivatives.gradients import memory_of_cotangents
from opcheck.derivatives.point import Point
from opcheck.derivatives.rounding import rounding_unit
from opcheck.derivatives.uncertainty import ROUNDED
from opcheck.samples.derive.alike import is_alike
from opcheck.samples.function import with_copies
from opcheck.samples.layouts import contiguous
from opcheck.samples.results import with_gradient
from opcheck.spec.library import Sample
from opcheck.text import one_line

Answer = Literal[
    NotTested, "refused in backward", "hold", "cotangent", "nothing", "memory", "chance",
    "backward", "forward_ad", "rev_over_rev",
]  # fmt: skip
"""The result of a look. `hold`: the derivatives are right. `refused in backward`: a derivative raises. `cotangent`,
`nothing`, `memory` and `chance`: see `PLAIN`. The last three are the names of checks whose claims fail. Else, the look
is inconclusive.
"""
PLAIN: dict[Answer, str] = {
    "alias": "the operator returns one of its inputs, not a copy, which torch.library forbids",
    "cotangent": "the gradient depends on the memory of the cotangent",
    "nothing": "the gradient of outputs without elements is not zero",
    "memory": "the values depend on the memory of the inputs",
    "chance": "two calls with equal arguments give different results",
}
"""Failures that need no comparison with finite differences, each with its message."""
FIRST: tuple[Answer, ...] = ("backward", "forward_ad")
"""The first-order claims, which are tested at every derived sample."""
SECOND: tuple[Answer, ...] = ("rev_over_rev",)
"""The second-order claims, which are tested only at samples that are new in some respect."""
CLOSE = 1e-6
"""The relative and the absolute difference up to which values are the same, in double precision."""
MISTAKEN = re.compile(r"returned an (invalid gradient|incorrect number of gradients)")
"""The pattern of errors of autograd that show a mistake in a backward function, and no refusal."""
FOR_MEMORY = """\
contiguous copies of the inputs have the same values, but give other outputs
if the operator is a function of memory, as torch.as_strided is, write vary = ["-layout"]"""
BY_CHANCE = "part of a result may never be written, or threads may write to the same place"


@dataclass(frozen=True)
class Look:
    """The result of a look at a sample."""

    answer: Answer
    note: str = ""
    """Additional information for reports."""
    memory: str = ""
    """The memory layout of the cotangent on which a gradient depends; empty for other answers."""


def look(made: Attempt, memories: Sequence[str] = (), claims: Sequence[Answer] = FIRST) -> Look:
    """Return the look at a call: the test of its derivatives along one random direction of inputs and of outputs.

    memories: the memory layouts of cotangents to test besides contiguous ones, as in `MEMORIES`. If there are any,
        inputs are not contiguous and the written sample varies its layout, contiguous copies must give the same values.
    claims: the names of the checks of the derivatives to test. `forward_ad` is skipped if the spec disclaims it.
    """
    if made.answer is not None:
        return Look(made.answer)
    assert made.subject is not None
    leaves, outputs = made.subject.leaves, made.outputs
    chosen = differentiable_indices(outputs)
    if not chosen or not any(leaf.numel() for leaf in leaves):
        said = tried(lambda: _empty(leaves, outputs))
    else:
        tested = tuple(outputs[index] for index in chosen)
        primal = Primal(made.subject.function, chosen, leaf_names=made.subject.leaf_names)
        point = Point(primal, leaves, outputs=tested)
        point.masked = made.subject.function.masked
        if memories and depends_on_memory(made):
            return Look("memory", FOR_MEMORY)
        said = tried(partial(_compared, made.subject, point, memories, claims))
    if not isinstance(said, Exception):
        return said
    is_mistake = MISTAKEN.search(str(said)) and is_alike(made.written, made.subject.sample)
    return Look("backward") if is_mistake else _refused("backward", said)


def _refused(where: str, error: Exception) -> Look:
    """Return that a derivative raises. where: "backward", or "forward mode"."""
    return Look("refused in backward", f"refused in {where}: {one_line(error)}")


def _empty(leaves: Sequence[Tensor], outputs: Sequence[Tensor]) -> Look:
    """Run the backward pass where outputs or leaves have no elements. It may raise, or return uninitialized memory."""
    smooth = with_gradient(outputs)
    gradients = vjp(smooth, leaves, [torch.ones_like(output) for output in smooth]) if smooth else ()
    if bool(vector(gradients).any()):
        return Look("nothing", "backward has to give zeros, as it does for a cotangent of zeros")
    return Look("hold" if smooth else "inconclusive")


def memories_of(sample: Sample) -> frozenset[str]:
    """Return the memory layouts of the tensors of a sample, except "contiguous"."""
    return frozenset(recipe.memory for recipe in sample.tensors) - {"contiguous"}


def depends_on_memory(made: Attempt) -> bool:
    """Return whether an operator at inputs that are not contiguous returns other values for contiguous copies of them.

    False if it is random, or if the written sample does not vary its layout.
    """
    subject = made.subject
    if made.answer is not None or subject is None or "layout" not in made.written.vary:
        return False
    if subject.function.is_random or not memories_of(subject.sample):
        return False
    chosen = differentiable_indices(made.outputs)
    # Sums over other strides are taken in another order, which shows in single precision.
    rounding = max(CLOSE, ROUNDED * rounding_unit(subject.coarsest(made.outputs)))

    def values(outputs: Sequence[Tensor]) -> Tensor:
        return vector([outputs[index] for index in chosen])

    def at_copies() -> Tensor:
        args, kwargs = subject.inputs.detached().fill()
        args, kwargs = with_copies(args, kwargs, contiguous, [args, kwargs])
        return values(subject.function.tested(subject.function.called(args, kwargs)))

    here, first = values(made.outputs), tried(at_copies)
    if isinstance(first, Exception) or same(first, here, rounding, rounding):  # it may refuse contiguous tensors
        return False
    return _agree(at_copies(), first) and _agree(values(subject.function(*subject.leaves)), here)


def _differs_by_chance(subject: Subject) -> bool:
    """Return whether the values or the gradients of two equal calls differ, where free memory has other contents."""

    def results(around: Callable[[], AbstractContextManager[None]]) -> tuple[Tensor, Tensor]:
        with around():
            subject.context.device.seed(0)  # an operator may be random: it draws the same numbers in both calls
            call = Call.of(subject)
        with around():
            return call.values, call.gradient()

    here, there = results(nullcontext), results(partial(dirty, subject))
    return any(off_by(subject, own, other) for own, other in zip(here, there, strict=True))


def _at_copies(point: Point) -> Tensor:
    """Return the values of a function at copies of its leaves as real coordinates, of shape (M,)."""
    return looped(point.function, point.leaves, [point.coordinates], point.size[0])[0]


def _agree(one: Tensor, other: Tensor) -> bool:
    return same(one, other, CLOSE, CLOSE)


def _compared(subject: Subject, point: Point, memories: Sequence[str], claims: Sequence[Answer]) -> Look:
    numbers = subject.context.numbers_in(subject.coarsest(point.outputs))
    if numbers is None:
        return Look("inconclusive")  # a dtype is too coarse for finite differences
    for check in claims:
        if check == "forward_ad" and not subject.supports.forward_ad:
            continue
        steps, mode = derivative_of(check)
        along = point.derived(*steps).along_one
        comparison = tried(partial(Comparison, along, mode, numbers))
        if isinstance(comparison, Exception):
            if isinstance(tried(partial(along.numerical, numbers.eps)), Exception):
                # The operator refuses numbers nearby, or its outputs have other shapes there.
                return Look("inconclusive")
            if mode == "forward":
                return _refused("forward mode", comparison)
            raise comparison
        if not comparison.holds_closely:
            # The differences of a random function do not converge. Those of a function that reads memory between
            # elements do, but its values at copies differ.
            is_repeated = _agree(_at_copies(along), along.value)
            if is_repeated and comparison.is_settled:
                return Look(check)
            if not (is_repeated and comparison.has_kink) and _differs_by_chance(subject):
                return Look("chance", BY_CHANCE)
            is_nan = bool(comparison.analytical.isnan().any()) and bool(comparison.numerical.isfinite().all())
            return Look("inconclusive", f"{check} is nan at a kink" if is_nan else "")
    bad = memory_of_cotangents(point.derived().along_one, memories, CLOSE)
    if bad is not None and bad.cause is not None:
        raise bad.cause
    return Look("hold") if bad is None else Look("cotangent", bad.text.partition("\n")[2], bad.memory)
