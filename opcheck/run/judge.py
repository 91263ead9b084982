"""From the verdicts on samples to the outcome of a case: what was expected to fail counts the other way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opcheck.checks.verdict import Verdict
from opcheck.plan.case import Case
from opcheck.run.outcome import Outcome, OutcomeKind
from opcheck.spec.claims import Expect
from opcheck.spec.library import Sample, names_of


def judge(case: Case, verdicts: Sequence[Verdict], rerun: str = "") -> Outcome:
    """Return the outcome of a case."""
    if not verdicts:
        return Outcome.of(case, "skipped", f"{case.check} has nothing to test here")
    whole = [expect for expect in case.expectations if expect.when.sample is None and expect.outcome != "skip"]
    if whole:
        return _expected_as_a_whole(case, whole[0], [verdict for verdict in verdicts if not verdict.passed])
    expected, unexpected, too_good = _sorted(case, verdicts)
    if unexpected:
        first = next((verdict for verdict in unexpected if _kind(verdict) == "failed"), unexpected[0])
        kind = _kind(first)
        fields = {"sample": first.sample, **first.fields}
        return Outcome.of(case, kind, first.title, _message(case, unexpected, len(verdicts), rerun), **fields)
    if too_good:
        names = ", ".join(str(verdict.sample) for verdict, _ in too_good)
        reason = f"sample {names} was expected to fail, but holds: {too_good[0][1].reason}"
        return Outcome.of(case, "xpassed", reason, f"{reason}\ntake the expectation out of the spec")
    if expected:
        reasons = dict.fromkeys(expect.reason for _, expect in expected)
        return Outcome.of(case, "xfailed", "; ".join(reasons), expected[0][0].title)
    remarks = {str(verdict.sample): verdict.title for verdict in verdicts if verdict.title}
    outcome = Outcome.of(case, "passed")
    return replace(outcome, fields={"warnings": remarks}) if remarks else outcome


def _kind(verdict: Verdict) -> OutcomeKind:
    return "inconclusive" if verdict.inconclusive else "error" if verdict.is_error else "failed"


Foreseen = list[tuple[Verdict, Expect]]


def _sorted(case: Case, verdicts: Sequence[Verdict]) -> tuple[Foreseen, list[Verdict], Foreseen]:
    """Return the failures that were expected, those that were not, and the passes that were not."""
    expected: Foreseen = []
    unexpected: list[Verdict] = []
    too_good: Foreseen = []
    for verdict in verdicts:
        expect = _expectation(case, verdict.sample)
        if expect is None:
            unexpected += [] if verdict.passed else [verdict]
        elif not verdict.passed:
            expected.append((verdict, expect))
        elif expect.outcome == "fail":
            too_good.append((verdict, expect))
    return expected, unexpected, too_good


def _expectation(case: Case, name: str | None) -> Expect | None:
    for expect in case.expectations:
        if expect.when.sample is not None and name is not None and expect.outcome != "skip" and means(expect, name):
            return expect
    return None


def means(expect: Expect, name: str) -> bool:
    """Tell whether an expectation speaks of a sample: by its name, or by that of the grid it comes from."""
    return any(expect.when.matches("sample", known) for known in names_of(name))


def _expected_as_a_whole(case: Case, expect: Expect, failures: list[Verdict]) -> Outcome:
    if failures:
        return Outcome.of(case, "xfailed", expect.reason, failures[0].title)
    if expect.outcome == "flaky":
        return Outcome.of(case, "passed")
    reason = f"expected to fail, but holds: {expect.reason}"
    return Outcome.of(case, "xpassed", reason, f"{reason}\ntake the expectation out of the spec")


def samples_to_run(case: Case) -> tuple[Sample, ...]:
    """Return the samples of a case but those that an expectation skips by name."""
    return tuple(sample for sample in case.samples if not _skips(case, sample))


def nothing_to_run(case: Case) -> str:
    """Return why a case has no samples to run; an empty string where it has some."""
    if samples_to_run(case):
        return ""
    reasons = dict.fromkeys(expect.reason for sample in case.samples for expect in _skips(case, sample))
    return "; ".join(reasons) or f"no sample is meant for {case.dtype}"


def _skips(case: Case, sample: Sample) -> list[Expect]:
    named = [expect for expect in case.expectations if expect.outcome == "skip" and expect.when.sample is not None]
    return [expect for expect in named if means(expect, sample.name)]


def _message(case: Case, failures: list[Verdict], count: int, rerun: str, most: int = 3) -> str:
    """Return the failure as a person reads it: each failing sample with its evidence, and how to run it again."""
    what = f"{len(failures)} of {count} samples failed" if count > 1 else "failed"
    parts: list[Any] = [f"{case.id}: {what}"]
    parts += [verdict.text() for verdict in failures[:most]]
    if len(failures) > most:
        names = ", ".join(str(verdict.sample) for verdict in failures[most:])
        parts.append(f"also: {names}")
    if rerun:
        parts.append(f"run just this: {rerun}")
    return "\n\n".join(parts)
