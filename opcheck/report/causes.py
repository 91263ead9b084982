"""Groups failures by cause, so that each cause is reported once, with the names of the other cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opcheck.running.outcome import Outcome
from opcheck.text import printable, shortened, with_more

Cause = tuple[str, ...]

MOST_NAMES = 8
"""The maximum number of names in a line."""

LONGEST = 4000
"""The maximum length of a message on GitHub, in characters."""


@dataclass
class Failure:
    """A failure, and the other bad cases with the same cause."""

    record: Outcome
    others: list[Outcome]
    """Cases of the same operator that failed for the same reason, and cases that it blocked."""

    def message(self) -> str:
        """Return the message of the failure, else its reason, shortened to `LONGEST` characters, for GitHub."""
        text = shortened(self.record.message or self.record.reason, LONGEST, LONGEST // 4)
        return printable(text, lines=True, most=None)

    def followers(self) -> list[str]:
        """Return a line with the cases that failed for the same reason and one with the blocked cases, if any."""
        same = [one for one in self.others if one.outcome != "blocked"]
        blocked = [one for one in self.others if one.outcome == "blocked"]
        ways = (("the same", same), ("not judged because of it", blocked))
        each = ((how, [one.id.rpartition("::")[2] for one in records]) for how, records in ways)
        return [f"{how}: {with_more(names[:MOST_NAMES], len(names))}" for how, names in each if names]


def failures_by_cause(records: Iterable[Outcome]) -> list[Failure]:
    """Return a failure for each cause in the records of one run, in the order of the records."""
    bad = [record for record in records if record.is_bad]
    cases = {case_of(record, record.check): record for record in bad}
    groups: defaultdict[Cause, list[Outcome]] = defaultdict(list)
    for record in bad:
        groups[cause_of(record, cases)].append(record)
    failures = []
    for own in groups.values():
        first = next((one for one in own if spec_mistake_of(one) or one.outcome != "blocked"), own[0])
        failures.append(Failure(first, [one for one in own if one is not first]))
    order = {record.id: number for number, record in enumerate(bad)}
    return sorted(failures, key=lambda failure: order[failure.record.id])


def spec_mistake_of(record: Outcome) -> str:
    """Return the mistake in the spec that makes several checks fail, if the run found one; else an empty string."""
    return str(record.fields.get("cause", ""))


def cause_of(record: Outcome, cases: Mapping[Cause, Outcome], seen: frozenset[Cause] = frozenset()) -> Cause:
    """Return a key of the cause of a failure.

    Errors of an operator with the same reason have the same cause, whatever the check. So have failures by the same
    exception, if the same claim would have to be taken back. A blocked case has the cause of the case that blocks it,
    if that is in `cases`. seen: the blocking cases so far, to stop at a cycle.
    """
    if cause := spec_mistake_of(record):
        return "cause", record.operator, record.device, cause
    if record.outcome == "blocked":
        blocker = case_of(record, str(record.fields.get("blocked_by", "")))
        is_known = blocker in cases and blocker not in seen
        return cause_of(cases[blocker], cases, seen | {blocker}) if is_known else ("blocked", *blocker)
    if record.outcome == "error":
        return "error", record.operator, record.reason
    raised, remedy = record.fields.get("raised"), record.fields.get("remedy")
    if raised and isinstance(remedy, dict):  # supports.backward and dtypes.backward are about the same claim
        return "raised", record.operator, record.device, str(raised), str(remedy.get("key")).rpartition(".")[2]
    return "failed", record.id


def case_of(record: Outcome, check: str) -> Cause:
    """Return the key of the case of a check with the operator, variant, device and dtype of a record."""
    return record.operator, record.variant, record.device, record.dtype, check
