"""The reference engine: puts every claim to `torch.autograd.gradcheck` and `gradgradcheck`.

It is slow, and it is the yardstick for the other engine, so it shares no calculus with it. What torch's two functions
do not cover (further orders, gradients of sparse layouts, batching by the public vmap) is built here from torch's other
functions, one point and one direction at a time.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.question import Function, Request

# torch's functions test much at once. So that each claim fails under its own name, a check switches everything else
# off: other features by their parameters, non-determinism by an infinite tolerance, and, for claims beside the
# Jacobian, the comparison of Jacobians by a tolerance that only NaN exceeds (an infinite one would become NaN where
# torch scales it by 0).
ALL_OFF: dict[str, Any] = dict.fromkeys(("check_undefined_grad", "check_grad_dtypes", "check_batched_grad"), False)
ALL_OFF["nondet_tol"] = math.inf
WITHOUT_JACOBIAN: dict[str, Any] = {"atol": 1e300, "fast_mode": True}
FORWARD: dict[str, Any] = {"check_forward_ad": True, "check_backward_ad": False}

OBJECTIONS = {
    "Jacobian": "Jacobian.*mismatch|expected to be zero",
    "nondeterminism": "not reentrant",
    "batching": "batched grad",
    "backward": "not multiplied by grad_output",
    "grad_dtypes": "dtype mismatch|is incorrect|has incorrect",
    "undefined_grad": "undefined",
}
"""What torch objects to, in the order in which gradcheck looks at it, by a pattern of its messages."""
REFUSED = "While computing batched gradients, got|Expected backward function to handle undefined"
"""Messages that mean an error was raised, not a wrong number returned."""

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

Step = Literal["rev", "fwd", "sum"]


@dataclass(frozen=True)
class Question:
    """How a check is put to torch."""

    second_order: bool = False
    of: tuple[Step, ...] = ()
    """The derivative that is asked about: the function's vjp, its jvp, or the sum of its gradients."""
    parameters: dict[str, Any] = field(default_factory=dict)
    claim: str = ""
    """Which of OBJECTIONS contradict the claim; empty: all of them."""


QUESTIONS = {
    "backward": Question(),
    "forward_ad": Question(parameters=FORWARD),
    "batched_grad": Question(parameters={**WITHOUT_JACOBIAN, "check_batched_grad": True}, claim="batching"),
    "batched_forward_grad": Question(
        parameters={**WITHOUT_JACOBIAN, **FORWARD, "check_batched_forward_grad": True}, claim="batching"
    ),
    "undefined_grad": Question(parameters={**WITHOUT_JACOBIAN, "check_undefined_grad": True}, claim="undefined_grad"),
    "grad_dtypes": Question(parameters={**WITHOUT_JACOBIAN, "check_grad_dtypes": True}, claim="grad_dtypes"),
    "nondeterminism": Question(parameters=WITHOUT_JACOBIAN, claim="nondeterminism"),
    "rev_over_rev": Question(second_order=True, parameters={"check_rev_over_rev": True}),
    "fwd_over_rev": Question(second_order=True, parameters={"check_rev_over_rev": False, "check_fwd_over_rev": True}),
    "masked": Question(),
    # The orders that torch's functions leave out are put as questions about a derivative made by hand.
    "rev_over_fwd": Question(of=("fwd",)),
    "scalarized_second_order": Question(of=("sum",)),
    "rev_over_rev_over_rev": Question(of=("rev", "rev")),
}


