"""Tensors saved by forward are protected against in-place changes before backward, and freed with the graph."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import torch
from torch import Tensor

from opcheck.checks.calls import Call, Result, copies, ordinary, tensors_among
from opcheck.checks.raw_gradients import have_own_backward
from opcheck.checks.relations import Row, compared, relation
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, NO_GRAPH, Verdict, fails
from opcheck.derivatives import tried
from opcheck.samples.inputs import built, parts
from opcheck.samples.results import has_derivative

TRIES = 5
"""The maximum number of pairs of calls to make until the garbage collector does not run during one."""

IN_FUNCTIONS = "save tensors by ctx.save_for_backward, which notices a change"
IN_COMPOSITIONS = (
    "use tensors themselves, not .data or other aliases without a graph: autograd notices a change of those"
)
"""What to write in an autograd.Function, and in a function that is made of others."""

References = dict[str, "weakref.ref[Tensor]"]


def rows(subject: Subject, here: Result) -> Iterator[Verdict]:
    """Change one argument or output at a time in place after forward, and run backward.

    Backward must raise, or return the gradients of an ordinary call. At the end, the first call must have been freed.
    """
    bare = subject.bare
    there = tried(lambda: ordinary(bare))
    if not isinstance(there, Exception):  # without its map of outputs, backward of a decomposition may raise
        subject, here = bare, there
    if not here.has_graph:
        yield NO_GRAPH
        return
    collections = _collections()
    subject = subject.calling(on_copies=False)  # the call that saves a tensor is one with the tensor that is changed
    call, tensors = _called(subject)
    kept = _references(call)
    names = [name for name, _ in tensors]
    for number, name in enumerate(names):
        if number:
            call, tensors = _called(subject)
        if not _change(tensors[number][1]):
            continue
        try:
            gradient = call.gradient()
        except RuntimeError:
            yield HOLDS  # autograd detected the change
            continue
        verdict = compared(subject, Row("the gradients", gradient, here.gradient))
        if verdict.is_failure:
            title = f"{name} changed in place between forward and backward, and the gradients are silently wrong"
            hint = IN_FUNCTIONS if have_own_backward(call.outputs) else IN_COMPOSITIONS
            verdict = fails(f"saved: {title}", f"off {verdict.detail}\n{hint}")
        yield verdict
    if len(names) > 1:  # after several calls, since a cache of only the last call does not grow
        del call, tensors
        yield _freed(subject, kept, collections)


def _freed(subject: Subject, kept: References, collections: int) -> Verdict:
    """Return whether a call and its graph are freed after later calls.

    kept: weak references to the leaves and outputs of the call.
    collections: how often the garbage collector had run before the call. If it has run since, it may have freed a
        reference cycle, so that another call is tested.
    """
    for _ in range(TRIES):
        if any(reference() is not None for reference in kept.values()) or collections == _collections():
            break
        collections = _collections()
        kept = _references(_backward(subject))
        _backward(subject)
    alive = [name for name, reference in kept.items() if reference() is not None]
    if not alive:
        return HOLDS
    gc.collect()
    title = f"saved: {alive[0]} of a call stays in memory after it and its graph are gone: memory grows with each call"
    if any(reference() is not None for reference in kept.values()):
        return fails(title, "it is still held outside the call, as by a global variable, a cache or a module attribute")
    hint = "the tensor is part of a reference cycle, so that only Python's garbage collector frees it"
    return fails(title, f"{hint}\nkeep outputs by ctx.save_for_backward, not as attributes of ctx")


def _backward(subject: Subject) -> Call:
    call = Call.of(subject)
    tried(call.gradient)
    return call


def _references(call: Call) -> References:
    named = [(f"leaf {k}", leaf) for k, leaf in enumerate(call.leaves)]
    named += [(f"output {k}", output) for k, output in enumerate(call.results)]
    return {name: weakref.ref(tensor) for name, tensor in named}


def _collections() -> int:
    """Return how often Python's garbage collector has run."""
    return sum(int(generation["collections"]) for generation in gc.get_stats())


def _called(subject: Subject) -> tuple[Call, list[tuple[str, Tensor]]]:
    """Call the operator. Return the call, and the arguments and outputs that may be written to, with names."""
    leaves = copies(subject.leaves)
    slots = subject.inputs.fill(leaves, change=lambda item: item.clone() if isinstance(item, Tensor) else item)
    own = {id(part) for part in parts([*slots])}  # without tensors that only objects among the arguments hold
    args, kwargs = built(slots[0]), built(slots[1])
    call = Call(leaves, subject.function.tested(subject.function.called(args, kwargs)))
    tensors = [item for item in tensors_among(args, kwargs, subject.context.signature.positional) if id(item[1]) in own]
    tensors += [(f"output {index}", output) for index, output in enumerate(call.outputs)]
    return call, [item for item in tensors if item[1].layout is torch.strided and item[1].numel()]


def _change(tensor: Tensor) -> bool:
    """Change a tensor in place, as an optimizer changes a parameter. Return whether that was possible."""
    own = tensor.detach()  # shares the memory and the version counter
    try:
        if has_derivative(own):
            own.mul_(2).add_(1)
        else:
            own.zero_()  # the only index that is always in range
    except RuntimeError:  # elements share their memory
        return False
    return True


check = relation(rows)
