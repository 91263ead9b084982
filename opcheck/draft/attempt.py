"""Tries a sample on an operator: whether the operator accepts it, is random, and can be differentiated."""

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
from opcheck.samples.results import Untestable, with_gradient
from opcheck.text import one_line

NO_GRAPH, NO_TANGENT = "no output requires grad", "no output has a tangent"
"""Why a call that raises no exception has no derivative in reverse or forward mode."""

Depth = tuple[int, ...]
"""How far a call got: the offset of the last bytecode instruction in each frame of the traceback, outermost first,
without frames of opcheck and torch. Depths are compared as tuples. Line numbers would not do: in a call that is written
on several lines, the arguments are evaluated before the call, but follow it in the source."""

NO_GUESS: Depth = ()
"""The depth of a sample that opcheck refuses itself, before the operator is called."""

OUT_OF_SIGHT: Depth = (0,)
"""The depth of an exception raised in C++, without any Python frame of the operator."""

RETURNED: Depth = (sys.maxsize,)
"""The depth of a call that returned, but with results that show no derivative."""


Place = int | str
"""An argument, by its position or name. Parameters of a module are arguments, too."""


@dataclass(frozen=True)
class Accepted:
    """A sample that an operator accepts, and the properties of its result."""

    sample: SampleData
    random: bool = False
    """Whether the operator draws random numbers of torch, or a second call gives another result."""
    inplace: bool = False
    """Whether the operator writes to its first argument. It then gets a clone of it."""
    without_forward: str = ""
    """Why no output has a tangent: the error of forward mode, or `NO_TANGENT`. Empty if any output has a tangent."""
    without_backward: dict[Place, str] = field(default_factory=dict)
    """Why there is no derivative with respect to each argument: a refusal by backward, or `NO_GRAPH`. Empty if there is
    a derivative, or if backward raises any other error."""
    ignored: frozenset[Place] = frozenset()
    """The arguments for which an autograd function returns None in backward."""
    is_conclusive: bool = True
    """Whether the derivatives are conclusive: gradients and tangents are finite, and the largest gradient is neither
    zero (up to rounding) nor huge, as outside the domain of a function that is clamped. Without any gradient,
    for example because backward raises, only the tangents count."""

    @property
    def requires_grad(self) -> bool:
        """Whether any output requires grad."""
        return any(why != NO_GRAPH for why in self.without_backward.values())


@dataclass(eq=False)
class Refused(Exception):
    """Why a sample cannot be used. opcheck raises it itself; `by` returns it for an exception of the operator."""

    why: str
    depth: Depth = NO_GUESS
    source: str = ""
    """The source line that raised the exception, and up to two lines before it."""
    error: BaseException | None = None
    """The exception, if it is an `Untestable`, or would end the process, such as SystemExit."""
    needs_gpu: bool = False
    """Whether the operator needs a GPU, and there is none: every other call fails as well."""

    @classmethod
    def by(cls, error: BaseException, device: str = "cpu") -> Refused:
        """Return the refusal for an exception that a call on a device raised."""
        if isinstance(error, Refused):
            return error.with_traceback(None)  # its frames hold tensors
        if isinstance(error, Untestable):
            return cls(str(error), RETURNED, error=error.with_traceback(None))
        frames = [one for one in _tracebacks(error) if not _is_ours(one.tb_frame.f_globals)]
        why, depth, source = one_line(error), tuple(one.tb_lasti for one in frames) or OUT_OF_SIGHT, ""
        if frames:
            file, last = frames[-1].tb_frame.f_code.co_filename, frames[-1].tb_lineno
            source = " ".join(linecache.getline(file, line).strip() for line in range(max(last - 2, 1), last + 1))
        gpu = device == "cpu" and needs_gpu(why, source)  # elsewhere, its tensors are on a device
        ending = None if isinstance(error, Exception) else error.with_traceback(None)
        return cls(why, (*RETURNED, 0) if gpu else depth, source, ending, gpu)


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    """Yield the traceback objects of an exception, one for each frame, outermost first."""
    one = error.__traceback__
    while one is not None:
        yield one
        one = one.tb_next


