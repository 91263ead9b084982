"""Values and gradients depend on the arguments, and on nothing around the call.

That is: not on grad mode, inference mode, autocast, deterministic mode or the number of threads, around the forward or
the backward pass; not on calls before it, or between its forward and its backward pass; not on what the same tensor
held before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, Result, compared, copies, is_strided, ordinary, result
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import HOLDS, Verdict, fails, first_failure
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.autodiff import vjp
from opcheck.derivatives.coordinates import tensors_of, vector
from opcheck.derivatives.cotangents import probe

Surroundings = Callable[[], AbstractContextManager[Any]]


def judge(subject: Subject) -> Verdict:
    """Compare calls in different surroundings with an ordinary one."""
    return first_failure(_verdicts(subject))


def _verdicts(subject: Subject) -> Iterator[Verdict]:
    here = ordinary(subject)
    yield from _without_grad(subject, here)
    yield from _surrounded(subject, here)
    yield from _recorded(subject, here)
    other = subject.elsewhere()
    first, second = Call.of(subject), Call.of(other)
    yield from _both(subject, "of a call with another one before its backward pass", result(first, subject), here)
    there = result(Call.of(other), other)
    yield from _both(subject, "of a call that follows another one", result(second, other), there)
    if is_strided(subject):
        yield from _in_place(subject, first.leaves, other)
        if subject.supports.backward:
            yield _right_elsewhere(subject, other, there)


def _without_grad(subject: Subject, here: Result) -> Iterator[Verdict]:
    """Compare values where no graph is recorded. Inference mode turns grad mode off, too."""
    with torch.inference_mode():
        value = _value_for_inference(subject)
    verdict = compared(subject, "the values under torch.inference_mode()", value, here.value)
    if not verdict.passed:
        with torch.no_grad():
            value = vector(Call.of(subject, _detached(subject)).outputs)
        yield compared(subject, "the values under torch.no_grad()", value, here.value)
    yield verdict


def _value_for_inference(subject: Subject) -> Tensor:
    """Return the values in inference mode, of leaves that require grad as parameters do.

    TorchScript refuses these. What it is given then are leaves that do not require grad.
    """
    leaves = _detached(subject)
    try:
        return vector(Call.of(subject, leaves).outputs)
    except NO_REFUSAL:
        raise
    except Exception:
        return vector(Call.of(subject, tuple(leaf.detach() for leaf in leaves)).outputs)


def _detached(subject: Subject) -> tuple[Tensor, ...]:
    """Return leaves that are ordinary tensors, as those of users are."""
    with torch.inference_mode(False):
        return copies(subject.leaves)


def _surrounded(subject: Subject, here: Result) -> Iterator[Verdict]:
    """Compare a call in other surroundings, forward and backward, with one in none; if it differs, say in which."""
    around = _surroundings(subject)
    together = list(_both(subject, "in other surroundings", _result_in(subject, around.values()), here))
    if all(verdict.passed for verdict in together):
        return
    for name, enter in around.items():
        yield from _both(subject, f"under {name}", _result_in(subject, (enter,)), here)
    yield from together


def _surroundings(subject: Subject) -> dict[str, Surroundings]:
    """Return what may surround a call, by what it is called."""
    kind = torch.device(subject.context.device).type
    autocast: Surroundings = partial(torch.autocast, kind, dtype=torch.bfloat16)
    surroundings: dict[str, Surroundings] = {
        "another number of threads": _more_threads,
        "deterministic mode": _deterministic,
    }
    double = subject.context.dtype in (torch.float64, torch.complex128)
    if double and _is_available(autocast):  # other dtypes are what autocast is there to change
        surroundings["torch.autocast"] = autocast
    return surroundings


def _result_in(subject: Subject, surroundings: Iterable[Surroundings]) -> Result:
    """Return what a call gives whose forward and backward pass both run in some surroundings."""
    with ExitStack() as stack:
        for enter in surroundings:
            stack.enter_context(enter())
        return result(Call.of(subject), subject)


def _recorded(subject: Subject, here: Result) -> Iterator[Verdict]:
    """Compare the gradients of a backward pass that is recorded with plain ones. That it raises, others say."""
    supports = subject.supports
    if not (supports.backward and supports.second_order):
        return
    call = Call.of(subject)
    try:
        gradient = vector(vjp(call.outputs, call.leaves, call.cotangents, create_graph=True))
    except NO_REFUSAL:
        raise
    except Exception:
        return
    yield compared(subject, "the gradients under create_graph=True", gradient, here.gradient)


def _is_available(autocast: Surroundings) -> bool:
    """Tell whether a device has autocast. torch's is_autocast_available() is True for every out-of-tree backend."""
    try:
        autocast()
    except (AssertionError, RuntimeError):
        return False
    return True


@contextmanager
def _deterministic() -> Iterator[None]:
    """Turn deterministic mode on. Operators that have no deterministic form warn, and run."""
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


@contextmanager
def _more_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _both(subject: Subject, where: str, got: Result, expected: Result) -> Iterator[Verdict]:
    yield compared(subject, f"the values {where}", got.value, expected.value)
    yield compared(subject, f"the gradients {where}", got.gradient, expected.gradient)


def _in_place(subject: Subject, leaves: Sequence[Tensor], other: Subject) -> Iterator[Verdict]:
    """Compare a call with tensors that have changed in place since the last one with a call with new tensors."""
    try:
        expected = result(Call.of(subject, copies(other.leaves)), subject)
    except NO_REFUSAL:
        raise
    except Exception:
        return  # these values do not go with the other arguments of the sample
    Call.of(subject, leaves)  # what is kept of the last call is of this one
    with torch.no_grad():
        for leaf, changed in zip(leaves, other.leaves, strict=True):
            leaf.copy_(changed)
    again = result(Call.of(subject, leaves), subject)
    yield from _both(subject, "of a call with tensors that have changed in place since the last one", again, expected)


def _right_elsewhere(subject: Subject, other: Subject, there: Result) -> Verdict:
    """Compare the gradient at another point with central differences along one direction. The engine confirms."""
    numbers = subject.request.numbers
    leaves = tuple(leaf.detach() for leaf in other.leaves)
    point, direction = vector(leaves), probe(there.gradient.numel(), 1)
    above, below = (
        vector(Call.of(other, tensors_of(point + sign * numbers.eps * direction, leaves)).outputs) for sign in (1, -1)
    )
    slope = float(probe(above.numel()) @ (above - below)) / (2 * numbers.eps)
    allowed = (numbers.atol + numbers.rtol * abs(slope)) * max(1.0, above.numel() ** 0.5)
    if abs(float(there.gradient @ direction) - slope) <= allowed:
        return HOLDS
    there_wrong = other.objection("backward")
    if there_wrong is None or there_wrong.kind != "wrong" or subject.objection("backward") is not None:
        return HOLDS  # a gradient that is wrong here as well is no matter of the point
    return fails("context: the gradient is wrong at another point of the same sample", there_wrong.text)


check = per_sample(judge)
