"""Compares two reports, case by case."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from opcheck.report.content import Report
from opcheck.report.labels import by_device, labels, pairs
from opcheck.report.merge import gaps
from opcheck.running.outcome import Outcome
from opcheck.text import counted, printable

KINDS = {
    "newly failing": "did not fail before, or is new",
    "gone": "not there any more",
    "newly skipped": "ran before",
    "failing otherwise": "failed before, but with a different outcome or reason",
    "mended": "failed before, expected or not",
    "newly expected to fail": "the failure is now listed under expect",
    "newly tested": "skipped before",
    "new": "not there before",
    "slower": "by more than the factor",
}
"""The kinds of changes in the order in which they are listed, with what each means."""

REGRESSIONS = ("newly failing", "gone", "newly skipped", "failing otherwise")
"""The kinds that count as regressions. They include cases that no longer run, which may hide failures."""

NOISE = 0.1
"""The minimum increase of the time of a slower case, in seconds."""

MOST = 100
"""The maximum number of changes of a kind that are listed."""


class Change(NamedTuple):
    """A case with a changed outcome, reason or time, or one that only one of the reports has."""

    kind: str
    old: Outcome | None
    new: Outcome | None
    label: str
    """The versions and settings of its run, if there are several runs on its device; else empty."""

    def __str__(self) -> str:
        """Return a line with the case, and its outcomes, reasons or times before and now."""
        one = self.new or self.old
        name = "" if one is None else one.id + (f" ({self.label})" if self.label else "")
        if self.kind == "slower" and self.old and self.new:
            return f"{name}: {self.old.seconds:.2f} s, now {self.new.seconds:.2f} s"
        if self.old and self.new and self.new.is_bad and self.old.outcome == self.new.outcome:
            return f"{name}: {_why(self.old)} -> {_why(self.new)}"
        was, now = (record.outcome if record else "" for record in (self.old, self.new))
        reason = f": {self.new.reason}" if self.new and self.new.reason else ""
        return f"{name}: {' -> '.join(word for word in (was, now) if word)}{reason}"


@dataclass
class Diff:
    """The changes from one report to another."""

    changes: list[Change] = field(default_factory=list)
    compared: int = 0
    """The number of cases in both reports."""
    still_bad: int = 0
    """The number of cases that fail in both reports."""
    left_aside: Counter[str] = field(default_factory=Counter)
    """The number of cases of the old report that the new run did not select, by device."""
    unlike: list[str] = field(default_factory=list)
    """A line for each pair of runs that were compared although their versions or settings differ."""
    gaps: list[str] = field(default_factory=list)
    """The reasons why a report is incomplete."""

    def newly_failing(self) -> list[list[Outcome]]:
        """Return the cases that newly fail or fail for another reason, as a list for each run."""
        runs: defaultdict[str, list[Outcome]] = defaultdict(list)
        for change in self.changes:
            if change.new and change.kind in ("newly failing", "failing otherwise"):
                runs[change.label].append(change.new)
        return list(runs.values())

    def is_regression(self, allowed: Iterable[str] = ()) -> bool:
        """Return whether something may have become worse: there is a regression, or a report is incomplete.

        allowed: kinds of changes that do not count as regressions.
        """
        worse = {*REGRESSIONS} - {*allowed}
        return bool(self.gaps) or any(change.kind in worse for change in self.changes)

    def lines(self) -> Iterator[str]:
        """Yield the lines that describe the changes, with a summary at the end."""
        yield from map(printable, (*self.gaps, *self.unlike))
        counts = Counter(change.kind for change in self.changes)
        for kind in filter(counts.get, KINDS):
            yield f"{kind} ({KINDS[kind]}): {counted(counts[kind], 'case')}"
            changes = [change for change in self.changes if change.kind == kind]
            yield from (f"  {printable(str(change))}" for change in changes[:MOST])
            if counts[kind] > MOST:
                yield f"  ... and {counts[kind] - MOST} more"
        for device, count in self.left_aside.items():
            yield f"not compared: {counted(count, 'case')} on {printable(device)} that this run did not select"
        listed = [f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]] or ["nothing has changed"]
        both = counted(self.compared, "case")
        yield f"{both} in both reports, {self.still_bad} of them still failing: {', '.join(listed)}"


def diff(
    old: Report, new: Report, slower: float | None = None, is_gone: Callable[[Outcome], bool] = lambda record: True
) -> Diff:
    """Compare two reports.

    Cases are matched by id, which includes device and dtype. If a report has several runs on a device, each run is
    compared with the run of the other report that has equal versions and settings, else with one that has roughly equal
    ones, else with the only run that is left: see `labels.pairs`.

    slower: the factor of time above which a case is slower; None: times are not compared. is_gone: returns whether a
    case that only the old report has is gone; otherwise the new run did not select it.
    """
    result = Diff(gaps=[f"the {age} report: {gap}" for age, one in (("old", old), ("new", new)) for gap in gaps(one)])
    left, right = by_device(old), by_device(new)
    for device in dict.fromkeys([*left, *right]):
        olds, news = left.get(device, {}), right.get(device, {})
        names = labels([*olds, *news])
        for one, other in pairs(olds, news):
            if one and other and one != other:
                result.unlike.append(f"{device}: {names[one]} is compared with {names[other]}")
            label = next(names[made] for made in (other, one) if made) if max(len(olds), len(news)) > 1 else ""
            before, after = (olds[one] if one else {}), (news[other] if other else {})
            for name in {**after, **before}:
                was, now = before.get(name), after.get(name)
                if was and now:
                    result.compared += 1
                    result.still_bad += was.is_bad and now.is_bad
                if was and not now and not is_gone(was):
                    result.left_aside[device] += 1
                elif kind := _kind(was, now, slower):
                    result.changes.append(Change(kind, was, now, label))
    order = {kind: place for place, kind in enumerate(KINDS)}
    result.changes.sort(key=lambda change: order[change.kind])
    return result


def _kind(old: Outcome | None, new: Outcome | None, slower: float | None) -> str:
    """Return the kind of change of a case; an empty string if nothing has changed."""
    if new is None:
        return "gone"
    if old is None:
        return "newly failing" if new.is_bad else "new"
    if new.is_bad:
        if not old.is_bad:
            return "newly failing"
        is_same = old.outcome == new.outcome and (new.outcome == "blocked" or _reason(old) == _reason(new))
        return "" if is_same else "failing otherwise"
    if new.outcome == "skipped":
        return "" if old.outcome == "skipped" else "newly skipped"
    if old.outcome == "skipped":
        return "newly tested"
    if new.outcome == "xfailed" and old.outcome != "xfailed":
        return "newly expected to fail"
    if old.is_bad or (old.outcome == "xfailed" and new.outcome == "passed"):
        return "mended"
    is_slower = slower is not None and new.seconds > slower * old.seconds and new.seconds > old.seconds + NOISE
    return "slower" if is_slower else ""


def _why(record: Outcome) -> str:
    """Return why a case failed: its reason, and the findings of the diagnosis that it does not mention."""
    return "; ".join(filter(None, (record.reason, *(own for own in record.findings if own not in record.reason))))


def _reason(record: Outcome) -> str:
    """Return why a case failed, without details that vary from run to run.

    These are addresses, by how much random results differ, and all but one digit of other floats.
    """
    text = re.sub(r"\b0x[0-9a-fA-F]+|(?<=differ by up to )[\w.+-]+", "", _why(record))
    return re.sub(r"\b\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)", lambda number: f"{float(number[0]):.1g}", text)
