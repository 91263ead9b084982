"""The reference engine: every claim is put to `torch.autograd.gradcheck` and `gradgradcheck`."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from opcheck.derivatives.amount import Amount
from opcheck.derivatives.beside import BESIDE, BEYOND, beyond_torch
from opcheck.derivatives.contradiction import confirmed, contradiction
from opcheck.derivatives.engine import Disagreement, Function, Request
from opcheck.derivatives.functions import Primal, Pullback
from opcheck.derivatives.numbers import Numbers
from opcheck.derivatives.point import Point, Step, order
from opcheck.derivatives.real_form import in_real_form

# torch's functions test much at once. So that each claim fails under its own name, a check switches everything else
# off: other features by their parameters, non-determinism by an infinite tolerance, and, for claims beside the
# Jacobian, the comparison of Jacobians by a tolerance that only NaN exceeds (an infinite one would become NaN where
# torch scales it by 0).
ALL_OFF: dict[str, Any] = {
    "check_undefined_grad": False,
    "check_grad_dtypes": False,
    "check_batched_grad": False,
    "nondet_tol": math.inf,
}
WITHOUT_JACOBIAN: dict[str, Any] = {"atol": 1e300, "fast_mode": True}

KEPT = 256
"""For how many samples the engine remembers that the claims beside the Jacobian hold: more than an operator has."""

FORWARD: dict[str, Any] = {"check_forward_ad": True, "check_backward_ad": False}

LEGACY = ("batched_grad", "batched_forward_grad")
"""The checks that gradcheck runs on its legacy vmap."""

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


@dataclass(frozen=True)
class Question:
    """How a check is put to torch."""

    second_order: bool = False
    of: tuple[Step, ...] = ()
    """The derivative that is asked about."""
    parameters: dict[str, Any] = field(default_factory=dict)
    own: str = ""
    """Pattern of torch's messages that concern this claim; others belong to another check. Empty: all."""
    refusal: str = ""
    """Pattern of messages that mean an error was raised, not a wrong number returned."""


QUESTIONS = {
    "backward": Question(),
    "forward_ad": Question(parameters=FORWARD),
    "batched_grad": Question(
        parameters={**WITHOUT_JACOBIAN, "check_batched_grad": True},
        own="batched grad",
        refusal="While computing batched gradients, got",
    ),
    "batched_forward_grad": Question(
        parameters={
            **WITHOUT_JACOBIAN,
            **FORWARD,
            "check_batched_forward_grad": True,
        },
        own="batched grad",
        refusal="While computing batched gradients, got",
    ),
    "undefined_grad": Question(
        parameters={**WITHOUT_JACOBIAN, "check_undefined_grad": True},
        own="undefined",
        refusal="Expected backward function to handle undefined",
    ),
    "grad_dtypes": Question(
        parameters={**WITHOUT_JACOBIAN, "check_grad_dtypes": True},
        own="dtype mismatch|is incorrect|has incorrect",
    ),
    "nondeterminism": Question(parameters=WITHOUT_JACOBIAN, own="not reentrant"),
    "rev_over_rev": Question(second_order=True, parameters={"check_rev_over_rev": True}),
    "fwd_over_rev": Question(
        second_order=True, parameters={"check_rev_over_rev": False, "check_fwd_over_rev": True}
    ),
    "masked": Question(),
    # The orders that torch's functions leave out are put as questions about a derivative made by hand.
    "rev_over_fwd": Question(of=("fwd",)),
    "scalarized_second_order": Question(of=("sum",)),
    "rev_over_rev_over_rev": Question(of=("rev", "rev")),
}  # fmt: skip


