"""Tells whether a failure at a sample is one that the spec expects."""

from __future__ import annotations

import re
from typing import Literal

from opcheck.checks.verdict import Verdict
from opcheck.planning.expectations import is_about
from opcheck.spec.claims import Expect

Kind = Literal["failed", "error", "inconclusive", "blocked"]
"""The kind of outcome that a failing verdict leads to."""

MET_BY: dict[str, Kind] = {
    "fail": "failed",
    "flaky": "failed",
    "error": "error",
    "inconclusive": "inconclusive",
}
"""The kind of failure that each expected outcome stands for; skip stands for none."""


def kind_of(verdict: Verdict) -> Kind:
    """Return the kind of outcome that a failing verdict leads to."""
    if verdict.blocked:
        return "blocked"
    return "inconclusive" if verdict.inconclusive else "error" if verdict.is_error else "failed"


def covers(expect: Expect, verdict: Verdict) -> bool:
    """Tell whether an expectation covers a failing verdict: its sample, its kind, and its text."""
    return is_about(expect, verdict.sample) and fits(expect, kind_of(verdict), f"{verdict.title}\n{verdict.detail}")


def fits(expect: Expect, kind: Kind, text: str) -> bool:
    """Tell whether an expectation is met by a failure of a kind, with a text."""
    kind = "failed" if kind == "blocked" else kind  # it follows from a failure
    return MET_BY.get(expect.outcome) == kind and (expect.match is None or bool(re.search(expect.match, text)))
