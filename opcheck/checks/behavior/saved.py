"""What forward keeps for backward is guarded: a change in between makes backward raise, or does not matter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, compared, copies, ordinary
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import HOLDS, Verdict, fails, untested
from opcheck.samples.inputs import built, parts
from opcheck.samples.results import differentiable, leaves_of


def judge(subject: Subject) -> Verdict:
    """Change one argument or output at a time in place after forward, and run backward."""
    ordinary(subject)
    names = [name for name, _ in _called(subject)[1]]
    for index, name in enumerate(names):
        call, tensors = _called(subject)
        if not any(output.requires_grad for output in call.outputs):
            return untested("no output requires grad: there is no backward pass")
        if not _change(tensors[index][1]):
            continue
        verdict = _after(subject, call, name)
        if not verdict.passed:
            return verdict
    return HOLDS


def _called(subject: Subject) -> tuple[Call, list[tuple[str, Tensor]]]:
    """Call the operator. Return the call, and the arguments and outputs that may be written to, with names."""
    leaves = copies(subject.leaves)
    slots = subject.inputs.in_slots(leaves, change=_copied)
    own = {id(part) for part in parts([*slots])}  # objects may hold tensors that are not those of the call
    args, kwargs = built(slots[0]), built(slots[1])
    outputs = differentiable(subject.function.tested(subject.function.called(args, kwargs)))
    arguments = [
        (f"argument {index}{path}", part)
        for index, item in (*enumerate(args), *kwargs.items())
        for path, part in leaves_of(item)
        if isinstance(part, Tensor) and id(part) in own
    ]
    tensors = [*arguments, *((f"output {index}", output) for index, output in enumerate(outputs))]
    return Call(leaves, outputs), [item for item in tensors if item[1].layout is torch.strided and item[1].numel()]


def _copied(item: Any) -> Any:
    return item.clone() if isinstance(item, Tensor) else item


def _change(tensor: Tensor) -> bool:
    """Change a tensor in place, as an optimizer does a parameter. Tell whether that was possible."""
    own = tensor.detach()  # which shares its memory and its version
    try:
        if own.is_floating_point() or own.is_complex():
            own.mul_(2).add_(1)
        else:
            own.zero_()  # for an index, the one number that is in range
    except RuntimeError:  # elements share their memory
        return False
    return True


def _after(subject: Subject, call: Call, name: str) -> Verdict:
    """Run backward after a change. Raising is right, and so are the gradients of an ordinary call."""
    try:
        gradient = call.pulled_back()
    except RuntimeError:
        return HOLDS
    verdict = compared(subject, "the gradients", gradient, ordinary(subject).gradient)
    if not verdict.is_failure:
        return verdict
    return fails(
        f"saved: {name} changed in place between forward and backward, and the gradients are silently wrong",
        f"off {verdict.detail}\nsave tensors by ctx.save_for_backward, which notices a change",
    )


check = per_sample(judge)
