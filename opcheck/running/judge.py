"""Computes the outcome of a case from the verdicts on its samples and from its known failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from opcheck.checks.verdict import Verdict, cannot
from opcheck.derivatives.mistakes import OF_ONE_ENTRY
from opcheck.planning.case import Case
from opcheck.planning.expectations import fits, is_about
from opcheck.running.outcome import Outcome
from opcheck.spec.claims import Expect
from opcheck.text import one_line


def judge(case: Case, verdicts: Sequence[Verdict]) -> Outcome:
    """Return the outcome of a case.

    Each failure must be expected, and each strict expectation must be met. A case passes only if something was tested:
    without any verdict, the outcome is `error`; if no verdict tested anything, it is `skipped`.
    """
    verdicts = verdicts or [cannot(f"{case.check} gave no verdict: nothing was tested")]
    if failures := unexpected(case, verdicts):
        return _failed(case, failures, verdicts)
    tested = [verdict for verdict in verdicts if not verdict.untested]
    if not tested:
        why = "; ".join(dict.fromkeys(verdict.title for verdict in verdicts))
        beyond: dict[str, Any] = {"out_of_reach": True} if any(one.state == "out of reach" for one in verdicts) else {}
        return Outcome.of(case, "skipped", why, **beyond)
    unmet = [(expect, text) for expect in case.expectations if (text := _unmet(expect, verdicts))]
    if unmet:
        lines = [f"{_place_of(expect)}: {text}" for expect, text in unmet]
        lines.append("remove the expectation at this position, or narrow its when")
        return Outcome.of(case, "xpassed", unmet[0][1], "\n".join(lines))
    if failures := [verdict for verdict in verdicts if not verdict.passed]:
        reasons = dict.fromkeys(expect.reason for one in failures if (expect := _expecting(case, one)))
        return Outcome.of(case, "xfailed", "; ".join(reasons), failures[0].title)
    derived = Counter[str]()
    for verdict in tested:
        derived.update(verdict.fields.get("derived", {}))
    fields: dict[str, Any] = {
        "jacobian": {str(one.sample): one.fields["jacobian"] for one in tested if "jacobian" in one.fields},
        "derived": dict(derived),
        "notes": {str(one.sample): one.fields["notes"] for one in tested if "notes" in one.fields},
    }
    return Outcome.of(case, "passed", **{name: value for name, value in fields.items() if value})


OF_CASES = ("derived", "notes", "tolerance")
"""The fields of outcomes that reports add up, with keys of their own. The check of a plugin may use the same names."""


def unexpected(case: Case, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the failures that no expectation covers, most informative first: the outcome reports the first."""
    return in_order([one for one in verdicts if not one.passed and _expecting(case, one) is None])


def expected(case: Case, outcome: Outcome) -> Outcome:
    """Return `xfailed` for an error that the spec expects, and any other outcome unchanged.

    Used for crashes, exits and time-outs, which belong to no sample: only an expectation about the whole case covers
    them.
    """
    if outcome.outcome != "error":
        return outcome
    for expect in case.expectations:
        if is_about(expect, None) and fits(expect, "error", f"{outcome.reason}\n{outcome.message}"):
            return replace(outcome, outcome="xfailed", reason=expect.reason, message=outcome.reason)
    return outcome


def _expecting(case: Case, verdict: Verdict) -> Expect | None:
    """Return the expectation that covers a failure; for a blocked claim, also one about the blocking check."""
    expects = case.expectations
    if verdict.blocked:
        expects += case.expectations_about(verdict.blocked)
    return next((expect for expect in expects if verdict.is_expected_by(expect)), None)


UNMET = {
    "fail": "expected to fail, but holds",
    "error": "expected to be an error, but is none",
    "inconclusive": "expected to be inconclusive, but is not",
}
"""The messages for strict expectations that are not met, by the expected outcome."""


def _unmet(expect: Expect, verdicts: Sequence[Verdict]) -> str:
    """Return why a strict expectation is not met; an empty string if it is met or not strict.

    If the expectation names samples, each of them must fail as expected, unless the check is inapplicable to it.
    Otherwise, one failure as expected is enough.
    """
    if expect.outcome not in UNMET:
        return ""
    met = {verdict.sample for verdict in verdicts if not verdict.passed and verdict.is_expected_by(expect)}
    if expect.when.sample is None:
        return "" if met else f"{UNMET[expect.outcome]}: {expect.reason}"
    tested = dict.fromkeys(v.sample for v in verdicts if v.state != "inapplicable" and is_about(expect, v.sample))
    names = ", ".join(str(sample) for sample in tested if sample not in met)
    return f"sample {names} was {UNMET[expect.outcome]}: {expect.reason}" if names else ""


def _place_of(expect: Expect) -> str:
    """Return the position of an expectation in the spec or the device profile, as `file:line:column`."""
    problem = expect.problem((), "")
    return f"{problem.file}:{problem.line}:{problem.column}"


