"""A module's buffers are changed in training mode only, and no graph is left in them.

It may be called again before the backward pass of the first call.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from opcheck.checks.calls import Call, copies, ordinary
from opcheck.checks.per_sample import PerSample
from opcheck.checks.relations import off_by
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails, inapplicable
from opcheck.derivatives import tried
from opcheck.samples.modules import ModuleCall, buffers_at_the_end, evaluating
from opcheck.samples.watched import Watched
from opcheck.text import one_line


def judge(subject: Subject) -> Iterator[Verdict]:
    """Test the buffers after forward in evaluation mode and in the module's own mode, and backward after two calls."""
    call = subject.function.operator
    assert isinstance(call, ModuleCall)
    yield _in_evaluation(subject, call)
    yield _without_graphs(subject, call)
    yield _called_again(subject, call)


def _in_evaluation(subject: Subject, call: ModuleCall) -> Verdict:
    """Call the module in evaluation mode, and return whether its buffers are unchanged after forward and backward."""
    leaves = copies(subject.leaves)
    args, kwargs = subject.inputs.fill(leaves)
    keys = {name: key for name, key in call.named_in(kwargs).items() if name in call.buffers}
    watched = {name: Watched.of(name, kwargs[key]) for name, key in keys.items()}
    with evaluating(call.module), buffers_at_the_end(call.module) as after:
        result = tried(lambda: subject.function.called(args, kwargs))
    if isinstance(result, Exception):
        return inapplicable(f"the module refuses the sample in evaluation mode: {one_line(result)}")
    changes = [f"{name} is new" for name in after if name not in watched]
    changes += [f"{name} is gone" for name in watched if name not in after]
    changes += [watched[name].change(after[name]) for name in watched if name in after]
    stage, changes = "forward", [change for change in changes if change]
    if not changes and subject.supports.backward:
        tried(Call(leaves, subject.function.tested(result)).gradient)  # if it raises, another check reports it
        stage, changes = "backward", [one for name, key in keys.items() if (one := watched[name].change(kwargs[key]))]
    if not changes:
        return HOLDS
    return fails(f"buffers: {stage} changes buffers in evaluation mode: {changes[0]}", "\n".join(changes[1:]))


def _without_graphs(subject: Subject, call: ModuleCall) -> Verdict:
    """Call the module in its own mode, and return whether no buffer has a graph at the end of forward.

    Each call would extend a graph that is kept in a buffer.
    """
    args, kwargs = subject.context.realize(subject.sample).fill()  # new tensors, since forward may write to its buffers
    for key in (key for name, key in call.named_in(kwargs).items() if name in call.buffers):
        kwargs[key] = kwargs[key].detach()  # a buffer that is differentiated would have a graph of its own
    with torch.enable_grad(), buffers_at_the_end(call.module) as after:
        tried(lambda: subject.function.called(args, kwargs))  # if it raises, another check reports it
    kept = next((name for name, buffer in after.items() if buffer.grad_fn is not None), "")
    what = f"buffers: forward leaves a graph in {kept}, which the next call extends"
    return fails(what, "detach what is written to it") if kept else HOLDS


def _called_again(subject: Subject, call: ModuleCall) -> Verdict:
    """Call the module twice in its own mode, as for two batches, then run the backward pass of the first call."""
    if not subject.supports.backward:
        return HOLDS
    leaves = copies(subject.leaves)
    args, kwargs = subject.context.realize(subject.sample).fill(leaves)
    state = call.taken_from(kwargs)  # shared by the two calls

    def forward() -> tuple[Tensor, ...]:
        subject.function.reseed()
        return subject.function.tested(call.with_state(state, args, kwargs))

    with torch.enable_grad():
        first, _ = Call(leaves, forward()), forward()
    if not first.has_graph:
        return HOLDS
    expected = ordinary(subject).gradient
    gradient = tried(first.gradient)
    title = "buffers: backward after a second forward"
    if isinstance(gradient, Exception):
        return fails(f"{title} raised {one_line(gradient)}", KEEP)
    return fails(f"{title} gives another gradient", KEEP) if off_by(subject, gradient, expected) else HOLDS


KEEP = "forward changes what backward needs in place: assign a new tensor to the buffer, or let backward use a copy"


check = PerSample(judge, derivative=False)
