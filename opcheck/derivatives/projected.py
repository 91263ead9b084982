"""Compares products of a large Jacobian with random directions: k x k numbers v^T J u instead of M x N entries."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode, Primal
from opcheck.derivatives.coordinates import directions, index_text, located, same, split
from opcheck.derivatives.diagnosis import Seen
from opcheck.derivatives.disagreement import Disagreement, Names
from opcheck.derivatives.evidence import SIDES, Evidence
from opcheck.derivatives.precision import kinks_beyond_rounding, projections, wrong_projections_below_atol
from opcheck.derivatives.question import NO_REFUSAL, Numbers, Request
from opcheck.derivatives.rule import KINK, NOT_LINEAR, beyond_bound

HOW = 'which entries are wrong: run a smaller sample, or jacobian = "full"'


def contradiction_of_projections(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Return where the projected Jacobian by a mode contradicts the numerical one, or None if it does not.

    If the errors e of the entries are independent and at most atol, v^T e u is about atol |v| |u| (Euclidean norms).
    That much is allowed, plus rtol of the number itself. torch's fast mode allows atol |v|_1 |u|_1, as if all errors
    had the worst sign: about 3 n / 4 times as much for n inputs and outputs. A wrong entry is multiplied by two random
    numbers. With k x k pairs of them it is unlikely that all products are small.
    """
    numbers = request.numbers
    for looped in (False, True):  # what the batch objects to is confirmed one by one
        analytical = evidence.analytical(mode, looped=looped)
        numerical = evidence.numerical(numbers.eps, looped=looped)
        u = directions(evidence.size[1], evidence.projections, "inputs")
        v = directions(evidence.size[0], evidence.projections, "outputs")
        n = v @ numerical.jacobian
        a = projections(analytical.jacobian, evidence, mode)
        bound = numbers.atol * torch.outer(v.norm(dim=1), u.norm(dim=1)) + numbers.rtol * n.abs()
        wrong = beyond_bound((a - n).abs(), bound) > 0
        wrong |= wrong_projections_below_atol(a, evidence, numbers, looped=looped)
        if not bool(wrong.any()):
            break
    wanted = numbers.atol + numbers.rtol * numerical.jacobian.abs()
    if bool((numerical.bend.abs() > wanted).any()):
        at = partial(evidence.numerical, looped=True)
        if bool(kinks_beyond_rounding(at, numbers, wanted, evidence.unit).any()):
            return Disagreement(KINK.format("near here"), "inconclusive", agrees=not bool(wrong.any()))
    if not bool(wrong.any()):
        return _not_linear(evidence, mode, numbers, n, u, v) or _isolated(evidence, mode, request)
    row, column = divmod(int((a - n).abs().nan_to_num(nan=float("inf")).argmax()), n.shape[1])
    random = Seen.of(evidence, mode).random
    return Disagreement(
        f"v J u is {float(n[row, column]):.8g} numerically, {float(a[row, column]):.8g} analytically, for random "
        f"directions {row} and {column}\n{int(wrong.sum())} of {wrong.numel()} such projections of a Jacobian of shape "
        f"{tuple(evidence.size)} differ\n{random or HOW}"
    )


def _not_linear(
    evidence: Evidence, mode: Mode, numbers: Numbers, n: Tensor, u: Tensor, v: Tensor
) -> Disagreement | None:  # fmt: skip
    """Given a derivative that is right for each direction, return why it is wrong for their sum, or None."""
    if mode == "reverse":
        found, expected, lengths = evidence.vjp(v.sum(0)) @ u.T, n.sum(0), v.sum(0).norm() * u.norm(dim=1)
    else:
        found, expected, lengths = v @ evidence.jvp(u.sum(0)), n.sum(1), v.norm(dim=1) * u.sum(0).norm()
    off = (found - expected).abs()
    if not bool((beyond_bound(off, numbers.atol * lengths + numbers.rtol * expected.abs()) > 0).any()):
        return None
    return Disagreement(
        f"the {NOT_LINEAR[mode]}: right for each of {evidence.projections} random directions, off by up to "
        f"{float(off.max()):.4g} for their sum"
    )


# a second look: what a wrong entry changes is one of M, or of N, numbers, and not hidden in a sum over both sides


def _isolated(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Given projections that agree, return where single entries are wrong, or None.

    By forward mode, J u is compared with its differences, entry by entry. By reverse mode differences have nothing to
    compare v^T J with; where the operator has a differentiable reference, that has.
    """
    forward, numbers = mode == "forward", request.numbers
    right = evidence.numerical(numbers.eps).jacobian.T if forward else _by_reference(evidence, request)
    if right is None:
        return None
    lengths = directions(evidence.size[1 if forward else 0], evidence.projections, SIDES[mode]).norm(dim=1)
    bound = numbers.atol * lengths.unsqueeze(1) + numbers.rtol * right.abs()
    for looped in (False, True):
        found = evidence.analytical(mode, looped=looped).jacobian
        found = found.T if forward else found
        wrong = beyond_bound((found - right).abs(), bound) > 0
        if not bool(wrong.any()):
            return None
        if forward:
            right = evidence.numerical(numbers.eps, looped=True).jacobian.T
    row, column = divmod(int((found - right).abs().nan_to_num(nan=float("inf")).argmax()), right.shape[1])
    named, tensors = Names.of(evidence.function, request), evidence.outputs if forward else evidence.leaves
    index, own = located(column, tensors)
    place = (named.outputs if forward else named.leaves)[index] + index_text(*split(own, tensors[index]))
    what, whose = ("J u", "numerically") if forward else ("v J", "by the reference")
    return Disagreement(
        f"{what} at {place} is {float(right[row, column]):.8g} {whose}, {float(found[row, column]):.8g} analytically, "
        f"for random direction {row}\n{int(wrong.any(dim=0).sum())} of {wrong.shape[1]} entries of such products differ"
        f"\n{HOW}"
    )


def _by_reference(evidence: Evidence, request: Request) -> Tensor | None:
    """Return v^T J of the reference for the random directions v, of shape (k, N); None if it has nothing to say.

    It has none about derivatives of higher order, and none if it is another function at this point.
    """
    function = evidence.function
    if request.reference is None or not isinstance(function, Primal):
        return None
    try:
        other = Evidence(Primal(request.reference, function.chosen), evidence.leaves)
        differentiable = all(output.requires_grad for output in other.outputs)
        if not differentiable or not same(other.value, evidence.value, 1e-6, 1e-6):
            return None
        return other.vjp_looped(directions(evidence.size[0], evidence.projections, "outputs"))
    except NO_REFUSAL:
        raise
    except Exception:  # it does not take such arguments, or is not differentiable after all
        return None
