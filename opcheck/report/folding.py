"""Puts failures of one cause together: one report, and the names of the cases that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opcheck.run.outcome import BAD

Record = Mapping[str, Any]
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
        told = (("the same", self.same), ("not judged because of it", self.blocked))
        return [f"{how}: {_names(records, most)}" for how, records in told if records]


def folded(records: Iterable[Record]) -> list[Failure]:
    """Return the failures of a run, in order, each cause once."""
    bad = [record for record in records if record["outcome"] in BAD]
    failures: dict[Cause, Failure] = {}
    for record in bad:
        if cause_of(record) or record["outcome"] != "blocked":
            first = failures.setdefault(_reason(record), Failure(record))
            if first.record is not record:
                (first.blocked if record["outcome"] == "blocked" else first.same).append(record)
    leaders = {_case(failed.record, failed.record["check"]): failed for failed in failures.values()}
    leaders |= {_case(other, other["check"]): failed for failed in failures.values() for other in failed.same}
    by_case = {_case(one, one["check"]): one for one in bad}
    for record in bad:
        if record["outcome"] == "blocked" and not cause_of(record):
            root = _root(record, by_case)
            leader = leaders.setdefault(root, Failure(record))
            if leader.record is record:
                key = ("blocked", *root)
                failures[key] = leader  # the cause was not selected
            else:
                leader.blocked.append(record)
    order = {record["id"]: number for number, record in enumerate(bad)}
    return sorted(failures.values(), key=lambda failed: order[failed.record["id"]])


def folded_by_run(records: Iterable[Record]) -> list[Failure]:
    """Return the failures of a merged report, run by run: those of one run do not cause those of another."""
    runs: dict[int, list[Record]] = {}
    for record in records:
        runs.setdefault(record["run"], []).append(record)
    return [failed for several in runs.values() for failed in folded(several)]


def cause_of(record: Record) -> str:
    """Return what is to be changed in the spec, where several checks say so; else an empty string."""
    return str(record.get("fields", {}).get("cause", ""))


def _root(record: Record, by_case: Mapping[Cause, Record]) -> Cause:
    """Return the case that a chain of blocked cases ends with."""
    seen: set[Cause] = set()
    root = _case(record, record.get("fields", {}).get("blocked_by", ""))
    while root in by_case and by_case[root]["outcome"] == "blocked" and root not in seen:
        seen.add(root)
        root = _case(by_case[root], by_case[root].get("fields", {}).get("blocked_by", ""))
    return root


def _reason(record: Record) -> Cause:
    """Return what failures of one cause have in common: the cause, or an error that does not depend on the check."""
    if cause := cause_of(record):
        return "cause", record["operator"], record["device"], cause
    if record["outcome"] == "error":
        return "error", record["operator"], record["reason"]
    return "failed", record["id"]


def _case(record: Record, check: str) -> Cause:
    return record["operator"], record["variant"], record["device"], record["dtype"], check


def _names(records: Sequence[Record], most: int) -> str:
    names = [record["id"].rpartition("::")[2] for record in records]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
