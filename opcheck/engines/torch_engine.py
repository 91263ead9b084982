"""The reference engine: puts every claim to `torch.autograd.gradcheck` and `gradgradcheck`.

It is slow, and it is the yardstick for the other engine, so it shares no calculus with it. What torch's two functions
do not cover is in `by_hand.py`.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.question import Extent, Request
from opcheck.engines.by_hand import (
    SPARSE,
    Step,
    batching,
    derivative_of,
    forward_over_forward,
    with_all_outputs,
    with_dense_gradients,
)

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
    compared: Extent | None = None
    """How much of a Jacobian an answer is about: torch does not say."""

    def ask(self, check: str, request: Request) -> Disagreement | None:
        """Return why a claim does not hold, or None if it does. See `Engine.ask`."""
        if check == "fwd_over_fwd":  # dual numbers do not nest: gradcheck cannot ask for it
            return forward_over_forward(request)
        question = QUESTIONS[check]
        for step in question.of:
            request = derivative_of(request, step)
        request = with_all_outputs(request) if question.of else request
        parameters = self._parameters(check, question, request)
        if not question.second_order:
            found = _put(gradcheck, request, question, parameters)
            # gradcheck's vmap lacks rules that operators do have: https://github.com/pytorch/pytorch/issues/130768
            return batching(check, request) if found and question.claim == "batching" else found
        if any(leaf.layout in SPARSE for leaf in request.leaves):
            return _put(gradcheck, with_dense_gradients(request), question, _first_order(parameters))
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
            "fast_mode": request.fast_mode or request.along_one(check),  # which is one direction, too
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


def _first_order(parameters: dict[str, Any]) -> dict[str, Any]:
    """Translate parameters of gradgradcheck into those of gradcheck, which cannot compare sparse gradients with 0."""
    names = {"check_rev_over_rev": "check_backward_ad", "check_fwd_over_rev": "check_forward_ad"}
    return {names.get(name, name): value for name, value in parameters.items()} | {"check_undefined_grad": False}
