"""Makes the outcome of a case from the verdicts on its samples and from its known failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opcheck.checks.expected import covers, kind_of
from opcheck.checks.verdict import Verdict, cannot
from opcheck.planning.case import Case
from opcheck.planning.expectations import about
from opcheck.running.expectations import causes, missed, place_of
from opcheck.running.failures import in_common, in_order
from opcheck.running.outcome import Outcome
from opcheck.spec.claims import Expect


def judge(case: Case, verdicts: Sequence[Verdict], rerun: str = "", engine: str = "batched") -> Outcome:
    """Return the outcome of a case.

    Each failure must be expected, and each strict expectation must be met. A case passes only if something was tested:
    without any verdict it is an error; if no verdict tested anything, it is skipped.

    rerun: the command that runs the case, for the message.
    engine: the name of the engine. The expectations of the case are those that hold under it.
    """
    verdicts = verdicts or [cannot(f"{case.check} gave no verdict: nothing was tested")]
    known = case.expectations
    met: dict[str, str] = {}
    unexpected: list[Verdict] = []
    for verdict in verdicts:
        if verdict.passed:
            continue
        expect = next((expect for expect in (*known, *causes(case, verdict, engine)) if covers(expect, verdict)), None)
        if expect is None:
            unexpected.append(verdict)
        else:
            met.setdefault(expect.reason, verdict.title)
    tested = [verdict for verdict in verdicts if not verdict.untested]
    if unexpected:
        unexpected = in_order(unexpected)
        first = unexpected[0]
        fields = {"sample": first.sample, **first.fields} | ({"blocked_by": first.blocked} if first.blocked else {})
        message = _message(case, unexpected, _samples(tested), rerun)
        outcome = Outcome.of(case, kind_of(first), first.title, message, **fields)
        sample = next((sample for sample in case.samples if sample.name == first.sample), None)
        return outcome if sample is None else outcome.at(sample)
    if not tested:
        why = "; ".join(dict.fromkeys(verdict.title for verdict in verdicts))
        skipped = Outcome.of(case, "skipped", why)
        beyond = any(verdict.out_of_reach for verdict in verdicts)
        return replace(skipped, fields={"out_of_reach": True}) if beyond else skipped
    too_good = [(expect, text) for expect in known if (text := missed(expect, verdicts))]
    if too_good:
        lines = [f"{place_of(case, expect)}: {text}" for expect, text in too_good]
        lines.append("take the expectation out there, or narrow it")
        return Outcome.of(case, "xpassed", too_good[0][1], "\n".join(lines))
    if met:
        return Outcome.of(case, "xfailed", "; ".join(met), next(iter(met.values())))
    remarks = {str(verdict.sample): verdict.title for verdict in tested if verdict.title}
    parts = {str(verdict.sample): verdict.fields["jacobian"] for verdict in tested if "jacobian" in verdict.fields}
    derived = Counter[str]()
    for verdict in tested:
        derived.update(verdict.fields.get("derived", {}))
    about: dict[str, Any] = {"warnings": remarks, "jacobian": parts, "derived": dict(derived)}
    return Outcome.of(case, "passed", **{name: value for name, value in about.items() if value})


def _samples(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.sample is not None for verdict in verdicts)


def _message(case: Case, failures: list[Verdict], count: int, rerun: str, most: int = 3) -> str:
    """Return the message of a failure: each failing sample with its evidence, and the command to run it again."""
    samples = [verdict for verdict in failures if verdict.sample is not None]
    what = f"{len(samples)} of {count} samples failed" if samples and count > 1 else "failed"
    parts = [f"{case.id}: {what}"]
    parts += ["\n".join(in_common(failures))] if len(failures) > 1 else []
    parts += [verdict.text() for verdict in failures[:most]]
    if len(failures) > most:
        names = ", ".join(str(verdict.sample) for verdict in failures[most:])
        parts.append(f"also: {names}")
    near = [expect for expect in case.expectations if any(about(expect, verdict.sample) for verdict in failures)]
    if near:
        parts.append("\n".join(f"the spec expects something else: {_describe(expect)}" for expect in near))
    if rerun:
        parts.append(f"run just this: {rerun}")
    return "\n\n".join(part for part in parts if part)


def _describe(expect: Expect) -> str:
    match = "" if expect.match is None else f" and match = {expect.match!r}"
    return f'outcome = "{expect.outcome}"{match} ({expect.reason})'