def _failed(case: Case, failures: Sequence[Verdict], verdicts: Sequence[Verdict]) -> Outcome:
    """Return the outcome of a case with unexpected failures, with the kind, reason and place of the first."""
    first, message = failures[0], _message(case, failures, verdicts)
    cause = {"blocked_by": first.blocked} if first.blocked else {}
    if first.state == "refused" and first.cause is not None:
        cause = {"raised": one_line(first.cause)}
    own = {name: value for name, value in first.fields.items() if name not in OF_CASES}
    outcome = Outcome.of(case, first.kind, first.title, message, **{"sample": first.sample, **own, **cause})
    sample = next((sample for sample in case.samples if sample.name == first.sample), None)
    if sample is None:
        return outcome
    place = sample.span
    return replace(outcome, file=sample.document.file, line=place.line, column=place.column, toml=sample.toml())


def _message(case: Case, failures: Sequence[Verdict], verdicts: Sequence[Verdict]) -> str:
    """Return the message of a failed case.

    It consists of the findings that several samples share, the first failures in full, the names of the other failing
    samples, and the expectations that the failures do not meet.
    """
    tested = {one.sample for one in verdicts if not one.untested} - {None}
    failed = {one.sample for one in failures} - {None}
    what = f"{len(failed)} of {len(tested)} samples failed" if failed and len(tested) > 1 else failures[0].kind
    parts = [f"{case.id}: {what}"]
    parts += ["\n".join(in_common(failures))] if len(failures) > 1 else []
    parts += [verdict.text() for verdict in failures[:SHOWN]]
    if len(failures) > SHOWN:
        parts.append(f"also: {', '.join(verdict.sample or verdict.title for verdict in failures[SHOWN:])}")
    near = [expect for expect in case.expectations if any(is_about(expect, verdict.sample) for verdict in failures)]
    parts.append("\n".join(f"the spec expects a different result: {_describe(expect)}" for expect in near))
    return "\n\n".join(filter(None, parts))


def _describe(expect: Expect) -> str:
    match = "" if expect.match is None else f" and match = {expect.match!r}"
    return f'outcome = "{expect.outcome}"{match} ({expect.reason})'


SHOWN = 3
"""The number of failures that a message shows in full."""
WEIGHT = {"failed": 2, "blocked": 0}
"""The weight of each kind of failure; 1 by default. Blocked claims come last: they follow from another failure."""

PLACES = ("entries", "columns", "rows")
"""The kinds of findings that locate the wrong entries of a derivative, but do not explain them."""


def in_order(failures: Sequence[Verdict]) -> list[Verdict]:
    """Return failures, most informative first: named mistakes before mere places, many entries before few."""
    return sorted(failures, key=_weight, reverse=True)


def _weight(verdict: Verdict) -> tuple[int, int, int]:
    ranks, entries = [_rank(finding) for finding in _findings(verdict)], verdict.fields.get("entries")
    return WEIGHT.get(verdict.kind, 1), max(ranks, default=0), entries if isinstance(entries, int) else 0


def _rank(finding: dict[str, Any]) -> int:
    if finding["kind"] == "unlike" or finding["fields"].get("alone"):
        return 0
    return 1 if finding["kind"] in PLACES else 2


def _findings(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the findings of a verdict; none if a user's check has stored something else in the field `diagnosis`."""
    diagnosis, keys = verdict.fields.get("diagnosis"), {"kind", "text", "fields"}
    is_one = isinstance(diagnosis, list) and all(isinstance(one, dict) and keys <= set(one) for one in diagnosis)
    return diagnosis if is_one else []  # type: ignore[return-value]


def in_common(failures: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line for each finding that several samples share.

    A factor is shared if it is the same number in each sample, or the size of the same dimension or tensor. Otherwise,
    the line lists the different factors, since a single sample would suggest a constant.
    """
    diagnosed = [findings for findings in map(_findings, failures) if findings]
    shared_by: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for own in diagnosed:
        for finding in own:
            place = finding["text"].partition(": ")[0]
            shared_by.setdefault((finding["kind"], place), []).append(finding)
    for (kind, place), findings in shared_by.items():
        if len(findings) == 1 or kind == "unlike":
            continue
        says = {finding["text"].removeprefix(f"{place}: ").removesuffix(OF_ONE_ENTRY) for finding in findings}
        shared = _shared_factor(findings) if kind == "factor" else says.pop() if len(says) == 1 else ""
        if shared:
            yield f"in {len(findings)} of {len(diagnosed)} samples: {place}: {shared}"


def _shared_factor(findings: Sequence[dict[str, Any]]) -> str:
    several = [finding["fields"] for finding in findings]
    what, factors = several[0]["what"], [fields["factor"] for fields in several]
    shared = set.intersection(*({*fields["sizes"], *fields["elements"]} for fields in several))
    if all(factor == factors[0] for factor in factors):
        return f"the {what} is {_number(factors[0])} times what it should be"
    if shared:
        way = "divided" if all(abs(factor) < 1 for factor in factors) else "multiplied"
        return f"the {what} is {way} by the {' or the '.join(sorted(shared))}"
    return f"the factor differs between samples: {', '.join(map(_number, factors))}"


def _number(factor: Any) -> str:
    return f"{complex(*factor):.4g}" if isinstance(factor, (list, tuple)) else f"{factor:.4g}"
