"""Outputs, gradients and tangents on a device agree with those on the CPU for the same inputs.

They are on the device, and have the dtype, layout, shape and strides that they have on the CPU. Values may differ by
rounding, as in `finer`. Those of random operators are not compared: each device has its own generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import is_strided
from opcheck.checks.finer import Finer, Results, cotangents_of, values
from opcheck.checks.first_order import differentiable_names, pulled_back, pushed_forward
from opcheck.checks.judging import blamed, of_values
from opcheck.checks.verdict import HOLDS, Blocked, Verdict, cannot, fails, first_failure, one_line
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.autodiff import vjp
from opcheck.derivatives.cotangents import vectors_like
from opcheck.samples.outputs import with_gradient

STEADY = ("purity", "nondeterminism")
"""What calls must be like to be compared."""


def judge(subject: Subject) -> Verdict:
    """Compare what calls give with what they give on the CPU."""
    return first_failure(_verdicts(subject, Finer.on_cpu(subject)))


def _verdicts(subject: Subject, cpu: Finer) -> Iterator[Verdict]:
    yield _compared(subject, cpu, subject.output_names, subject.outputs, values, STEADY)
    claims = subject.case.claims
    if not subject.leaves or subject.case.dtype not in claims.backward:
        return
    if claims.supports.backward:
        yield _gradients(subject, cpu)
    if claims.supports.forward_ad and is_strided(subject):
        tangents = vectors_like(subject.leaves)
        pushed_here = _derive("forward_ad", lambda: pushed_forward(subject.function, subject.inputs, tangents))
        names = [f"tangent of {name}" for name in differentiable_names(subject)]

        def pushed(at: Finer) -> Results:
            return pushed_forward(at.function, at.inputs, tangents)

        yield _compared(subject, cpu, names, pushed_here, pushed, (*STEADY, "forward_ad"))


def _gradients(subject: Subject, cpu: Finer) -> Verdict:
    with torch.enable_grad():
        outputs = with_gradient(subject.function(*subject.leaves))
    if not outputs:
        return HOLDS
    cotangents = cotangents_of(outputs)
    gradients = _derive("backward", lambda: vjp(outputs, subject.leaves, cotangents))
    names = [f"gradient of {name}" for name in subject.leaf_names]

    def pulled(at: Finer) -> Results:
        return pulled_back(at.function, at.inputs, cotangents)[1]

    return _compared(subject, cpu, names, gradients, pulled, (*STEADY, "backward"))


def _derive(check: str, derivative: Callable[[], Results]) -> Results:
    """Return a derivative. Raises Blocked if it does not work, which `check` is there to say."""
    try:
        return derivative()
    except NO_REFUSAL:
        raise
    except Exception as error:
        raise Blocked(check, f"an ordinary call raised {one_line(error)}") from error


def _compared(
    subject: Subject, cpu: Finer, names: Sequence[str], got: Results, results: Callable[[Finer], Results],
    roots: Sequence[str],
) -> Verdict:  # fmt: skip
    """Compare results, which have names, with those on the CPU.

    roots: the checks that have found the cause of other values, if they fail too.
    """
    try:
        expected = results(cpu)
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
    if subject.function.seed is not None:
        return HOLDS
    off = cpu.contradicts(got, names, lambda at: expected if at is cpu else results(at))
    if not off:
        return HOLDS
    return blamed(subject, fails(f"device_consistency: {off}, as on the CPU for the same inputs"), roots)


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
