"""The errors that `opcheck.gradcheck` reports, in the order of torch's gradcheck and with its messages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck as torch_gradcheck
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

from opcheck.derivatives.autodiff import Mode, vjp
from opcheck.derivatives.by_torch import ALL_OFF, FORWARD, WITHOUT_JACOBIAN
from opcheck.derivatives.check_claim import OF_GRADIENTS
from opcheck.derivatives.coordinates import blocks, same, tensors_of, vector
from opcheck.derivatives.cotangents import probe
from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.gradients import (
    attributes,
    is_cancellation,
    nondeterminism,
    undefined_cotangents,
    undefined_tangents,
)
from opcheck.derivatives.jacobians import compare, digits_lost
from opcheck.derivatives.point import Point
from opcheck.derivatives.request import Request
from opcheck.derivatives.uncertainty import excess
from opcheck.derivatives.wrong_entries import NOT_LINEAR
from opcheck.dropin.fast_path import Claims
from opcheck.dropin.memory import Kept

REPEATS = 3
"""The maximum number of times that backward is repeated to test whether it is deterministic."""
REENTRANT = (
    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different "
    "values, although analytical gradient matches numerical gradient.The tolerance for nondeterminism was {}."
)
NOTES = 'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
UNHANDLED = "Expected backward function to handle undefined output grads. "
NOT_ZERO = "Expected all input grads to be undefined or zero when all output grads are undefined or zero. "
BREAKING = (
    "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may break "
    "existing callers of this function. If this is true for you, you can call this function with "
    '"check_undefined_grad=False" to disable the feature'
)


def check_claims(point: Point, request: Request, claims: Claims) -> Iterator[Disagreement]:
    """Yield the disagreements to the claims in torch's order. Each is computed only when it is requested.

    Exceptions of the function and of its derivatives propagate.
    """
    point.numerical(request.numbers.eps)  # first, since the function may raise, or its outputs may change
    some = any(output.requires_grad for output in point.outputs)
    few = min(REPEATS, max(1, point.size[0]))  # torch: once for each coordinate of the outputs
    reentrant, tangents = REENTRANT.format(request.numbers.nondeterminism), "Mismatch in tangent values for output with"
    looks: tuple[tuple[bool, Callable[[Point, Request], Disagreement | None], str], ...] = (
        (not some, _not_zero, ""),
        (some and claims.backward_ad and claims.grad_dtypes, _dtypes, "Gradient has dtype mismatch"),
        (some and claims.backward_ad, partial(nondeterminism, repeats=few), reentrant),
        (some and claims.backward_ad, partial(_jacobian, mode="reverse"), ""),
        (some and claims.backward_ad, _together, ""),
        (some and claims.forward_ad, partial(_jacobian, mode="forward"), ""),
        (claims.forward_ad and claims.undefined_grad, _undefined_tangents, f"{tangents} an undefined tangent"),
        (claims.batched_forward_grad, partial(_batched, check="batched_forward_grad", **FORWARD), ""),
        (some and claims.batched_grad, partial(_batched, check="batched_grad"), ""),
        (some and claims.backward_ad, _zero_cotangents, ""),
        (some and claims.backward_ad and claims.undefined_grad, _undefined_cotangents, ""),
    )
    for wanted, look, sentence in looks:
        disagreement = look(point, request) if wanted else None
        if disagreement is not None:
            yield _begin_with(sentence, disagreement) if sentence else disagreement


def is_remark(disagreement: Disagreement) -> bool:
    """Return whether torch would pass the function nevertheless.

    This holds for lost digits, errors below atol, and a kink at which the Jacobians agree.
    """
    return disagreement.kind == "low accuracy" or disagreement.agrees or disagreement.below_atol


def _begin_with(sentence: str, disagreement: Disagreement) -> Disagreement:
    """Return a disagreement whose text begins with a sentence of torch."""
    return replace(disagreement, text=f"{sentence}\n{disagreement.text}")


def _jacobian(point: Point, request: Request, mode: Mode) -> Disagreement | None:
    disagreement = compare(point, mode, request) or digits_lost(point, mode, request)
    if disagreement is None or is_remark(disagreement) or NOT_LINEAR[mode] in disagreement.text:  # torch has no message
        return disagreement
    return _begin_with(_place(point, request, mode, disagreement), disagreement)


def _place(point: Point, request: Request, mode: Mode, disagreement: Disagreement) -> str:
    """Return torch's sentence for the first block that differs.

    torch compares the imaginary parts of complex outputs first, then the real parts; in forward mode those of inputs.
    """
    sides = point.outputs, point.leaves
    how = "computed with forward mode " if mode == "forward" else ""
    text = "Jacobian {}mismatch for output {} with respect to input {},"
    if point.projections is not None:
        if disagreement.worst:
            return text.format(how, disagreement.worst[0].output, disagreement.worst[0].leaf)
        return text.format(how, 0, 0) if len(sides[0]) == len(sides[1]) == 1 else f"Jacobian {how}mismatch,"
    jacobians = (
        point.analytical(mode).jacobian,
        point.numerical(request.numbers.eps).jacobian,
    )
    wrong = blocks(excess(*jacobians, point.leaves, request.numbers) > 0, *sides)
    for part, first in (("imaginary", 1), ("real", 0)):
        for i, j in product(range(len(sides[0])), range(len(sides[1]))):
            split = sides[0][i] if mode == "reverse" else sides[1][j]
            block = wrong[i][j] if mode == "reverse" else wrong[i][j].T
            if bool((block[first::2] if split.is_complex() else block).any()):
                of = f"{part} part of complex {'outputs' if mode == 'reverse' else 'inputs'}"
                prefix = f"While considering the {of} only, " if split.is_complex() else ""
                return prefix + text.format(how, i, j)
    raise AssertionError("no block of the Jacobian differs")


def _not_zero(point: Point, request: Request) -> Disagreement | None:
    """Return a disagreement if the numerical Jacobian is not zero, given that no output requires grad; else None."""
    jacobian = point.numerical(request.numbers.eps).jacobian
    if not bool(jacobian.any()):
        return None
    return Disagreement(
        "Numerical gradient for function expected to be zero\nno output requires grad, but the numerical Jacobian has "
        f"an entry of {float(jacobian.abs().max()):.4g}"
    )


def _dtypes(point: Point, request: Request) -> Disagreement | None:
    disagreement = attributes(point, request)
    return disagreement if disagreement and "has the dtype" in disagreement.text else None


def _together(point: Point, request: Request) -> Disagreement | None:
    """Return a disagreement if a backward pass for all outputs is not the sum of a pass for each of them; else None."""
    if len(point.outputs) < 2 or not all(point.size):
        return None
    # Terms that cancel in one pass and not in the other cost up to half of the digits, as in svd_lowrank.
    each, rounding = point.product("reverse"), point.unit**0.5
    cotangent = probe(point.size[0])
    outputs = point.graph()
    together = vector(vjp(outputs, point.leaves, tensors_of(cotangent, outputs)))
    scale = float(each.abs().nan_to_num(nan=0.0, posinf=0.0).max())
    random = request.numbers.nondeterminism * (1 + len(point.outputs))  # for that many passes
    if same(together, each, rounding, rounding * scale + random):
        return None
    if is_cancellation(together, each, point.by_jacobian("reverse", cotangent), point):
        return None
    return Disagreement(
        "one backward pass for all outputs does not give the sum of those for each: off by up to "
        f"{_most(together - each)}"
    )


def _undefined_cotangents(point: Point, request: Request) -> Disagreement | None:
    disagreement = undefined_cotangents(point, request)
    if disagreement is None:
        return None
    warnings.warn(BREAKING, stacklevel=2)
    return _begin_with((UNHANDLED if disagreement.kind == "refused" else NOT_ZERO) + NOTES, disagreement)


def _undefined_tangents(point: Point, request: Request) -> Disagreement | None:
    disagreement = undefined_tangents(point, request)
    if disagreement is not None and disagreement.cause is not None:
        raise disagreement.cause
    return disagreement


def _zero_cotangents(point: Point, request: Request) -> Disagreement | None:
    """Return a disagreement if a gradient for zero cotangents is not zero, or is unlike its input; else None.

    Unlike: of another layout, dtype, device or shape.
    """
    differentiable = [output for output in point.graph() if output.requires_grad]
    gradients = torch.autograd.grad(
        differentiable, point.leaves, [torch.zeros_like(y) for y in differentiable],
        retain_graph=True, allow_unused=True,
    )  # fmt: skip
    for index, (gradient, leaf) in enumerate(zip(gradients, point.leaves, strict=True)):
        said = "" if gradient is None else _unlike(gradient, leaf)
        if said:
            return Disagreement(f"{said}\nthis is the gradient of input {index}")
    return None


def _unlike(gradient: Tensor, leaf: Tensor) -> str:
    """Return torch's message about a wrong gradient for zero cotangents; empty if it is right."""
    if gradient.layout is not torch.strided:
        return f"grad is incorrect layout ({gradient.layout} is not {leaf.layout})"
    if bool(gradient.any()):
        return f"backward not multiplied by grad_output\nfor cotangents of zeros it gives up to {_most(gradient)}"
    for what, own, expected in (
        ("type", gradient.dtype, leaf.dtype),
        ("device", gradient.device, leaf.device),
        ("size", gradient.shape, leaf.shape),
    ):
        if own != expected:
            return f"grad is incorrect {what}\nit has {own}, not {expected}"
    return ""


def _most(tensor: Tensor) -> str:
    return f"{float(tensor.detach().abs().max()):.4g}"


def _batched(point: Point, request: Request, check: str, **flags: Any) -> Disagreement | None:
    """Return why a derivative cannot be vmapped; None if it can, by `torch.func.vmap` or by the vmap of gradcheck."""
    disagreement = OF_GRADIENTS[check](point, request)
    if disagreement is None:
        return None
    try:
        with Kept(point.leaves), torch.random.fork_rng(devices=()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parameters = {**ALL_OFF, **WITHOUT_JACOBIAN, **flags, f"check_{check}": True}
            torch_gradcheck(point.function, point.leaves, **parameters)
    except TorchGradcheckError as error:
        return replace(disagreement, text=f"{error}\n\ntorch.func.vmap: {disagreement.text}")
    return None
