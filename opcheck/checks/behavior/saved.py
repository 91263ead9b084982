"""What forward keeps for backward is guarded: a change in between makes backward raise, or does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, Result, copies, tensors_among
from opcheck.checks.relations import NO_GRAPH, compared, relation
from opcheck.checks.verdict import Verdict, fails
from opcheck.samples.inputs import built, parts


def rows(subject: Subject, here: Result) -> Iterator[Verdict]:
    """Change one argument or output at a time in place after forward, and run backward.

    Raising is right, and so are the gradients of an ordinary call.
    """
    call, tensors = _called(subject)
    for number, (name, _) in enumerate(tensors):
        if not here.has_graph:
            yield NO_GRAPH
        if number:
            call, tensors = _called(subject)
        if not _change(tensors[number][1]):
            continue
        try:
            gradient = call.gradient()
        except RuntimeError:
            continue
        verdict = compared(subject, "the gradients", gradient, here.gradient)
        if verdict.is_failure:
            title = f"{name} changed in place between forward and backward, and the gradients are silently wrong"
            hint = "save tensors by ctx.save_for_backward, which notices a change"
            verdict = fails(f"saved: {title}", f"off {verdict.detail}\n{hint}")
        yield verdict


def _called(subject: Subject) -> tuple[Call, list[tuple[str, Tensor]]]:
    """Call the operator. Return the call, and the arguments and outputs that may be written to, with names."""
    leaves = copies(subject.leaves)
    slots = subject.inputs.in_slots(leaves, change=_copied)
    own = {id(part) for part in parts([*slots])}  # objects may hold tensors that are not those of the call
    args, kwargs = built(slots[0]), built(slots[1])
    call = Call(leaves, subject.function.tested(subject.function.called(args, kwargs)))
    tensors = [item for item in tensors_among(args, kwargs) if id(item[1]) in own]
    tensors += [(f"output {index}", output) for index, output in enumerate(call.outputs)]
    return call, [item for item in tensors if item[1].layout is torch.strided and item[1].numel()]


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


check = relation(rows)
