"""Forward changes the buffers of a module in training mode only, and leaves no graph in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from opcheck.checks.per_sample import PerSample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails, inapplicable, one_line
from opcheck.derivatives import tried
from opcheck.samples.modules import ModuleCall
from opcheck.samples.watched import Watched


def judge(subject: Subject) -> Verdict:
    """Call the module in evaluation mode, whichever its mode is, and look at its buffers at the end of forward."""
    call = subject.function.operator
    assert isinstance(call, ModuleCall)
    args, kwargs = subject.inputs.detached().fill()
    keys = {name: key for name, key in call.named_in(kwargs).items() if name in call.buffers}
    watched = {name: Watched.of(name, kwargs[key]) for name, key in keys.items()}
    with evaluating(call.module), _buffers_at_the_end(call.module) as after:
        subject.function.reseed()
        error = tried(lambda: call(*args, **kwargs))
    if isinstance(error, Exception):
        return inapplicable(f"the module refuses the sample in evaluation mode: {one_line(error)}")
    changes = [f"{name} is new" for name in after if name not in watched]
    changes += [f"{name} is gone" for name in watched if name not in after]
    changes += [watched[name].change(after[name]) for name in watched if name in after]
    changes = [change for change in changes if change]
    if not changes:
        return _without_graphs(subject, call)
    return fails(f"buffers: forward changes buffers in evaluation mode: {changes[0]}", "\n".join(changes[1:]))


def _without_graphs(subject: Subject, call: ModuleCall) -> Verdict:
    """Call the module in its own mode, and return whether no buffer has a graph then, which each call would extend."""
    args, kwargs = subject.context.realize(subject.sample).fill()  # new ones, since forward may write to its buffers
    with torch.enable_grad(), _buffers_at_the_end(call.module) as after:
        subject.function.reseed()
        tried(lambda: call(*args, **kwargs))  # if it raises, another check reports it
    kept = next((name for name, buffer in after.items() if buffer.requires_grad), "")
    what = f"buffers: forward leaves a graph in {kept}, which the next call extends"
    return fails(what, "detach what is written to it") if kept else HOLDS


@contextmanager
def evaluating(module: Module) -> Iterator[None]:
    """Put a module and all modules inside it in evaluation mode, each back in its own mode at the end."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def _buffers_at_the_end(module: Module) -> Iterator[dict[str, Tensor]]:
    """Yield a dict that will hold the buffers of a module as forward leaves them, changed in place or replaced."""
    buffers: dict[str, Tensor] = {}

    def look(part: Module, args: Any, result: Any) -> None:
        buffers.update(part.named_buffers())

    handle = module.register_forward_hook(look)
    try:
        yield buffers
    finally:
        handle.remove()


check = PerSample(judge, derivative=False)
