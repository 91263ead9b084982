"""Outputs, gradients and tangents on a device agree with those on the CPU for the same inputs.

They are on the device, and have the dtype, layout and shape that they have on the CPU. Values may differ by rounding
(see derivatives/rounding.py). Values of random operators are not compared: each device has its own generator. Different
strides are noted, but are not a failure: libraries such as cuDNN and cuFFT choose them, and torch guarantees none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from opcheck.checks.calls import push, recorded, required, tangents_of
from opcheck.checks.per_sample import blame
from opcheck.checks.subject import Subject
from opcheck.checks.truth import Truth, first_order, names_of_parts, on_cpu, perturbed, values_of
from opcheck.checks.varied import OfValues
from opcheck.checks.verdict import Verdict, cannot, fails, noted, remedy
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.rounding import Moved
from opcheck.samples.derive.alike import has_same_ranks
from opcheck.text import one_line

PREREQUISITES = ("purity", "nondeterminism")
"""The checks that must pass for calls to be comparable."""


def judge(subject: Subject) -> Iterator[Verdict]:
    """Compare outputs, gradients and tangents with those on the CPU."""
    cpu, names = on_cpu(subject), names_of_parts(subject)
    yield _compared(subject, cpu, names["outputs"], values_of)
    if not subject.leaves or subject.case.dtype not in subject.case.claims.backward:
        return
    call = recorded(subject)
    cotangents, tangents = call.cotangents, tangents_of(subject)

    def gradients(own: Subject, move: Moved) -> Tensors:
        return first_order(own, map(move, cotangents))["gradients"]

    if subject.supports.backward and call.has_graph:
        yield _compared(subject, cpu, names["gradients"], gradients, "backward")
    if tangents:
        yield _compared(subject, cpu, names["tangents"], lambda own, move: push(own, map(move, tangents)), "forward_ad")


def outputs(subject: Subject) -> Verdict:
    """Compare the outputs with those on the CPU. At samples where the derivatives hold, this tells what is wrong."""
    return _compared(subject, on_cpu(subject), names_of_parts(subject)["outputs"], values_of)


def _compared(
    subject: Subject, cpu: Truth, names: Sequence[str], call: Callable[[Subject, Moved], Tensors], root: str = ""
) -> Verdict:
    """Compare the results of a call with those on the CPU.

    names: the names of the results.
    root: the check that explains other values if it fails, too. If the call raises, this claim is not judged.
        Empty for outputs: the operator has already been called without an error.
    """
    got = required("an ordinary call", lambda: call(subject, lambda tensor: tensor), check=root)
    computation = cpu.computation(call)
    expected = tried(lambda: computation.right)
    if isinstance(expected, Exception):
        what = f"what works on {subject.context.device.string} is refused on the CPU: {one_line(expected)}"
        own = subject.case.device.name
        hint = f'if it is not meant to run there, write devices = ["{own}"]'
        return cannot(f"device_consistency: {what}", hint, **remedy("devices", own))
    if len(got) != len(expected):
        return fails(f"device_consistency: {len(got)} results ({', '.join(names)}), on the CPU {len(expected)}")
    device = torch.empty(0, device=subject.context.device.string).device
    notes = list[str]()
    for name, one, other in zip(names, got, expected, strict=True):
        difference = _difference(one, other, device)
        if difference:
            return fails(f"device_consistency: {name} {difference}")
        here, there = _strides(one), _strides(other)
        notes += [f"{name} has the strides {here}, on the CPU {there}"] if here != there else []
    if subject.function.is_random:
        return noted(notes)
    off = computation.deviation(tuple, got, names, tested=perturbed(subject, call))
    if off is None:
        return noted(notes)
    title = f"device_consistency: results differ from those on the CPU for the same inputs: {off.headline()}"
    return blame(subject, fails(title, "\n".join(off.lines())), filter(None, (*PREREQUISITES, root)))


def _difference(one: Tensor, other: Tensor, device: torch.device) -> str:
    """Return how a result differs from the CPU result in device, dtype, layout or shape; empty if it does not."""
    if one.device != device:
        return f"is on {one.device}, not on {device}"
    for what in ("dtype", "layout", "shape"):
        here, there = getattr(one, what), getattr(other, what)
        if here != there:
            shown = (list(each) if what == "shape" else each for each in (here, there))
            return "has the {} {}, on the CPU {}".format(what, *shown)
    return ""


def _strides(tensor: Tensor) -> list[int]:
    """Return the strides of dims with two elements or more, since other strides do not matter; empty if not strided."""
    strided = tensor.layout is torch.strided and tensor.numel()
    pairs = zip(tensor.shape, tensor.stride(), strict=True) if strided else ()
    return [stride for size, stride in pairs if size > 1]


check = OfValues(judge, judge_derived=outputs, covers=has_same_ranks)