class TorchEngine:
    """Puts claims to torch's own functions: slow, and the yardstick for every other engine."""

    name = "torch"

    def __init__(self) -> None:
        self._settled: dict[tuple[str, Numbers], bool] = {}

    def ask(self, check: str, request: Request) -> Disagreement | None:
        """Return why a claim does not hold; None where it holds. See `Engine.ask`."""
        if check == "fwd_over_fwd":  # dual numbers do not nest: gradcheck cannot ask for it
            return contradiction(Point(request).evidence("fwd"), "forward", request)
        found = self._asked(check, request)
        if found is None:
            return beyond_torch(check, Point(request).evidence()) if check in BEYOND else None
        return _shown(check, request, found)

    def _asked(self, check: str, request: Request) -> Disagreement | None:
        question = QUESTIONS[check]
        if check in request.together and self._all_hold(request):
            return None
        if check in ("forward_ad", "fwd_over_rev") and _is_strided(request):
            request = in_real_form(request)
        if question.of:
            evidence = Point(request).evidence(*question.of)
            request = request.with_(function=evidence.function, leaves=evidence.leaves)
        parameters = self._parameters(check, question, request)
        if not question.second_order:
            if check in LEGACY:
                return _of_batching(check, request, question, parameters)
            return _put(gradcheck, request, question, parameters)
        given = {**parameters, "grad_outputs": request.grad_outputs}
        if any(leaf.layout in SPARSE for leaf in request.leaves):
            return _put(gradgradcheck_of_sparse, request, question, given)
        if request.grad_outputs is not None:
            return _put(gradgradcheck, request, question, given)
        for non_contiguous in request.non_contiguous:
            given = {**parameters, "gen_non_contig_grad_outputs": non_contiguous}
            found = _put(gradgradcheck, request, question, given)
            if found or check != "rev_over_rev":
                return found
        return None

    def _all_hold(self, request: Request) -> bool:
        """Put all claims beside the Jacobian in one call, once. Where it fails, each is asked on its own."""
        if not request.key:
            return False
        key = request.key, request.numbers
        if key not in self._settled:
            if len(self._settled) >= KEPT:
                del self._settled[next(iter(self._settled))]
            self._settled[key] = self._hold_together(request)
        return self._settled[key]

    def _hold_together(self, request: Request) -> bool:
        parameters = self._parameters("", Question(), request)
        for check in request.together:
            parameters |= QUESTIONS[check].parameters
        parameters |= {
            "check_backward_ad": True,
            "check_forward_ad": "batched_forward_grad" in request.together or request.forward_ad,
            "nondet_tol": request.numbers.nondeterminism,
        }
        try:
            return _put(gradcheck, request, Question(), parameters) is None
        except Exception:
            return False

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


def _is_strided(request: Request) -> bool:
    return all(leaf.layout is torch.strided for leaf in request.leaves)


def _shown(check: str, request: Request, found: Disagreement) -> Disagreement:
    """Return what torch objects to with both Jacobians, where they can be had and do differ."""
    place = order(check)
    # The coordinates of sparse leaves are their specified elements; torch's message shows them.
    if place is None or found.kind != "wrong" or not _is_strided(request):
        return found
    whole = request.with_(amount=Amount("full"))
    try:
        seen = confirmed(Point(whole).evidence(*place[0]), place[1], whole, check if place[0] else "")
    except Exception:
        return found  # evidence for the reader only: the verdict stands without it
    return replace(found, mismatch=seen.mismatch, findings=seen.findings, worst=seen.worst) if seen else found


def _of_batching(
    check: str, request: Request, question: Question, parameters: dict[str, Any]
) -> Disagreement | None:  # fmt: skip
    """Ask again with the public vmap where gradcheck objects: its legacy vmap lacks rules that operators do have.

    See https://github.com/pytorch/pytorch/issues/130768.
    """
    try:
        if _put(gradcheck, request, question, parameters) is None:
            return None
    except Exception:
        pass
    return BESIDE[check](Point(request).evidence(), request)


def gradgradcheck_of_sparse(
    function: Function,
    leaves: tuple[Tensor, ...],
    grad_outputs: tuple[Tensor, ...] | None,
    *,
    masked: bool,
    check_rev_over_rev: bool,
    check_fwd_over_rev: bool = False,
    **parameters: Any,
) -> bool:
    """Do what gradgradcheck does, which refuses gradients of sparse layouts: the backward pass returns them dense."""
    outputs = function(*leaves)
    chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
    cotangents = grad_outputs or tuple(torch.rand_like(outputs[index]) - 0.5 for index in chosen)
    pulled_back = Pullback(Primal(function, chosen), len(leaves))

    def dense(*arguments: Tensor) -> tuple[Tensor, ...]:
        found = pulled_back(*arguments)
        return tuple(g.to_dense(masked_grad=masked) if g.layout in SPARSE else g for g in found)

    arguments = (*leaves, *(v.detach().requires_grad_() for v in cotangents))
    modes = {"check_backward_ad": check_rev_over_rev, "check_forward_ad": check_fwd_over_rev}
    return bool(gradcheck(dense, arguments, masked=masked, **modes, **parameters))


def _put(function: Any, request: Request, question: Question, parameters: dict[str, Any]) -> Disagreement | None:
    try:
        with warnings.catch_warnings():
            # Precision below double is the spec's choice; opcheck says so itself.
            warnings.filterwarnings("ignore", message=".*not a double precision floating point.*")
            warnings.filterwarnings("ignore", message="Backwards compatibility: New undefined gradient")
            held = function(request.function, request.leaves, **parameters)
    except GradcheckError as error:
        text = " ".join(str(part) for part in error.args).strip()
        if question.own and not re.search(question.own, text):
            return None
        return Disagreement(text, "refused" if question.refusal and re.search(question.refusal, text) else "wrong")
    return None if held else Disagreement(f"torch.autograd.{function.__name__} returned False")
