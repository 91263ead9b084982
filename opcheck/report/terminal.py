"""The terminal report of `opcheck run`: progress while it runs, failures, and a summary by family and check."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from opcheck.run.outcome import BAD, KINDS

PERIOD = 0.1
"""Seconds between two looks of the bar on a terminal."""

STYLES = {
    "passed": "green",
    "failed": "bold red",
    "error": "bold red",
    "xpassed": "bold red",
    "inconclusive": "bold yellow",
    "skipped": "yellow",
    "xfailed": "yellow",
}


class TerminalReport:
    """Shows a run on a console. Records are those of `Outcome.record`."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.records: list[Mapping[str, Any]] = []
        self._counts: Counter[str] = Counter()
        self._progress: Progress | None = None
        self._task: Any = None
        self._total = 0
        self._shown_tenth = 0
        self._live = False
        """Whether a terminal shows the bar as it grows."""
        self._shown_at = 0.0

    def start(self, total: int) -> None:
        """Begin with a number of cases."""
        self._total = total
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=40), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[counts]}"),
        )  # fmt: skip
        # Without a refresh thread: pytest redirects the output of tests, and would swallow what a thread prints.
        self._progress = Progress(*columns, console=self.console, auto_refresh=False)
        self._task = self._progress.add_task("cases", total=total, counts="")
        self._live = self.console.is_terminal
        if self._live:
            self._progress.start()

    def add(self, record: Mapping[str, Any]) -> None:
        """Take the record of a finished case."""
        self.records.append(record)
        self._counts[record["outcome"]] += 1
        if record["outcome"] in BAD and self._progress is not None:
            style = STYLES[record["outcome"]]
            line = f"[{style}]{record['outcome']}[/] {escape(record['id'])}: {escape(record['reason'])}"
            self.console.print(line, highlight=False, soft_wrap=True)
        self._advance()

    def _advance(self) -> None:
        if self._progress is None or not self._total:
            return
        done = len(self.records)
        tenth, now = 10 * done // self._total, time.monotonic()
        # Not for each case: most of them take less time than that. A log file gets a bar for each tenth.
        due = now - self._shown_at >= PERIOD or done == self._total if self._live else tenth > self._shown_tenth
        if not due:
            return
        self._shown_tenth, self._shown_at = tenth, now
        counts = self.counts()
        shown = "  ".join(
            f"[{STYLES[kind]}]{counts[kind]} {kind}[/]" for kind in KINDS if counts[kind] and kind != "passed"
        )
        self._progress.update(self._task, completed=done, counts=shown)
        if self._live:
            self._progress.refresh()
        else:
            self.console.print(self._progress.get_renderable())

    def stop(self) -> None:
        """End the progress display."""
        if self._progress is not None and self._live:
            self._progress.refresh()
            self._progress.stop()
        self._progress = None

    def counts(self) -> Counter[str]:
        """Return how many cases had each outcome."""
        return Counter(self._counts)

    @property
    def has_failed(self) -> bool:
        """Whether any case fails the run."""
        return any(record["outcome"] in BAD for record in self.records)

    def failures(self) -> None:
        """Print the messages of failures, one after the other."""
        for record in self.records:
            if record["outcome"] in BAD:
                self.console.rule(f"[{STYLES[record['outcome']]}]{record['outcome']}[/] {escape(record['id'])}")
                self.console.print(escape(record["message"] or record["reason"]), highlight=False, soft_wrap=True)

    def summary(self, seconds: float) -> None:
        """Print a table by family and check, the reasons of skips, and the totals."""
        if self.records:
            self.console.print(_table(self.records))
        for reason, count in _reasons(self.records, "skipped"):
            self.console.print(f"[yellow]skipped[/] {count} cases: {escape(reason)}", highlight=False, soft_wrap=True)
        for reason, count in _reasons(self.records, "xfailed"):
            self.console.print(f"[yellow]xfailed[/] {count} cases: {escape(reason)}", highlight=False, soft_wrap=True)
        for record in self.records:
            for sample, text in record.get("fields", {}).get("warnings", {}).items():
                line = f"[yellow]warning[/] {escape(record['id'])}: sample {escape(sample)}: {escape(text)}"
                self.console.print(line, highlight=False, soft_wrap=True)
        counts = self.counts()
        totals = ", ".join(f"[{STYLES[kind]}]{counts[kind]} {kind}[/]" for kind in KINDS if counts[kind]) or "no cases"
        self.console.print(f"{len(self.records)} cases in {seconds:.1f} s: {totals}", highlight=False)


def _reasons(records: Iterable[Mapping[str, Any]], outcome: str) -> list[tuple[str, int]]:
    return Counter(record["reason"] for record in records if record["outcome"] == outcome).most_common()


MARKS = {
    "passed": "", "failed": "F", "error": "E", "skipped": "s", "xfailed": "x", "xpassed": "X", "inconclusive": "?"
}  # fmt: skip


def _table(records: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table of cases, checks down and families across: how many passed, and with a letter what did not."""
    cells: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for record in records:
        cells[record["family"]][record["check"]][record["outcome"]] += 1
        cells[ALL][record["check"]][record["outcome"]] += 1
    families = sorted(set(cells) - {ALL})
    shown = [*families, ALL] if len(families) > 1 else families
    legend = ", ".join(f"{mark} {kind}" for kind, mark in MARKS.items() if mark)
    table = Table(
        title=f"cases passed by check and family ({legend})", title_justify="left", box=SIMPLE, padding=(0, 1)
    )
    table.add_column("check", no_wrap=True)
    for family in shown:
        table.add_column(family, justify="right", no_wrap=True)
    for check in cells[ALL]:
        table.add_row(check, *(_cell(cells[family][check]) for family in shown))
    return table


ALL = "all"


def _cell(counts: Counter[str]) -> str:
    return " ".join(f"[{STYLES[kind]}]{counts[kind]}{MARKS[kind]}[/]" for kind in KINDS if counts[kind]) or "[dim]-[/]"
