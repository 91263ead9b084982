"""What one call of an operator shows: whether it takes a sample, is random, and can be differentiated."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.calls import Call, copies
from opcheck.derivatives.autodiff import pushed
from opcheck.draft.data import SampleData
from opcheck.draft.refusal import is_refusal, needs_gpu
from opcheck.samples.function import TestedFunction
from opcheck.samples.layouts import equal
from opcheck.samples.results import Untestable
from opcheck.text import one_line

NO_GRAPH, NO_TANGENT = "no output requires grad", "no output has a tangent"
"""What is wrong with a call that raises nothing."""

Depth = tuple[int, ...]
"""How far a call got: the instructions that ran last, of the operator and of what it calls, compared in this order.
In a call that is written on several lines, arguments come before the call, which lines do not tell."""

NO_GUESS: Depth = ()
"""The depth of what opcheck itself refuses, and no operator."""

OUT_OF_SIGHT: Depth = (0,)
"""The depth of what is refused by code in C++."""


@dataclass(frozen=True)
class Tried:
    """A sample that an operator takes, and what its result is like."""

    sample: SampleData
    random: bool = False
    inplace: bool = False
    """Whether the operator changes its first argument, so that it gets a clone."""
    without_forward: str = ""
    """Why no output has a tangent: what forward mode raises, or `NO_TANGENT`. Empty if one has."""
    without_backward: dict[int | str, str] = field(default_factory=dict)
    """Why there is no derivative with respect to an argument alone: what backward raises, or `NO_GRAPH`. Empty if there
    is. The arguments are positions and names, those of parameters too."""
    is_telling: bool = True
    """Whether a gradient is more than zeros, or rounding, or backward raises; and no derivative is huge, infinite or
    NaN, as outside the domain of a function that is clamped."""

    @property
    def requires_grad(self) -> bool:
        """Whether an output has a graph."""
        return any(why != NO_GRAPH for why in self.without_backward.values())


@dataclass(frozen=True)
class Refused:
    """Why a sample is of no use."""

    why: str
    depth: Depth = OUT_OF_SIGHT
    source: str = ""
    """The lines that raised it, up to three."""
    ends_process: bool = False
    """Whether it raised what ends a process."""
    needs_gpu: bool = False
    """Whether that is for want of a GPU: then no other call gets further."""
    is_plain: bool = False
    """Whether the operator took the sample, and returned numbers, strings and the like, but no tensor."""

    @classmethod
    def by(cls, error: BaseException, device: str = "cpu") -> Refused:
        """Return the refusal that an exception of a call on a device is."""
        frames = [one for one in _tracebacks(error) if not _is_ours(one.tb_frame.f_globals)]
        why, depth, source = one_line(error), tuple(one.tb_lasti for one in frames) or OUT_OF_SIGHT, ""
        if frames:
            file, last = frames[-1].tb_frame.f_code.co_filename, frames[-1].tb_lineno
            source = " ".join(linecache.getline(file, line).strip() for line in range(max(last - 2, 1), last + 1))
        gpu = device == "cpu" and needs_gpu(why, source)  # elsewhere it has what it needs
        is_plain = isinstance(error, Untestable) and error.is_plain
        return cls(why, (sys.maxsize,) if gpu else depth, source, not isinstance(error, Exception), gpu, is_plain)


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    """Yield the tracebacks of an exception, one for each frame."""
    one = error.__traceback__
    while one is not None:
        yield one
        one = one.tb_next


def _is_ours(names: dict[str, Any]) -> bool:
    return str(names.get("__name__", "")).partition(".")[0] in ("opcheck", "torch")


def shown(function: TestedFunction, sample: SampleData) -> Tried | Refused:
    """Return what a call of a function with its inputs, which are those of a sample, shows, or why it is of no use."""
    leaves = function.inputs.leaves
    if not leaves:
        return Refused("no tensor to differentiate with respect to")
    kept = copies(leaves)  # a call may write to what it gets
    outputs, again = function(), function(*kept)
    if not _is_finite(outputs):
        return Refused("the result is not finite")
    gradients, without_backward = _by_backward(function)
    tangents, without_forward = _by_forward(function)
    return Tried(
        sample,
        random=not all(map(equal, outputs, again)),
        inplace=function.inplace,
        without_forward=without_forward,
        without_backward=without_backward,
        is_telling=_is_finite((*gradients, *tangents)) and (not gradients or _are_moderate(gradients)),
    )


def _is_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(one).all()) for one in tensors)


def _are_moderate(gradients: Iterable[Tensor]) -> bool:
    """Tell whether gradients are such as differences can be compared with: neither next to nothing nor huge."""
    largest = max((float(one.abs().max()) for one in gradients if one.numel()), default=0.0)
    return 1e-6 < largest < 1e8


def _by_backward(function: TestedFunction) -> tuple[list[Tensor], dict[int | str, str]]:
    """Return the gradients with respect to one argument at a time, and why there are none, by argument."""
    gradients, without = list[Tensor](), dict[int | str, str]()
    for slot in function.inputs.slots:
        leaves = [leaf.detach().clone() for leaf in function.inputs.leaves]
        own, place = leaves[slot.index].requires_grad_(), slot.path[1]
        without.setdefault(place, "")
        try:
            call = Call((own,), function(*leaves))
            if call.has_graph:
                gradients += call.gradients()
            else:
                without[place] = NO_GRAPH
        except Exception as error:
            if is_refusal(one_line(error)):
                without[place] = one_line(error)
    return gradients, without


def _by_forward(function: TestedFunction) -> tuple[list[Tensor], str]:
    """Return the tangents of the outputs that have one, and why none has."""
    leaves = [leaf.detach() for leaf in function.inputs.leaves]
    try:
        _, carried = pushed(function, leaves, list(map(torch.ones_like, leaves)))
    except Exception as error:
        return [], one_line(error)
    tangents = [tangent for tangent in carried if tangent is not None]
    return tangents, "" if tangents else NO_TANGENT
