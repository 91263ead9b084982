"""Compares failures with the known ones: which failures are expected, and which expected failures are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opcheck.checks.expected import covers, fits
from opcheck.checks.verdict import Verdict
from opcheck.planning.case import Case
from opcheck.planning.expectations import about, applying, foreseen, known
from opcheck.running.outcome import Outcome
from opcheck.spec.claims import Expect
from opcheck.spec.device import DeviceExpect

MISSED = {
    "fail": "expected to fail, but holds",
    "error": "expected to be an error, but is none",
    "inconclusive": "expected to be inconclusive, but is not",
}
"""The message if nothing meets a strict expectation."""


def causes(case: Case, verdict: Verdict, engine: str) -> tuple[Expect, ...]:
    """Return the expectations about the case that blocks a verdict: whoever expects the cause expects what follows."""
    expects = foreseen(known(case.operator, case.device), engine)
    return (
        applying(expects, verdict.blocked, case.variant.kind, case.device.name, case.dtype) if verdict.blocked else ()
    )


def missed(expect: Expect, verdicts: Sequence[Verdict]) -> str:
    """Return the message that a strict expectation is not met; an empty string if it is met.

    If it names samples, each of them that is tested must fail as expected; otherwise, one sample must.
    """
    if expect.outcome not in MISSED:
        return ""
    met = {verdict.sample for verdict in verdicts if not verdict.passed and covers(expect, verdict)}
    if expect.when.sample is None:
        return "" if met else f"{MISSED[expect.outcome]}: {expect.reason}"
    tested = dict.fromkeys(v.sample for v in verdicts if v.applies and about(expect, v.sample))
    names = ", ".join(str(sample) for sample in tested if sample not in met)
    return f"sample {names} was {MISSED[expect.outcome]}: {expect.reason}" if names else ""


def place_of(case: Case, expect: Expect) -> str:
    """Return where an expectation about a case stands: `file:line:column` in the spec, or in the profile."""
    if isinstance(expect, DeviceExpect):
        problem = expect.problem((), "")
    else:
        own = [index for index, one in enumerate(case.operator.spec.expect) if one is expect]
        problem = case.operator.problem(("expect", *own), "")
    return f"{problem.file}:{problem.line}:{problem.column}"


def expected(case: Case, outcome: Outcome) -> Outcome:
    """Return `xfailed` for an error that the spec expects; any other outcome as it is.

    For crashes, exits and time-outs. They belong to no sample: only an expectation about the whole case covers them.
    """
    if outcome.outcome != "error":
        return outcome
    for expect in case.expectations:
        if about(expect, None) and fits(expect, "error", f"{outcome.reason}\n{outcome.message}"):
            return replace(outcome, outcome="xfailed", reason=expect.reason, message=outcome.reason)
    return outcome