class TorchEngine:
    """Puts claims to torch's own functions."""

    name = "torch"

    def ask(self, check: str, request: Request) -> Disagreement | None:
        """Return why a claim does not hold, or None if it does. See `Engine.ask`."""
        if check == "fwd_over_fwd":  # dual numbers do not nest: gradcheck cannot ask for it
            return _forward_over_forward(request)
        question = QUESTIONS[check]
        for step in question.of:
            request = _derivative(request, step)
        parameters = self._parameters(check, question, request)
        if not question.second_order:
            found = _put(gradcheck, request, question, parameters)
            # gradcheck's vmap lacks rules that operators do have: https://github.com/pytorch/pytorch/issues/130768
            return _batching(check, request) if found and question.claim == "batching" else found
        if any(leaf.layout in SPARSE for leaf in request.leaves):
            return _put(gradcheck, _dense_gradients(request), question, _first_order(parameters))
        if request.grad_outputs is not None:
            return _put(gradgradcheck, request, question, {**parameters, "grad_outputs": request.grad_outputs})
        for non_contiguous in request.non_contiguous:
            given = {"grad_outputs": None, "gen_non_contig_grad_outputs": non_contiguous}
            found = _put(gradgradcheck, request, question, {**parameters, **given})
            if found or check != "rev_over_rev":
                return found
        return None

    def _parameters(self, check: str, question: Question, request: Request) -> dict[str, Any]:
        numbers = request.numbers
        parameters: dict[str, Any] = {
            "eps": numbers.eps,
            "atol": numbers.atol,
            "rtol": numbers.rtol,
            "masked": request.masked,
            "fast_mode": request.fast_mode,
            "raise_exception": request.raise_exception,
            **ALL_OFF,
            **question.parameters,
        }
        if check == "nondeterminism":
            parameters["nondet_tol"] = numbers.nondeterminism
        if check == "undefined_grad":
            parameters["check_forward_ad"] = request.forward_ad
        if check == "rev_over_rev":
            parameters["check_undefined_grad"] = request.undefined_grad
        if any(leaf.layout is not torch.strided for leaf in request.leaves):
            parameters["fast_mode"] = request.fast_mode  # projections of sparse tensors are the less trodden path
        return parameters


def _put(function: Any, request: Request, question: Question, parameters: dict[str, Any]) -> Disagreement | None:
    try:
        with warnings.catch_warnings():
            # Precision below double is the spec's choice; opcheck says so itself.
            warnings.filterwarnings("ignore", message=".*not a double precision floating point.*")
            warnings.filterwarnings("ignore", message="Backwards compatibility: New undefined gradient")
            held = function(request.function, request.leaves, **parameters)
    except GradcheckError as error:
        text = " ".join(str(part) for part in error.args).strip()
        return _objection(text, question.claim)
    except Exception as error:
        if question.claim != "batching":
            raise
        return Disagreement(str(error), "refused")
    return None if held else Disagreement(f"torch.autograd.{function.__name__} returned False")


def _objection(text: str, claim: str) -> Disagreement | None:
    """Return what a message of torch says about a claim, or None if torch had found that the claim holds."""
    order = list(OBJECTIONS)
    about = next((name for name in reversed(order) if re.search(OBJECTIONS[name], text)), "")
    if not claim or about == claim:
        return Disagreement(text, "refused" if re.search(REFUSED, text) else "wrong")
    if about and order.index(about) > order.index(claim):
        return None
    return Disagreement(f"torch did not come to this claim; it objects to something else: {text}", "inconclusive")


# what torch's functions cannot be asked


def _chosen(function: Function, leaves: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, ...]]:
    """Restrict a function to the outputs that have a backward pass or, if none has, to those that could have one."""
    outputs = function(*leaves)
    places = [k for k, y in enumerate(outputs) if y.requires_grad]
    places = places or [k for k, y in enumerate(outputs) if y.is_floating_point() or y.is_complex()]

    def chosen(*points: Tensor) -> tuple[Tensor, ...]:
        found = function(*points)
        return tuple(found[k] for k in places)

    return chosen


def _gradients(outputs: tuple[Tensor, ...], leaves: tuple[Tensor, ...], cotangents: Any, **how: Any) -> Any:
    return torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, materialize_grads=True, **how)


