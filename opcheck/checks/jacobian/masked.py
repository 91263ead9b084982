"""Derivatives of sparse inputs are right under masked semantics and, if claimed, under non-masked semantics.

Masked: unspecified elements are absent and have no derivative. Non-masked: they are zeros like any other.
"""

from __future__ import annotations

from opcheck.checks.jacobian.compare import disagreement_on, too_wide_tolerances
from opcheck.checks.per_sample import PerSample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, NO_DERIVATIVE, Verdict, fails, inapplicable


def judge(subject: Subject) -> Verdict:
    """Test the derivative under masked semantics and, unless the spec says `masked = true`, under non-masked ones."""
    if not subject.sample.is_sparse:
        return inapplicable("no input is sparse")
    if not subject.output_info.has_derivative:
        return NO_DERIVATIVE
    hint = "\nif gradients exist for specified elements only, write masked = true"
    semantics = {"masked": True} if subject.function.masked else {"masked": True, "non-masked": False}
    for name, masked in semantics.items():
        own = subject.calling(masked=masked)
        if blind := too_wide_tolerances(own):
            return blind
        disagreement = disagreement_on(own, "masked")
        if disagreement is not None:
            title = f"masked: the derivative is wrong under {name} semantics"
            return fails(title, disagreement.text + ("" if masked else hint))
    return HOLDS


check = PerSample(judge)