def _is_ours(names: dict[str, Any]) -> bool:
    return str(names.get("__name__", "")).partition(".")[0] in ("opcheck", "torch")


def shown(function: TestedFunction, sample: SampleData) -> Accepted:
    """Call a function at its inputs, and return what the calls show.

    sample: the sample that the inputs of the function were made from.

    Passes on the exceptions of the function. Raises Untestable if it returns no tensor, Refused if its results are not
    finite, or all empty.
    """
    leaves = function.inputs.leaves
    if not leaves:
        raise Refused("no tensor to differentiate with respect to", OUT_OF_SIGHT)
    kept = copies(leaves)  # a call may write to its arguments
    state = torch.get_rng_state()
    outputs, again = function(), function(*kept)
    draws = not torch.equal(state, torch.get_rng_state())
    if not _are_finite(outputs):
        raise Refused("the result is not finite", RETURNED)
    if not any(output.numel() for output in outputs):
        raise Refused("the result has no elements", RETURNED)
    gradients: dict[Place, list[Tensor]] = {}
    without_backward: dict[Place, str] = {}
    for place, found in _by_backward(function):
        without_backward[place] = without_backward.get(place) or _refusal(found)
        if not isinstance(found, str):
            gradients.setdefault(place, []).extend([] if found is None else [found])
    tangents, without_forward = _by_forward(function)
    all_gradients = [one for own in gradients.values() for one in own]
    return Accepted(
        sample,
        random=draws or not all(map(equal, outputs, again)),
        inplace=function.inplace,
        without_forward=without_forward,
        without_backward=without_backward,
        ignored=frozenset(place for place, own in gradients.items() if not own),
        is_conclusive=_are_finite((*all_gradients, *tangents)) and (not gradients or _are_moderate(all_gradients)),
    )


def _refusal(found: Tensor | str | None) -> str:
    """Return why there is no derivative; empty if there is one, or if an error is no refusal."""
    return found if isinstance(found, str) and (found == NO_GRAPH or is_refusal(found)) else ""


def _are_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(one).all()) for one in tensors)


def _are_moderate(gradients: Iterable[Tensor]) -> bool:
    """Return whether the largest gradient is neither rounding nor huge, so that finite differences can check it."""
    largest = max((float(one.abs().max()) for one in gradients if one.numel()), default=0.0)
    return 1e-6 < largest < 1e8


def _by_backward(function: TestedFunction) -> Iterator[tuple[Place, Tensor | str | None]]:
    """Yield each leaf's argument and gradient: None if backward returns none, or why there is none, in words."""
    for slot in function.inputs.slots:
        leaves = [leaf.detach().clone() for leaf in function.inputs.leaves]
        own, place = leaves[slot.index].requires_grad_(), slot.path[1]
        try:
            call = Call((own,), with_gradient(function(*leaves)))
            cotangents = [v.to(y) for y, v in zip(call.outputs, call.cotangents, strict=True)]
            if call.outputs:
                yield place, torch.autograd.grad(call.outputs, own, cotangents, allow_unused=True)[0]
            else:
                yield place, NO_GRAPH
        except Exception as error:
            yield place, one_line(error)


def _by_forward(function: TestedFunction) -> tuple[list[Tensor], str]:
    """Return the tangents of the outputs that have one; and why there are none, else an empty string."""
    leaves = [leaf.detach() for leaf in function.inputs.leaves]
    try:
        _, carried = pushed(function, leaves, list(map(torch.ones_like, leaves)))
    except Exception as error:
        return [], one_line(error)
    tangents = [tangent for tangent in carried if tangent is not None]
    return tangents, "" if tangents else NO_TANGENT
