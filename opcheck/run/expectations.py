"""Which failures of a case its expectations cover, and which expectations are not met."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from opcheck.checks.verdict import Verdict
from opcheck.plan.case import Case
from opcheck.run.outcome import Outcome, OutcomeKind
from opcheck.spec.claims import Expect
from opcheck.spec.library import names_of

MET_BY: dict[str, OutcomeKind] = {
    "fail": "failed",
    "flaky": "failed",
    "error": "error",
    "inconclusive": "inconclusive",
}
"""The kind of failure that each expected outcome means. None of them means another one too."""

MISSED = {
    "fail": "expected to fail, but holds",
    "error": "expected to be an error, but is none",
    "inconclusive": "expected to be inconclusive, but is not",
}
"""What is said of the strict ones where nothing meets them."""


def kind_of(verdict: Verdict) -> OutcomeKind:
    """Return what a failing verdict makes of a case."""
    return "inconclusive" if verdict.inconclusive else "error" if verdict.is_error else "failed"


def expectations(case: Case) -> list[Expect]:
    """Return the expectations of a case about what runs."""
    return [expect for expect in case.expectations if expect.outcome != "skip"]


def about(expect: Expect, sample: str | None) -> bool:
    """Tell whether an expectation speaks of a sample, by its name or that of its grid; None: of the case as a whole."""
    if expect.when.sample is None:
        return True
    return sample is not None and any(expect.when.matches("sample", name) for name in names_of(sample))


def covers(expect: Expect, verdict: Verdict) -> bool:
    """Tell whether a failing verdict is what an expectation foresees: on this sample, of this kind, in these words."""
    return about(expect, verdict.sample) and _fits(expect, kind_of(verdict), f"{verdict.title}\n{verdict.detail}")


def _fits(expect: Expect, kind: OutcomeKind, text: str) -> bool:
    return MET_BY.get(expect.outcome) == kind and (expect.match is None or bool(re.search(expect.match, text)))


def missed(expect: Expect, verdicts: Sequence[Verdict]) -> str:
    """Return what a strict expectation waits for in vain; an empty string where it is met.

    One that names samples must be met by each of them that the case tests, any other one by one verdict at least.
    """
    if expect.outcome not in MISSED:
        return ""
    met = {verdict.sample for verdict in verdicts if not verdict.passed and covers(expect, verdict)}
    if expect.when.sample is None:
        return "" if met else f"{MISSED[expect.outcome]}: {expect.reason}"
    tested = dict.fromkeys(v.sample for v in verdicts if v.applies and about(expect, v.sample))
    names = ", ".join(str(sample) for sample in tested if sample not in met)
    return f"sample {names} was {MISSED[expect.outcome]}: {expect.reason}" if names else ""


def expected(case: Case, outcome: Outcome) -> Outcome:
    """Return an error that was seen from outside of the check as `xfailed`, where the spec expects it; else as it is.

    A crash, an exit or a time-out belongs to no sample: only an expectation of the case as a whole can mean it.
    """
    if outcome.outcome != "error":
        return outcome
    for expect in expectations(case):
        if about(expect, None) and _fits(expect, "error", f"{outcome.reason}\n{outcome.message}"):
            return replace(outcome, outcome="xfailed", reason=expect.reason, message=outcome.reason)
    return outcome
