"""A report as Markdown, for the summary of a step in CI."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from opcheck.report.columns import Columns
from opcheck.report.folding import Failure, folded_by_run
from opcheck.report.lacks import lacks
from opcheck.report.model import Record, Report, plain
from opcheck.report.wide import listed
from opcheck.run.outcome import KINDS
from opcheck.text import n_cases, printable, shortened

MOST = 50
"""The most rows of a table or entries of a list. The rest is counted."""

WHOLE = 10
"""The most failures that are shown with their message: a step summary holds 1 MiB."""

LONGEST = 4000
"""The most characters of a message."""


def markdown(report: Report) -> str:
    """Return a report as Markdown.

    It has the counts by device and version, failures with their reasons, expectations that are met no more, cases whose
    outcome differs between versions, and what was not run.
    """
    columns, records = Columns(report), report.records
    parts = [
        _title(records), _incomplete(report), _counts(records, columns), _failures(records, columns),
        _mended(records, columns), _differences(records, columns), _wide(records), _not_run(report, columns),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(records: Sequence[Record]) -> str:
    bad = sum(record.is_bad for record in records)
    return (
        f"# opcheck: {bad} of {n_cases(len(records))} failed"
        if bad
        else f"# opcheck: {n_cases(len(records))}, none failed"
    )


def _incomplete(report: Report) -> str:
    found = [f"- {_text(line)}" for line in lacks(report)]
    return _listed("This report is incomplete", found) if found else ""


def _counts(records: Iterable[Record], columns: Columns) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        counts[columns.of(record)][record.outcome] += 1
    used = [kind for kind in KINDS if any(count[kind] for count in counts.values())]
    rows = [[_text(name), *(str(count[kind] or "") for kind in used)] for name, count in counts.items()]
    return _table(["run", *used], rows) if rows else ""


def _failures(records: Iterable[Record], columns: Columns) -> str:
    failures = folded_by_run(plain(one) for one in records if one.is_bad and one.outcome != "xpassed")
    lines = [_failure(failed, columns, whole=place < WHOLE) for place, failed in enumerate(failures)]
    return _listed("Failures", lines) if lines else ""


def _failure(failed: Failure, columns: Columns, whole: bool) -> str:
    record = Record.model_validate(failed.record)
    where = f" at {_code(f'{record.file}:{record.line}')}" if record.file else ""
    run = _text(columns.of(record))
    lines = [f"- {_code(record.id)} {record.outcome}{where} ({run}): {_text(record.reason)}"]
    lines += [f"  {_text(line)}" for line in failed.followers()]
    if whole and record.message:
        fenced = _fenced(printable(shortened(record.message, LONGEST, LONGEST // 4), lines=True, most=None))
        block = f"<details><summary>message</summary>\n\n{fenced}\n\n</details>"
        lines += ["", *(f"  {line}" for line in block.splitlines()), ""]
    return "\n".join(lines)


def _mended(records: Iterable[Record], columns: Columns) -> str:
    found = [record for record in records if record.outcome == "xpassed"]
    lines = [f"- {_code(record.id)} ({_text(columns.of(record))}): {_text(record.reason)}" for record in found]
    return _listed("Mended since: expected to fail, but holds", lines) if lines else ""


def _wide(records: Iterable[Record]) -> str:
    lines = [f"- {_text(line)}" for line in listed(map(plain, records))]
    return _listed("Held to wider tolerances than the defaults", lines) if lines else ""


def _differences(records: Iterable[Record], columns: Columns) -> str:
    """Return a table for each device of the cases that have another outcome in one run than in another."""
    names: dict[str, dict[str, None]] = defaultdict(dict)
    cases: dict[str, dict[str, dict[str, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        names[record.device][columns.of(record)] = None
        cases[record.device][record.id][columns.of(record)] = record
    parts = [_differing(own, [*names[device]]) for device, own in cases.items() if len(names[device]) > 1]
    found = "\n\n".join(part for part in parts if part)
    return f"## Where runs differ\n\n{found}" if found else ""


def _differing(cases: Mapping[str, Mapping[str, Record]], names: Sequence[str]) -> str:
    rows, alone = [], 0
    for name, own in cases.items():
        alone += len(own) < len(names)
        if len({record.outcome for record in own.values()}) > 1:
            rows.append([_code(name), *(own[run].outcome if run in own else "" for run in names)])
    table = _table(["case", *map(_text, names)], rows) if rows else ""
    apart = f"{n_cases(alone)} not in all of {', '.join(map(_text, names))}" if alone else ""
    return "\n\n".join(part for part in (table, apart) if part)


def _not_run(report: Report, columns: Columns) -> str:
    lines = []
    for outcome, title in (("skipped", "skipped"), ("xfailed", "expected to fail")):
        reasons = Counter((columns.of(one), one.reason) for one in report.records if one.outcome == outcome)
        lines += [
            f"- {n_cases(count)} {title} ({_text(run)}): {_text(why)}" for (run, why), count in reasons.most_common()
        ]
    for run in report.runs:
        lines += [
            f"- {n_cases(row.cases)} left out on {_text(row.device)} (torch {_text(run.torch)}): {_text(row.reason)}"
            for row in run.left_out
        ]
    return _listed("What was not run, or was expected to fail", lines) if lines else ""


def _listed(title: str, lines: Sequence[str]) -> str:
    more = [f"- ... and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return "\n".join([f"## {title}", "", *lines[:MOST], *more])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows[:MOST])]
    more = f"\n\n... and {len(rows) - MOST} more" if len(rows) > MOST else ""
    return "\n".join(lines) + more


def _text(text: str) -> str:
    """Return text that Markdown shows literally, on one line."""
    line = re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(printable(text).split()))
    return line.replace("&", "&amp;")


def _code(text: str) -> str:
    """Return text as code. A bar would end the cell of a table, even there."""
    line = " ".join(printable(text).split()).replace("|", "\\|")
    fence = "`" * (_longest(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _fenced(text: str) -> str:
    fence = "`" * max(_longest(text) + 1, 3)
    return f"{fence}text\n{text}\n{fence}"


def _longest(text: str) -> int:
    """Return the length of the longest row of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
