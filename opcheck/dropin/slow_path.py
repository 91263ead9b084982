"""The errors that `opcheck.gradcheck` reports, in the order of torch's gradcheck and with its first sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

from opcheck.derivatives.autodiff import Mode, vjp
from opcheck.derivatives.by_torch import WITHOUT_JACOBIAN
from opcheck.derivatives.check_claim import check_claim
from opcheck.derivatives.coordinates import same, vector
from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.gradients import attributes, is_cancellation, nondeterminism, undefined_in
from opcheck.derivatives.jacobians import compare, digits_lost
from opcheck.derivatives.point import Point
from opcheck.derivatives.tolerances import Numbers
from opcheck.derivatives.uncertainty import largest
from opcheck.derivatives.wrong_entries import NOT_LINEAR
from opcheck.dropin.fast_path import Claims
from opcheck.dropin.in_place import is_batched_by_torch
from opcheck.dropin.memory import aside
from opcheck.dropin.passes import kinds_of, plain

REPEATS = 3
"""The maximum number of times that backward is repeated to test whether it is deterministic."""


def check_claims(point: Point, numbers: Numbers, claims: Claims, expected: bool) -> Iterator[Disagreement]:
    """Yield the disagreements to the claims in torch's order. Each is computed only when it is requested.

    expected: whether a disagreement needs no explanation.

    Exceptions of the function and of its derivatives propagate.
    """
    point.numerical(numbers.eps)  # first, since the function may raise, or its outputs may change
    some = any(output.requires_grad for output in point.outputs)
    backward, few = some and claims.backward_ad, min(REPEATS, max(1, point.size[0]))  # torch: once for each coordinate
    jacobian, batched = partial(_jacobian, numbers=numbers, expected=expected), partial(_batched, numbers=numbers)
    looks: tuple[tuple[bool, Callable[[Point], Disagreement | None]], ...] = (
        (not some, partial(_not_zero, step=numbers.eps)),
        (backward and claims.grad_dtypes, attributes),
        (backward, partial(nondeterminism, most=numbers.nondeterminism, repeats=few)),
        (backward, partial(jacobian, mode="reverse")),
        (backward, partial(_together, random=numbers.nondeterminism)),
        (claims.forward_ad, partial(jacobian, mode="forward")),
        (claims.forward_ad and claims.undefined_grad, _undefined_tangents),
        (claims.batched_forward_grad, partial(batched, check="batched_forward_grad")),
        (some and claims.batched_grad, partial(batched, check="batched_grad")),
        (backward, _zero_cotangents),
        (backward and claims.undefined_grad, partial(undefined_in, mode="reverse")),
    )
    for wanted, look in looks:
        disagreement = look(point) if wanted else None
        if disagreement is not None:
            yield disagreement


def is_remark(disagreement: Disagreement) -> bool:
    """Return whether torch would pass the function nevertheless.

    This holds for lost digits, errors below atol, and a kink at which the Jacobians agree.
    """
    return disagreement.kind == "low accuracy" or disagreement.agrees or disagreement.below_atol


def _jacobian(point: Point, numbers: Numbers, expected: bool, mode: Mode) -> Disagreement | None:
    """Compare a Jacobian. For a large sample, which torch is not asked about, the text begins with torch's words."""
    disagreement = compare(point, mode, numbers, expected=expected) or digits_lost(point, mode, numbers)
    if disagreement is None or point.projections is None or is_remark(disagreement):
        return disagreement
    if NOT_LINEAR[mode] in disagreement.text:  # torch has no words for it
        return disagreement
    how = "computed with forward mode " if mode == "forward" else ""
    pairs = [(worst.output, worst.leaf) for worst in disagreement.worst[:1]]
    if len(point.outputs) == len(point.leaves) == 1:
        pairs = [(0, 0)]
    where = "".join(f" for output {output} with respect to input {leaf}" for output, leaf in pairs)
    return replace(disagreement, text=f"Jacobian {how}mismatch{where},\n{disagreement.text}")


def _not_zero(point: Point, step: float) -> Disagreement | None:
    """Return a disagreement if the numerical Jacobian is not zero, given that no output requires grad; else None."""
    jacobian = point.numerical(step).jacobian
    if not bool(jacobian.any()):
        return None
    return Disagreement(f"no output requires grad, but the numerical Jacobian has an entry of {_most(jacobian)}")


def _together(point: Point, random: float) -> Disagreement | None:
    """Return a disagreement if a backward pass for all outputs is not the sum of a pass for each of them; else None.

    random: the difference allowed between two passes.
    """
    if len(point.outputs) < 2 or not all(point.size):
        return None
    # Terms that cancel in one pass and not in the other cost up to half of the digits, as in svd_lowrank.
    each, rounding = point.product("reverse"), point.unit**0.5
    cotangent = point.probe_of("reverse")
    outputs = point.graph()
    together = vector(vjp(outputs, point.leaves, point.cotangents_of(cotangent, outputs)))
    random *= 1 + len(point.outputs)  # for that many passes
    if same(together, each, rounding, rounding * largest(each) + random):
        return None
    if is_cancellation(together, each, point.by_jacobian("reverse", cotangent), point):
        return None
    return Disagreement(
        "one backward pass for all outputs does not give the sum of those for each: off by up to "
        f"{_most(together - each)}"
    )


def _undefined_tangents(point: Point) -> Disagreement | None:
    disagreement = undefined_in(point, "forward")
    if disagreement is not None and disagreement.cause is not None:
        raise disagreement.cause
    return disagreement


def _zero_cotangents(point: Point) -> Disagreement | None:
    """Return a disagreement if a gradient for zero cotangents is not zero, or is unlike its input; else None."""
    outputs = point.graph()
    gradients = vjp(outputs, point.leaves, plain(kinds_of(outputs), torch.zeros))
    for index, gradient in enumerate(gradients):
        if bool(vector([gradient]).any()):
            return Disagreement(f"for cotangents of zeros, the gradient of input {index} is up to {_most(gradient)}")
    return attributes(point)


def _most(tensor: Tensor) -> str:
    return f"{float(tensor.detach().abs().max()):.4g}"


def _batched(point: Point, numbers: Numbers, check: str) -> Disagreement | None:
    """Return why a derivative cannot be vmapped; None if it can, by `torch.func.vmap` or by the vmap of gradcheck."""
    disagreement = check_claim(check, point, numbers)
    if disagreement is None or is_batched_by_torch(point, check):
        return None
    return replace(disagreement, text=f"torch.func.vmap: {disagreement.text}")


def sentence_of_torch(check: Callable[..., bool], values: Sequence[object], point: Point) -> str:
    """Return the first line of the error that torch's check of some inputs raises; empty if it raises none.

    torch does not compare the Jacobian of a large sample: it would compute the whole Jacobian for its message.
    """
    try:
        with aside(values):
            check(**({} if point.projections is None else WITHOUT_JACOBIAN))
    except TorchGradcheckError as error:
        return str(error).partition("\n")[0]
    except Exception:  # torch calls the function in another order
        pass
    return ""
