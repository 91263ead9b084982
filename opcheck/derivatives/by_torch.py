"""Tests a claim by torch's own `gradcheck` and `gradgradcheck`.

The other modules of this package are measured against torch's answers, so this one shares no code with them. torch's
functions are slow. Claims that they cannot test are left to the other modules, or not tested.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.tolerances import Numbers

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

# torch's functions test several claims in one call. So that each claim fails under its own name, a check disables
# everything else: other features by their parameters, non-determinism by an infinite tolerance, and, for claims that
# are not about the Jacobian, the comparison of Jacobians by a tolerance that only NaN exceeds (an infinite one would
# become NaN where torch scales it by 0).
ALL_OFF: dict[str, Any] = dict.fromkeys(("check_undefined_grad", "check_grad_dtypes", "check_batched_grad"), False)
ALL_OFF["nondet_tol"] = math.inf
WITHOUT_JACOBIAN: dict[str, Any] = {"atol": 1e300, "fast_mode": True}
SECOND_ORDER = ("rev_over_rev", "fwd_over_rev")
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


QUESTIONS: dict[str, dict[str, Any]] = {
    "backward": {},
    "forward_ad": FORWARD,
    "batched_grad": {**WITHOUT_JACOBIAN, "check_batched_grad": True},
    "batched_forward_grad": {**WITHOUT_JACOBIAN, **FORWARD, "check_batched_forward_grad": True},
    "undefined_grad": {**WITHOUT_JACOBIAN, "check_undefined_grad": True},
    "grad_dtypes": {**WITHOUT_JACOBIAN, "check_grad_dtypes": True},
    "nondeterminism": WITHOUT_JACOBIAN,
    "rev_over_rev": {"check_rev_over_rev": True},
    "fwd_over_rev": {"check_rev_over_rev": False, "check_fwd_over_rev": True},
    "masked": {},
}
"""The parameters with which torch's functions test each claim, by the name of its check."""
ABOUT = {
    "batched_grad": "batching",
    "batched_forward_grad": "batching",
    "undefined_grad": "undefined_grad",
    "grad_dtypes": "grad_dtypes",
    "nondeterminism": "nondeterminism",
}
"""The key in MESSAGES of the failure that contradicts a claim. Any failure contradicts claims that are not listed."""


def check_claim(
    name: str, function: Callable[..., tuple[Tensor, ...]], leaves: tuple[Tensor, ...], numbers: Numbers, *,
    grad_outputs: tuple[Tensor, ...] | None = None, masked: bool = False, fast_mode: bool = False,
    raise_exception: bool = True, forward_ad: bool = True, undefined_grad: bool = True,
    non_contiguous: Sequence[bool] = (False, True),
) -> Disagreement | None:  # fmt: skip
    """Return why a claim does not hold, or None if it does.

    name: the name of a check, as in `QUESTIONS`.
    grad_outputs, masked, fast_mode, raise_exception: as in torch's functions.
    forward_ad: whether forward mode is claimed, so that undefined tangents are tested, too.
    undefined_grad: whether second order includes undefined cotangents.
    non_contiguous: whether generated cotangents have gaps in memory. Each of these values is tested.

    Raises CannotAsk if torch's functions cannot test the claim; passes on the exceptions of the function.
    """
    if name not in QUESTIONS:
        raise CannotAsk(f"torch's gradcheck and gradgradcheck do not test {name}")
    claim = ABOUT.get(name, "")
    if getattr(function, "surrogate", None) is not None and not claim:
        raise CannotAsk("torch's gradcheck compares with differences of the operator itself, not of its surrogate")
    parameters: dict[str, Any] = {
        "eps": numbers.eps,
        "atol": numbers.atol,
        "rtol": numbers.rtol,
        "masked": masked,
        "fast_mode": fast_mode,
        # Only the message of an exception shows which claim failed.
        "raise_exception": raise_exception or bool(claim),
        **ALL_OFF,
        **QUESTIONS[name],
    }
    if name == "nondeterminism":
        parameters["nondet_tol"] = numbers.nondeterminism
    if name == "undefined_grad":
        parameters["check_forward_ad"] = forward_ad
    if name == "rev_over_rev":
        parameters["check_undefined_grad"] = undefined_grad
    if name not in SECOND_ORDER:
        return _put(partial(gradcheck, function, leaves, **parameters), claim)
    if any(leaf.layout in SPARSE for leaf in leaves):
        raise CannotAsk("torch's gradgradcheck does not take gradients of a sparse layout")
    check = partial(gradgradcheck, function, leaves, grad_outputs=grad_outputs, **parameters)
    if grad_outputs is not None:
        return _put(check, claim)
    for gaps in non_contiguous:
        disagreement = _put(partial(check, gen_non_contig_grad_outputs=gaps), claim)
        if disagreement or name != "rev_over_rev":
            return disagreement
    return None


def _put(check: partial[bool], claim: str) -> Disagreement | None:
    try:
        with warnings.catch_warnings():
            # Precision below double is the spec's choice, and opcheck's own gradcheck warns about it.
            warnings.filterwarnings("ignore", message=".*not a double precision floating point.*")
            warnings.filterwarnings("ignore", message="Backwards compatibility: New undefined gradient")
            held = check()
    except GradcheckError as error:
        return _disagreement(" ".join(str(part) for part in error.args).strip(), claim)
    return None if held else Disagreement(f"torch.autograd.{check.func.__name__} returned False")


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
