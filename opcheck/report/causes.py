"""Puts failures of one cause together: one report, and the names of the cases that follow from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opcheck.report.model import Record

Cause = tuple[str, ...]


@dataclass
class Failure:
    """A failure, and what has the same cause."""

    record: Record
    same: list[Record] = field(default_factory=list)
    """Cases of the same operator that failed for the same reason."""
    blocked: list[Record] = field(default_factory=list)
    """Cases that were not judged because of it."""

    def followers(self, most: int = 8) -> list[str]:
        """Return a line for each way in which other cases follow, with the names of at most `most` of them."""
        ways = (("the same", self.same), ("not judged because of it", self.blocked))
        return [f"{how}: {_names(records, most)}" for how, records in ways if records]


def failures_by_cause(records: Iterable[Record]) -> list[Failure]:
    """Return the failures of one run, in order, each cause once."""
    bad = [record for record in records if record.is_bad]
    cases = {_case(record): record for record in bad}
    groups: defaultdict[Cause, list[Record]] = defaultdict(list)
    for record in bad:
        groups[_cause(record, cases)].append(record)
    failures = []
    for own in groups.values():
        first = next((one for one in own if cause_of(one) or one.outcome != "blocked"), own[0])
        others = [one for one in own if one is not first]
        blocked = [one for one in others if one.outcome == "blocked"]
        failures.append(Failure(first, [one for one in others if one.outcome != "blocked"], blocked))
    order = {record.id: number for number, record in enumerate(bad)}
    return sorted(failures, key=lambda failure: order[failure.record.id])


def cause_of(record: Record) -> str:
    """Return what is to be changed in the spec, where several checks say so; else an empty string."""
    return str(record.fields.get("cause", ""))


def _cause(record: Record, cases: Mapping[Cause, Record]) -> Cause:
    """Return what failures of one cause have in common. An error of an operator does not depend on the check."""
    if cause := cause_of(record):
        return "cause", record.operator, record.device, cause
    if record.outcome == "blocked":
        root = _root(record, cases)
        is_selected = root in cases and cases[root].outcome != "blocked"
        return _cause(cases[root], cases) if is_selected else ("blocked", *root)
    if record.outcome == "error":
        return "error", record.operator, record.reason
    return "failed", record.id


def _root(record: Record, cases: Mapping[Cause, Record]) -> Cause:
    """Return the case that a chain of blocked cases ends with."""
    seen: set[Cause] = set()
    root = _blocker(record)
    while root in cases and cases[root].outcome == "blocked" and root not in seen:
        seen.add(root)
        root = _blocker(cases[root])
    return root


def _case(record: Record) -> Cause:
    return record.operator, record.variant, record.device, record.dtype, record.check


def _blocker(record: Record) -> Cause:
    return (*_case(record)[:-1], str(record.fields.get("blocked_by", "")))


def _names(records: Sequence[Record], most: int) -> str:
    names = [record.id.rpartition("::")[2] for record in records]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
