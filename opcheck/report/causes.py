"""Puts failures of one cause together: one report, and the names of the cases that follow from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opcheck.running.outcome import Outcome

Cause = tuple[str, ...]


@dataclass
class Failure:
    """A failure, and what has the same cause."""

    record: Outcome
    others: list[Outcome]
    """Cases of the same operator that failed for the same reason, and cases that were not judged because of it."""

    def followers(self) -> list[str]:
        """Return a line for each way in which other cases follow, with the names of some of them."""
        same = [one for one in self.others if one.outcome != "blocked"]
        blocked = [one for one in self.others if one.outcome == "blocked"]
        ways = (("the same", same), ("not judged because of it", blocked))
        return [f"{how}: {_names(records)}" for how, records in ways if records]


def failures_by_cause(records: Iterable[Outcome]) -> list[Failure]:
    """Return the failures of one run, in order, each cause once."""
    bad = [record for record in records if record.is_bad]
    cases = {_case(record, record.check): record for record in bad}
    groups: defaultdict[Cause, list[Outcome]] = defaultdict(list)
    for record in bad:
        groups[_cause(record, cases)].append(record)
    failures = []
    for own in groups.values():
        first = next((one for one in own if cause_of(one) or one.outcome != "blocked"), own[0])
        failures.append(Failure(first, [one for one in own if one is not first]))
    order = {record.id: number for number, record in enumerate(bad)}
    return sorted(failures, key=lambda failure: order[failure.record.id])


def cause_of(record: Outcome) -> str:
    """Return what is to be changed in the spec, where several checks say so; else an empty string."""
    return str(record.fields.get("cause", ""))


def _cause(record: Outcome, cases: Mapping[Cause, Outcome], seen: frozenset[Cause] = frozenset()) -> Cause:
    """Return what failures of one cause have in common. An error of an operator does not depend on the check.

    A case that is blocked has the cause of the case that blocks it, if that is among the others.
    """
    if cause := cause_of(record):
        return "cause", record.operator, record.device, cause
    if record.outcome == "blocked":
        blocker = _case(record, str(record.fields.get("blocked_by", "")))
        is_known = blocker in cases and blocker not in seen
        return _cause(cases[blocker], cases, seen | {blocker}) if is_known else ("blocked", *blocker)
    if record.outcome == "error":
        return "error", record.operator, record.reason
    return "failed", record.id


def _case(record: Outcome, check: str) -> Cause:
    """Return what identifies a case, or that of another check on the same."""
    return record.operator, record.variant, record.device, record.dtype, check


def _names(records: Sequence[Outcome]) -> str:
    names = [record.id.rpartition("::")[2] for record in records]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


MOST_NAMES = 8
"""How many names of followers a line has."""
