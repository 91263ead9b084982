"""Forward, backward and forward mode leave what they are given as it is: arguments, cotangents, captured tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, copies, is_strided, push, tangents_of, tensors_among, tried
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.checks.watched import Watched
from opcheck.samples.captured import captured
from opcheck.text import class_of


def judge(subject: Subject) -> Iterator[Verdict]:
    """Watch the tensors through forward, backward, the backward pass of backward, and forward mode.

    A stage that raises has other checks to say so.
    """
    with torch.enable_grad():
        subject.result  # noqa: B018 - what a call keeps is then of this sample, whichever check has called before
    inputs = subject.context.realize(subject.sample)  # new ones: those of the subject have been given to the operator
    args, kwargs = inputs.fill(leaves := copies(inputs.leaves))
    watched = [Watched.of(*named) for named in (*tensors_among(args, kwargs), *captured(subject.function.operator))]
    outputs = subject.function.tested(subject.function.called(args, kwargs))
    yield _unchanged("forward", watched)
    call = Call(leaves, tuple(y for y in outputs if y.requires_grad))
    cotangents = tuple(v.requires_grad_() for v in call.cotangents)
    watched += _all("output", call.outputs) + _all("cotangent", cotangents)
    stages: dict[str, Callable[[], object]] = {}
    if call.outputs and subject.supports.backward:
        stages["backward"] = lambda: call.gradients(v.detach() for v in cotangents)
        if subject.supports.second_order:
            stages["the backward pass of backward"] = lambda: call.again(cotangents).gradients()
    if subject.supports.forward_ad and is_strided(subject):
        vectors = tangents_of(subject)
        watched += _all("tangent", vectors)
        stages["forward mode"] = lambda: push(subject, vectors)
    for name, stage in stages.items():
        error = tried(stage)
        yield _unchanged(f"{name}, which raised {class_of(error)}," if isinstance(error, Exception) else name, watched)


def _all(kind: str, tensors: Iterable[Tensor]) -> list[Watched]:
    return [Watched.of(f"{kind} {index}", tensor) for index, tensor in enumerate(tensors)]


def _unchanged(stage: str, watched: Iterable[Watched]) -> Verdict:
    changes = [change for change in (item.change() for item in watched) if change]
    if not changes:
        return HOLDS
    return fails(f"purity: {stage} changes what it is given: {changes[0]}", "\n".join(changes[1:]))


check = per_sample(judge)
