"""Tests a claim by torch's own `gradcheck` and `gradgradcheck`.

The other modules of this package are measured against their answers, so this one shares no code with them. torch's
functions are slow. Claims that they cannot test are left to the other modules, or not tested.
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
from opcheck.derivatives.request import Request, surrogate_of

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

# torch's functions test several claims in one call. So that each claim fails under its own name, a check disables
# everything else: other features by their parameters, non-determinism by an infinite tolerance, and, for claims that
# are not about the Jacobian, the comparison of Jacobians by a tolerance that only NaN exceeds (an infinite one would
# become NaN where torch scales it by 0).
ALL_OFF: dict[str, Any] = dict.fromkeys(("check_undefined_grad", "check_grad_dtypes", "check_batched_grad"), False)
ALL_OFF["nondet_tol"] = math.inf
WITHOUT_JACOBIAN: dict[str, Any] = {"atol": 1e300, "fast_mode": True}
FORWARD: dict[str, Any] = {"check_forward_ad": True, "check_backward_ad": False}

MESSAGES = {
    "Jacobian": "Jacobian.*mismatch|expected to be zero",
    "nondeterminism": "not reentrant",
    "batching": "batched grad",
    "backward": "not multiplied by grad_output",
    "grad_dtypes": "dtype mismatch|is incorrect|has incorrect",
    "undefined_grad": "undefined",
}
"""The kinds of failures of gradcheck, in the order in which it tests for them, each with a pattern of its messages."""
REFUSED = "While computing batched gradients, got|Expected backward function to handle undefined"
"""The pattern of messages that report an exception, and not a wrong number."""


class CannotAsk(Exception):
    """torch's functions cannot test a claim. The message gives the reason."""


@dataclass(frozen=True)
class Question:
    """How torch's functions are called to test a claim."""

    parameters: dict[str, Any] = field(default_factory=dict)
    claim: str = ""
    """The key in MESSAGES of the failure that contradicts the claim; empty: any failure does."""
    second_order: bool = False


QUESTIONS = {
    "backward": Question(),
    "forward_ad": Question(FORWARD),
    "batched_grad": Question({**WITHOUT_JACOBIAN, "check_batched_grad": True}, "batching"),
    "batched_forward_grad": Question({**WITHOUT_JACOBIAN, **FORWARD, "check_batched_forward_grad": True}, "batching"),
    "undefined_grad": Question({**WITHOUT_JACOBIAN, "check_undefined_grad": True}, "undefined_grad"),
    "grad_dtypes": Question({**WITHOUT_JACOBIAN, "check_grad_dtypes": True}, "grad_dtypes"),
    "nondeterminism": Question(WITHOUT_JACOBIAN, "nondeterminism"),
    "rev_over_rev": Question({"check_rev_over_rev": True}, second_order=True),
    "fwd_over_rev": Question({"check_rev_over_rev": False, "check_fwd_over_rev": True}, second_order=True),
    "masked": Question(),
}
"""How torch's functions test each claim, by the name of its check."""


def check_claim(name: str, request: Request) -> Disagreement | None:
    """Return why a claim does not hold, or None if it does.

    Raises CannotAsk if torch's functions cannot test the claim; passes on the exceptions of the function.
    """
    question = QUESTIONS.get(name)
    if question is None:
        raise CannotAsk(f"torch's gradcheck and gradgradcheck do not test {name}")
    if surrogate_of(request.function) is not None and not question.claim:
        raise CannotAsk("torch's gradcheck compares with differences of the operator itself, not of its surrogate")
    parameters = _parameters(name, question, request)
    if not question.second_order:
        return _put(gradcheck, request, question, parameters)
    if any(leaf.layout in SPARSE for leaf in request.leaves):
        raise CannotAsk("torch's gradgradcheck does not take gradients of a sparse layout")
    if request.grad_outputs is not None:
        return _put(gradgradcheck, request, question, {**parameters, "grad_outputs": request.grad_outputs})
    for non_contiguous in request.non_contiguous:
        more = {"grad_outputs": None, "gen_non_contig_grad_outputs": non_contiguous}
        disagreement = _put(gradgradcheck, request, question, {**parameters, **more})
        if disagreement or name != "rev_over_rev":
            return disagreement
    return None


def _parameters(name: str, question: Question, request: Request) -> dict[str, Any]:
    numbers = request.numbers
    parameters: dict[str, Any] = {
        "eps": numbers.eps,
        "atol": numbers.atol,
        "rtol": numbers.rtol,
        "masked": request.masked,
        "fast_mode": request.fast_mode,
        # Only the message of an exception shows which claim failed.
        "raise_exception": request.raise_exception or bool(question.claim),
        **ALL_OFF,
        **question.parameters,
    }
    if name == "nondeterminism":
        parameters["nondet_tol"] = numbers.nondeterminism
    if name == "undefined_grad":
        parameters["check_forward_ad"] = request.forward_ad
    if name == "rev_over_rev":
        parameters["check_undefined_grad"] = request.undefined_grad
    return parameters


def _put(function: Any, request: Request, question: Question, parameters: dict[str, Any]) -> Disagreement | None:
    try:
        with warnings.catch_warnings():
            # Precision below double is the spec's choice, and opcheck's own gradcheck warns about it.
            warnings.filterwarnings("ignore", message=".*not a double precision floating point.*")
            warnings.filterwarnings("ignore", message="Backwards compatibility: New undefined gradient")
            held = function(request.function, request.leaves, **parameters)
    except GradcheckError as error:
        return _disagreement(" ".join(str(part) for part in error.args).strip(), question.claim)
    return None if held else Disagreement(f"torch.autograd.{function.__name__} returned False")


def _disagreement(text: str, claim: str) -> Disagreement | None:
    """Return the disagreement for a failure message of torch, or None if the claim had passed before that failure."""
    order = list(MESSAGES)
    about = next((name for name in reversed(order) if re.search(MESSAGES[name], text)), "")
    refused = bool(re.search(REFUSED, text))
    if about == claim == "batching" and refused:
        raise CannotAsk("torch's gradcheck cannot batch it: its vmap lacks rules of operators (pytorch issue 130768)")
    if not claim or about == claim:
        return Disagreement(text, "refused" if refused else "wrong")
    if about and order.index(about) > order.index(claim):
        return None
    return Disagreement(f"torch's gradcheck failed before it tested this claim: {text}", "inconclusive")
