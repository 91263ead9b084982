"""Derivatives of sparse inputs are right under masked semantics and, if claimed, under non-masked semantics.

Masked: unspecified elements are absent and have no derivative. Non-masked: they are zeros like any other.
"""

from __future__ import annotations

from dataclasses import replace

from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails, inapplicable, untested
from opcheck.derivatives import Request


def judge(subject: Subject) -> Verdict:
    """Check the derivative under masked semantics and, unless the spec says `masked = true`, under non-masked ones."""
    if not subject.sample.is_sparse:
        return inapplicable("no input is sparse")
    if not subject.output_info.has_derivative:
        return untested("no output is of a floating or complex dtype")
    engine = subject.context.engine
    masked = engine.ask("masked", under(subject, masked=True))
    if masked is not None:
        return fails("masked: the derivative is wrong under masked semantics", masked.text)
    if subject.request.masked:
        return HOLDS
    unmasked = engine.ask("masked", under(subject, masked=False))
    if unmasked is not None:
        hint = "if gradients exist for specified elements only, write masked = true"
        return fails("masked: the derivative is wrong under non-masked semantics", f"{unmasked.text}\n{hint}")
    return HOLDS


def under(subject: Subject, *, masked: bool) -> Request:
    """Return the request for a sample under masked or non-masked semantics, for its inputs and its outputs."""
    return subject.request.with_(function=replace(subject.function, masked=masked), masked=masked)


check = per_sample(judge)
