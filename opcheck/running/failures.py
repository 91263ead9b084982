"""What the failing samples of a case tell together: which of them to show first, and what their diagnoses share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opcheck.checks.expected import kind_of
from opcheck.checks.verdict import Verdict

PLACES = ("entries", "columns", "rows")
"""Diagnoses that say where a derivative is wrong, but not why."""


def in_order(failures: Sequence[Verdict]) -> list[Verdict]:
    """Return failures with the most telling one first: a named mistake in many entries before a single number."""
    return sorted(failures, key=_weight, reverse=True)


WEIGHT = {"failed": 2, "blocked": 0}
"""A failure tells more than what could not be tested, and that more than what follows from another failure."""


def _weight(verdict: Verdict) -> tuple[int, int, int]:
    ranks, entries = [_rank(finding) for finding in _findings(verdict)], verdict.fields.get("entries")
    return WEIGHT.get(kind_of(verdict), 1), max(ranks, default=0), entries if isinstance(entries, int) else 0


def _findings(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the diagnosis of a verdict. The fields of other people's checks may have anything under its name."""
    diagnosis = verdict.fields.get("diagnosis")
    keys = {"kind", "text", "fields"}
    return (
        diagnosis
        if isinstance(diagnosis, list) and all(isinstance(f, dict) and keys <= set(f) for f in diagnosis)
        else []
    )


def _rank(finding: dict[str, Any]) -> int:
    if finding["kind"] == "unlike" or finding["fields"].get("alone"):
        return 0
    return 1 if finding["kind"] in PLACES else 2


def in_common(failures: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line for each diagnosis that several samples share.

    A factor need not be the same number in each: it may be the size of something in all of them. If it is neither, that
    is said as well, since a single sample would suggest a constant.
    """
    diagnosed = [findings for findings in map(_findings, failures) if findings]
    shared_by: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for own in diagnosed:
        for finding in own:
            shared_by.setdefault((finding["kind"], _place(finding)), []).append(finding)
    for (kind, place), findings in shared_by.items():
        says = {finding["text"].removeprefix(f"{place}: ").removesuffix(ALONE) for finding in findings}
        if len(findings) > 1 and kind != "unlike":
            shared = _shared_factor(findings) if kind == "factor" else says.pop() if len(says) == 1 else ""
            if shared:
                yield f"in {len(findings)} of {len(diagnosed)} samples: {place}: {shared}"


ALONE = ", as far as a single number tells"


def _place(finding: dict[str, Any]) -> str:
    place: str = finding["text"].partition(": ")[0]
    return place


def _shared_factor(findings: Sequence[dict[str, Any]]) -> str:
    several = [finding["fields"] for finding in findings]
    what, factors = several[0]["what"], [fields["factor"] for fields in several]
    shared = set.intersection(*({*fields["sizes"], *fields["elements"]} for fields in several))
    if all(factor == factors[0] for factor in factors):
        return f"the {what} is {_number(factors[0])} times what it should be"
    if shared:
        way = "divided" if all(abs(factor) < 1 for factor in factors) else "multiplied"
        return f"the {what} is {way} by the {' or the '.join(sorted(shared))}"
    return f"the factor is no constant: {', '.join(map(_number, factors))}"


def _number(factor: Any) -> str:
    return f"{complex(*factor):.4g}" if isinstance(factor, (list, tuple)) else f"{factor:.4g}"
