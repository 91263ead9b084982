"""Large Jacobians, seen through k random directions on each side: k x k numbers v^T J u instead of M x N."""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.derivatives.comparison import within
from opcheck.derivatives.differences import kinks
from opcheck.derivatives.directions import directions
from opcheck.derivatives.engine import Disagreement
from opcheck.derivatives.evidence import Analytical, Evidence, Mode
from opcheck.derivatives.numbers import Numbers


def contradiction(evidence: Evidence, mode: Mode, numbers: Numbers) -> Disagreement | None:
    """Return where the projected Jacobian by one of the modes contradicts the numerical one; None where it does not.

    Errors e of the entries that stay within atol and have nothing to do with each other make v^T e u about
    atol |v| |u| (Euclidean norms): that much is allowed, and rtol of the number itself. torch's fast mode allows
    atol |v|_1 |u|_1, as if all errors had the worst sign: for n inputs and outputs about 3 n / 4 times as much. A wrong
    entry is multiplied by two random numbers: k x k pairs of them make it unlikely that all are small.
    """
    for looped in (False, True):  # what the batch objects to is confirmed one by one
        analytical = evidence.analytical(mode, looped=looped)
        numerical = evidence.numerical(numbers.eps, looped=looped)
        u = directions(evidence.size[1], evidence.projections, "inputs")
        v = directions(evidence.size[0], evidence.projections, "outputs")
        n, a = v @ numerical.jacobian, _projected(analytical, mode, u, v)
        bound = numbers.atol * torch.outer(v.norm(dim=1), u.norm(dim=1)) + numbers.rtol * n.abs()
        wrong = ~within((a - n).abs(), bound)
        if not bool(wrong.any()):
            break
    wanted = numbers.atol + numbers.rtol * numerical.jacobian.abs()
    if bool((numerical.bend.abs() > wanted).any()):
        fine, coarse = (evidence.numerical(step, looped=True) for step in (numbers.eps, 2 * numbers.eps))
        if bool(kinks(fine, coarse, wanted).any()):
            text = "the function has a kink or a jump near here: one-sided differences disagree"
            return Disagreement(text, "inconclusive")
    if not bool(wrong.any()):
        return _not_linear(evidence, mode, numbers, n, u, v)
    row, column = divmod(int((a - n).abs().nan_to_num(nan=float("inf")).argmax()), n.shape[1])
    return Disagreement(
        f"v J u is {float(n[row, column]):.8g} numerically, {float(a[row, column]):.8g} analytically, for random "
        f"directions {row} and {column}\n{int(wrong.sum())} of {wrong.numel()} such projections of a Jacobian of shape "
        f'{tuple(evidence.size)} differ\nwhich entries are wrong: run a smaller sample, or jacobian = "full"'
    )


def _not_linear(
    evidence: Evidence, mode: Mode, numbers: Numbers, n: Tensor, u: Tensor, v: Tensor
) -> Disagreement | None:  # fmt: skip
    """The derivative is right for each of the directions. Return why it is not for their sum; None where it is."""
    if mode == "reverse":
        found, expected = evidence.pull_back(v.sum(0)) @ u.T, n.sum(0)
        lengths, what = v.sum(0).norm() * u.norm(dim=1), "backward pass is not linear in the cotangent"
    else:
        found, expected = v @ evidence.push_forward(u.sum(0)), n.sum(1)
        lengths, what = v.norm(dim=1) * u.sum(0).norm(), "jvp is not linear in the tangent"
    off = (found - expected).abs()
    if bool(within(off, numbers.atol * lengths + numbers.rtol * expected.abs()).all()):
        return None
    return Disagreement(
        f"the {what}: right for each of {evidence.projections} random directions, off by up to {float(off.max()):.4g} "
        "for their sum"
    )


def _projected(analytical: Analytical, mode: Mode, u: Tensor, v: Tensor) -> Tensor:
    return analytical.jacobian @ u.T if mode == "reverse" else v @ analytical.jacobian
