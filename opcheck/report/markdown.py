"""A report as Markdown, for the summary of a step in CI."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opcheck.report.causes import Failure, failures_by_cause
from opcheck.report.content import Report, Run
from opcheck.report.labels import by_device, columns, labels
from opcheck.report.merge import gaps
from opcheck.report.remarks import wide_lines
from opcheck.running.outcome import KINDS, Outcome
from opcheck.text import counted, printable

MOST = 50
"""The maximum number of rows of a table or entries of a list. The rest is only counted."""

WHOLE = 10
"""The maximum number of failures with their message: GitHub limits the summary of a step to 1 MiB."""

Cases = Sequence[tuple[str, Outcome]]
"""The records of a report, each with the name of its column."""


def rendered(report: Report) -> str:
    """Return a report as Markdown.

    It lists missing parts, counts by device and version, failures with their reasons, expected failures that now
    pass, cases whose outcome differs between runs, operators with wider tolerances, and cases that were not run.
    """
    named = [*zip(report.runs, columns(report), strict=True)]
    cases = [(names[record.device], record) for run, names in named for record in run.records]
    bad, all_cases = sum(record.is_bad for record in report.records), counted(len(cases), "case")
    mended = [
        f"{_code(record.id)} ({_text(column)}): {_text(record.reason)}"
        for column, record in cases
        if record.outcome == "xpassed"
    ]
    differences = [*_differences(report)]
    parts = [
        f"# opcheck: {bad} of {all_cases} failed" if bad else f"# opcheck: {all_cases}, none failed",
        _listed("This report is incomplete", map(_text, gaps(report))),
        _counts(cases),
        _listed("Failures", _failures(named)),
        _listed("Expected to fail, but passed: remove the expectation", mended),
        "\n\n".join(["## Where runs differ", *differences]) if differences else "",
        _listed("Held to wider tolerances than the defaults", map(_text, wide_lines(report.records))),
        _listed("What was not run, or was expected to fail", _not_run(report, cases)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _counts(cases: Cases) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for column, record in cases:
        counts[column][record.outcome] += 1
    used = [kind for kind in KINDS if any(count[kind] for count in counts.values())]
    rows = [[_text(name), *(str(count[kind] or "") for kind in used)] for name, count in counts.items()]
    return _table(["run", *used], rows) if rows else ""


def _failures(named: Iterable[tuple[Run, Mapping[str, str]]]) -> Iterator[str]:
    count = 0
    for run, names in named:
        for failure in failures_by_cause(one for one in run.records if one.outcome != "xpassed"):
            yield _failure(failure, names[failure.record.device], whole=count < WHOLE)
            count += 1


def _failure(failure: Failure, column: str, whole: bool) -> str:
    record = failure.record
    where = f" at {_code(f'{record.file}:{record.line}')}" if record.file else ""
    lines = [f"{_code(record.id)} {record.outcome}{where} ({_text(column)}): {_text(record.headline)}"]
    lines += [f"  {_text(line)}" for line in failure.followers()]
    if whole and record.message:
        block = f"<details><summary>message</summary>\n\n{_fenced(failure.message())}\n\n</details>"
        lines += ["", *(f"  {line}" for line in block.splitlines()), ""]
    return "\n".join(lines)


def _differences(report: Report) -> Iterator[str]:
    """Yield for each device a table of the cases whose outcome differs between runs, and a count of partial cases.

    A partial case is one that some of the runs on the device do not have.
    """
    for device, runs in by_device(report).items():
        names = [_text(f"{device}, {label}") for label in labels(runs).values()]
        rows, alone = [], 0
        for case in dict.fromkeys(case for own in runs.values() for case in own):
            outcomes = [own[case].outcome if case in own else "" for own in runs.values()]
            alone += "" in outcomes
            if len({*outcomes} - {""}) > 1:
                rows.append([_code(case), *outcomes])
        if rows:
            yield _table(["case", *names], rows)
        if alone:
            yield f"{counted(alone, 'case')} not in all of {', '.join(names)}"


def _not_run(report: Report, cases: Cases) -> Iterator[str]:
    for outcome, title in (("skipped", "skipped"), ("xfailed", "expected to fail")):
        reasons = Counter((column, one.reason) for column, one in cases if one.outcome == outcome)
        for (column, why), count in reasons.most_common():
            yield f"{counted(count, 'case')} {title} ({_text(column)}): {_text(why)}"
    for run in report.runs:
        for row in run.left_out:
            where = f"{_text(row.device)} (torch {_text(run.torch)})"
            yield f"{counted(row.cases, 'case')} left out on {where}: {_text(row.reason)}"


def _listed(title: str, entries: Iterable[str]) -> str:
    """Return a list below a heading; an empty string if there are no entries."""
    lines = [f"- {entry}" for entry in entries]
    more = [f"- ... and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return "\n".join([f"## {title}", "", *lines[:MOST], *more]) if lines else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows[:MOST])]
    more = f"\n\n... and {len(rows) - MOST} more" if len(rows) > MOST else ""
    return "\n".join(lines) + more


def _text(text: str) -> str:
    """Return text that Markdown shows literally, on one line."""
    line = re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(printable(text).split()))
    return line.replace("&", "&amp;")


def _code(text: str) -> str:
    """Return text as inline code. Bars are escaped: they would end a cell of a table, even inside code."""
    line = " ".join(printable(text).split()).replace("|", "\\|")
    fence = "`" * (_longest(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _fenced(text: str) -> str:
    fence = "`" * max(_longest(text) + 1, 3)
    return f"{fence}text\n{text}\n{fence}"


def _longest(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
