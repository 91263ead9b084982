"""Forward, backward and forward mode leave what they are given as it is: arguments, cotangents, captured tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, copies, is_strided, pushed_forward, tangents
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.checks.watched import Watched
from opcheck.derivatives import NO_REFUSAL
from opcheck.samples.captured import captured
from opcheck.samples.results import leaves_of
from opcheck.text import class_of


def judge(subject: Subject) -> Verdict:
    """Watch the tensors through forward, backward, the backward pass of backward, and forward mode.

    A stage that raises has other checks to say so.
    """
    supports = subject.supports
    with torch.enable_grad():
        subject.result  # noqa: B018 - what a call keeps is then of this sample, whichever check has called before
    inputs = subject.context.realize(subject.sample)  # new ones: those of the subject have been given to the operator
    args, kwargs = inputs.fill(leaves := copies(inputs.leaves))
    tensors = [*_tensors("argument", [*enumerate(args), *kwargs.items()]), *captured(subject.function.operator)]
    watched = [Watched.of(name, tensor) for name, tensor in tensors]
    outputs = subject.function.tested(subject.function.called(args, kwargs))
    if changed := _changed("forward", watched):
        return changed
    call = Call(leaves, tuple(y for y in outputs if y.requires_grad))
    cotangents = tuple(v.requires_grad_() for v in call.cotangents)
    watched += [Watched.of(f"output {index}", y) for index, y in enumerate(call.outputs)]
    watched += [Watched.of(f"cotangent {index}", v) for index, v in enumerate(cotangents)]
    stages: list[tuple[str, Callable[[], object]]] = []
    if call.outputs and supports.backward:
        stages.append(("backward", lambda: call.pulled_back(tuple(v.detach() for v in cotangents))))
        if supports.second_order:
            stages.append(("the backward pass of backward", lambda: call.pulled_back_twice(cotangents)))
    if supports.forward_ad and is_strided(subject):
        vectors = tangents(subject)
        watched += [Watched.of(f"tangent {index}", t) for index, t in enumerate(vectors)]
        stages.append(("forward mode", lambda: pushed_forward(subject, vectors)))
    return _through(stages, watched)


def _through(stages: list[tuple[str, Callable[[], object]]], watched: list[Watched]) -> Verdict:
    for name, stage in stages:
        try:
            stage()
        except NO_REFUSAL:
            raise
        except Exception as error:
            what = f"{name}, which raised {class_of(error)},"
        else:
            what = name
        if changed := _changed(what, watched):
            return changed
    return HOLDS


def _changed(stage: str, watched: Iterable[Watched]) -> Verdict | None:
    changes = [change for change in (item.change() for item in watched) if change]
    if not changes:
        return None
    return fails(f"purity: {stage} changes what it is given: {changes[0]}", "\n".join(changes[1:]))


def _tensors(kind: str, items: Iterable[tuple[int | str, Any]]) -> Iterator[tuple[str, Tensor]]:
    for index, item in items:
        for path, tensor in leaves_of(item):
            if isinstance(tensor, Tensor):
                yield f"{kind} {index}{path}", tensor


check = per_sample(judge)
