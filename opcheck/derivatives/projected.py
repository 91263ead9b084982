"""Large Jacobians, seen through k random directions on each side: k x k numbers v^T J u instead of M x N."""

from __future__ import annotations

import torch
from torch import Tensor

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
        wrong = ~((a - n).abs() <= bound)
        if not bool(wrong.any()) and analytical.holds(1e4 * evidence.unit):
            break
    wanted = numbers.atol + numbers.rtol * numerical.jacobian.abs()
    if bool((numerical.bend.abs() > wanted).any()):
        kinky = kinks(numerical, evidence.numerical(2 * numbers.eps, looped=True), wanted)
        if bool(kinky.any()):
            text = "the function has a kink or a jump near here: one-sided differences disagree"
            return Disagreement(text, "inconclusive")
    if not bool(wrong.any()):
        return None
    row, column = divmod(int((a - n).abs().nan_to_num(nan=float("inf")).argmax()), n.shape[1])
    return Disagreement(
        f"v J u is {float(n[row, column]):.8g} numerically, {float(a[row, column]):.8g} analytically, for random "
        f"directions {row} and {column}\n{int(wrong.sum())} of {wrong.numel()} such projections of a Jacobian of shape "
        f'{tuple(evidence.size)} differ\nwhich entries are wrong: run a smaller sample, or jacobian = "full"'
    )


def _projected(analytical: Analytical, mode: Mode, u: Tensor, v: Tensor) -> Tensor:
    return analytical.jacobian @ u.T if mode == "reverse" else v @ analytical.jacobian
