"""What forward keeps for backward is guarded: a change in between makes backward raise, or does not matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.ordinary import Call, compared, copies, ordinary
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails, untested
from opcheck.samples.outputs import differentiable

Arguments = Mapping[int | str, Any]


def judge(subject: Subject) -> Verdict:
    """Change one argument or output at a time in place after forward, and run backward."""
    ordinary(subject)
    names = [name for name, _ in _tensors(*_called(subject))]
    for index, name in enumerate(names):
        call, tensors = _called(subject)
        if not any(output.requires_grad for output in call.outputs):
            return untested("no output requires grad: there is no backward pass")
        if not _change([tensor for _, tensor in _tensors(call, tensors)][index]):
            continue
        verdict = _after(subject, call, name)
        if not verdict.passed:
            return verdict
    return HOLDS


def _called(subject: Subject) -> tuple[Call, Arguments]:
    """Call the operator. Return the call and its arguments, by position or name."""
    leaves = copies(subject.leaves)
    args, kwargs = subject.inputs.fill(leaves)
    args, kwargs = tuple(map(_copied, args)), {name: _copied(value) for name, value in kwargs.items()}
    outputs = differentiable(subject.function.tested(subject.function.called(args, kwargs)))
    return Call(leaves, outputs), dict([*enumerate(args), *kwargs.items()])


def _copied(item: Any) -> Any:
    """Return an argument whose tensors are copies, but for those that depend on leaves."""
    if isinstance(item, Tensor):
        return item if item.requires_grad else item.clone()
    return type(item)(map(_copied, item)) if type(item) in (list, tuple) else item


def _tensors(call: Call, arguments: Arguments) -> Iterator[tuple[str, Tensor]]:
    outputs: Arguments = dict(enumerate(call.outputs))
    for kind, items in (("argument", arguments), ("output", outputs)):
        for index, item in items.items():
            for name, found in _inside(f"{kind} {index}", item):
                if found.layout is torch.strided and found.numel():
                    yield name, found


def _inside(name: str, item: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of an argument that `_copied` has copied: nothing else may be written to."""
    if isinstance(item, Tensor):
        yield name, item
    elif type(item) in (list, tuple):
        for index, part in enumerate(item):
            yield from _inside(f"{name}[{index}]", part)


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
        found = call.pulled_back()
    except RuntimeError:
        return HOLDS
    verdict = compared(subject, "the gradients", found, ordinary(subject).gradient)
    if not verdict.is_failure:
        return verdict
    return fails(
        f"saved: {name} changed in place between forward and backward, and the gradients are silently wrong",
        f"off {verdict.detail}\nsave tensors by ctx.save_for_backward, which notices a change",
    )


check = per_sample(judge)