def _jvp(function: Function, points: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    untyped: Any = fwad
    with fwad.dual_level():
        outputs = function(*map(untyped.make_dual, points, tangents))
        found = [untyped.unpack_dual(y).tangent for y in outputs]
    return tuple(torch.zeros_like(y) if t is None else t for y, t in zip(outputs, found, strict=True))


def _random(like: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(_as_lazy(torch.rand_like(tensor) - 0.5, tensor) for tensor in like)


def _as_lazy(vector: Tensor, like: Tensor) -> Tensor:
    """Return a vector with the conjugate bit of a tensor, which torch requires of its tangents."""
    return vector.conj() if like.is_conj() else vector


def _derivative(request: Request, step: Step) -> Request:
    """Return the same question about a derivative of the function, with random vectors as further leaves."""
    function, count = _chosen(request.function, request.leaves), len(request.leaves)

    def vjp(*arguments: Tensor) -> tuple[Tensor, ...]:
        leaves, cotangents = arguments[:count], arguments[count:]
        found: tuple[Tensor, ...] = _gradients(function(*leaves), leaves, cotangents, create_graph=True)
        return found

    def total(*leaves: Tensor) -> tuple[Tensor, ...]:
        outputs = function(*leaves)
        found = _gradients(outputs, leaves, tuple(map(torch.ones_like, outputs)), create_graph=True)
        sums = [g.real.sum() + g.imag.sum() if g.is_complex() else g.sum() for g in found]
        return (torch.stack(sums).sum(),)

    def jvp(*arguments: Tensor) -> tuple[Tensor, ...]:
        return _jvp(function, arguments[:count], arguments[count:])

    if step == "sum":
        return request.with_(function=total)
    given = request.grad_outputs if step == "rev" else None
    vectors = given or _random(function(*request.leaves) if step == "rev" else request.leaves)
    leaves = (*request.leaves, *(v.detach().requires_grad_() for v in vectors))
    return request.with_(function=vjp if step == "rev" else jvp, leaves=leaves, grad_outputs=None)


def _dense_gradients(request: Request) -> Request:
    """Return the question about the vjp with dense gradients, since gradgradcheck refuses sparse ones."""
    derived = _derivative(request, "rev")

    def dense(*arguments: Tensor) -> tuple[Tensor, ...]:
        found = derived.function(*arguments)
        return tuple(g.to_dense(masked_grad=request.masked) if g.layout in SPARSE else g for g in found)

    return derived.with_(function=dense)


def _first_order(parameters: dict[str, Any]) -> dict[str, Any]:
    """Translate parameters of gradgradcheck into those of gradcheck, which cannot compare sparse gradients with 0."""
    names = {"check_rev_over_rev": "check_backward_ad", "check_fwd_over_rev": "check_forward_ad"}
    return {names.get(name, name): value for name, value in parameters.items()} | {"check_undefined_grad": False}


def _forward_over_forward(request: Request) -> Disagreement | None:
    """Compare the jvp of the jvp with differences of the jvp, along each real coordinate in turn."""
    function, numbers = _chosen(request.function, request.leaves), request.numbers
    leaves = tuple(leaf.detach() for leaf in request.leaves)
    arguments = (*leaves, *_random(leaves))

    def jvp(*moved: Tensor) -> Any:
        return torch.func.jvp(function, moved[: len(leaves)], moved[len(leaves) :])[1]

    for number, units in enumerate(map(_units, arguments)):
        for unit in units:
            tangents = tuple(unit if k == number else _as_lazy(torch.zeros_like(x), x) for k, x in enumerate(arguments))
            above, below = (
                jvp(*(x + sign * numbers.eps * t for x, t in zip(arguments, tangents, strict=True))) for sign in (1, -1)
            )
            for output, found in enumerate(torch.func.jvp(jvp, arguments, tangents)[1]):
                expected = (above[output] - below[output]) / (2 * numbers.eps)
                if not torch.allclose(found, expected, numbers.rtol, numbers.atol):
                    where = f"output {output} with respect to argument {number} of the jvp"
                    return Disagreement(f"forward over forward: {where} is off")
    return None


def _units(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a tensor for each real coordinate of another: 1 there, or 1j, and 0 elsewhere."""
    for index in range(tensor.numel()):
        for value in (1, 1j) if tensor.is_complex() else (1,):
            unit = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            unit.view(-1)[index].fill_(value)
            yield _as_lazy(unit, tensor)


def _batching(check: str, request: Request) -> Disagreement | None:
    """Compare vmapped derivatives in three directions with those from a loop."""
    function, leaves = _chosen(request.function, request.leaves), request.leaves
    outputs = function(*leaves)
    if not outputs:
        return None
    points = tuple(leaf.detach() for leaf in leaves)
    like = outputs if check == "batched_grad" else points

    def derivative(*vectors: Tensor) -> Any:
        if check == "batched_grad":
            return _gradients(outputs, leaves, vectors, retain_graph=True)
        return torch.func.jvp(function, points, vectors)[1]

    rows = [_random(like) for _ in range(3)]
    stacked = [_as_lazy(torch.stack([_as_lazy(v, x) for v in own]), x) for *own, x in zip(*rows, like, strict=True)]
    try:
        batched = torch.func.vmap(derivative, randomness="same")(*stacked)
    except Exception as error:
        return Disagreement(f"While computing batched gradients, got: {error}", "refused")
    for number, row in enumerate(rows):
        for found, expected in zip(batched, derivative(*row), strict=True):
            one, other = (t.to_dense() if t.layout in SPARSE else t for t in (found[number], expected))
            if not torch.allclose(one, other, 1e-5, 1e-8, equal_nan=True):
                return Disagreement("a vmapped derivative is not that of the loop")
    return None
