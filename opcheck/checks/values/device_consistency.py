"""Outputs, gradients and tangents on a device agree with those on the CPU for the same inputs.

They are on the device, and have the dtype, layout, shape and strides that they have on the CPU. Values may differ by
rounding (see derivatives/rounding.py). Those of random operators are not compared: each device has its own generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Directions, Tensors, names_of_parts, outputs_of, pulled_back, pushed
from opcheck.checks.judging import blamed, of_values
from opcheck.checks.truth import Truth, on_cpu
from opcheck.checks.verdict import HOLDS, Blocked, Verdict, cannot, fails, first_failure, one_line
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.rounding import Moved
from opcheck.samples import TestedFunction

Derivative = Callable[[TestedFunction, Moved], Tensors]
STEADY = ("purity", "nondeterminism")
"""What calls must be like to be compared."""


def judge(subject: Subject) -> Verdict:
    """Compare what calls give with what they give on the CPU."""
    return first_failure(_verdicts(subject))


def _verdicts(subject: Subject) -> Iterator[Verdict]:
    cpu = on_cpu(subject)
    yield _compared(subject, cpu, subject.output_names, subject.outputs, lambda function, _: outputs_of(function))
    supports, named = subject.supports, dict(names_of_parts(subject))
    if not subject.leaves or subject.case.dtype not in subject.case.claims.backward:
        return
    directions = Directions.of(subject)
    if supports.backward and directions.cotangents:

        def gradients(function: TestedFunction, move: Moved) -> Tensors:
            return pulled_back(function, tuple(map(move, directions.cotangents)))[1]

        yield _derivative(subject, cpu, named["gradients"], gradients, "backward")
    if directions.tangents is not None:

        def tangents(function: TestedFunction, move: Moved) -> Tensors:
            return pushed(function, tuple(map(move, directions.tangents or ())))

        yield _derivative(subject, cpu, named["tangents"], tangents, "forward_ad")


def _derivative(subject: Subject, cpu: Truth, names: Sequence[str], call: Derivative, check: str) -> Verdict:
    """Compare derivatives. Raises Blocked if there are none, which `check` is there to say."""
    try:
        got = call(subject.function, lambda tensor: tensor)
    except NO_REFUSAL:
        raise
    except Exception as error:
        raise Blocked(check, f"an ordinary call raised {one_line(error)}") from error
    return _compared(subject, cpu, names, got, call, check)


def _compared(
    subject: Subject, cpu: Truth, names: Sequence[str], got: Tensors, call: Derivative, *roots: str
) -> Verdict:
    """Compare results, which have names, with those on the CPU.

    roots: the checks that have found the cause of other values, if they fail too.
    """
    computation = cpu.computation(subject, call)
    try:
        expected = computation.right
    except NO_REFUSAL:
        raise
    except Exception as error:
        what = f"device_consistency: what works on {subject.context.device} is refused on the CPU: {one_line(error)}"
        return cannot(what, f'if it is not meant to run there, write devices = ["{subject.case.device.name}"]')
    if len(got) != len(expected):
        return fails(f"device_consistency: {len(got)} results ({', '.join(names)}), on the CPU {len(expected)}")
    device = torch.empty(0, device=subject.context.device).device
    for name, one, other in zip(names, got, expected, strict=True):
        difference = _difference(one, other, device)
        if difference:
            return fails(f"device_consistency: {name} {difference}")
    off = None if subject.function.seed is not None else computation.deviation(tuple, got, names)
    if off is None:
        return HOLDS
    title = f"device_consistency: not as on the CPU for the same inputs: {off.headline()}"
    return blamed(subject, fails(title, "\n".join(off.lines())), (*STEADY, *roots))


def _difference(one: Tensor, other: Tensor, device: torch.device) -> str:
    """Return how a result on a device differs from that on the CPU, values aside; an empty string if it does not."""
    if one.device != device:
        return f"is on {one.device}, not on {device}"
    for what in ("dtype", "layout", "shape"):
        got, expected = getattr(one, what), getattr(other, what)
        if got != expected:
            return f"has the {what} {_text(got)}, on the CPU {_text(expected)}"
    if _strides(one) != _strides(other):
        return f"has the strides {list(one.stride())}, on the CPU {list(other.stride())}"
    return ""


def _text(value: object) -> str:
    return str(list(value)) if isinstance(value, torch.Size) else str(value)


def _strides(tensor: Tensor) -> list[int]:
    """Return the strides that tell where elements are: those of dims with two elements or more."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


check = of_values(judge)
