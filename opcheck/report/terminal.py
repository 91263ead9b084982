"""The terminal report of `opcheck run`: progress, failures, and a summary by family and check."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from opcheck.report.causes import Cause, case_of, cause_of, failures_by_cause, spec_mistake_of
from opcheck.report.remarks import note_lines
from opcheck.running.outcome import KINDS, Outcome
from opcheck.text import counted, printable

STYLES = {
    "passed": "green", "failed": "bold red", "error": "bold red", "skipped": "yellow", "xfailed": "yellow",
    "xpassed": "bold red", "inconclusive": "bold yellow", "blocked": "bold yellow",
}  # fmt: skip

MARKS = {
    "passed": "", "failed": "F", "error": "E", "skipped": "s", "xfailed": "x", "xpassed": "X", "inconclusive": "?",
    "blocked": "B",
}  # fmt: skip

PERIOD = 0.1
"""Seconds between two updates of the progress bar on a terminal."""
PERIOD_OF_LINES = 10.0
"""Seconds between two lines of progress where there is no terminal, as in a log file."""

BAR = 20
"""The width of the progress bar. It leaves room for the counts on a terminal with 80 columns."""

BEHIND = tuple(kind for kind in KINDS if kind != "passed")
"""The outcomes that are counted after the bar."""


class TerminalReport:
    """Shows a run on a console."""

    def __init__(self, console: Console, tells_failures: bool = True) -> None:
        """Create a report. tells_failures: whether to print a line for each cause of failures at once."""
        self.console = console
        self._tells_failures = tells_failures
        self.total = 0
        """The number of cases to run; 0 until it is known."""
        self.records: list[Outcome] = []
        self._counts: Counter[str] = Counter()
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=BAR), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[counts]}"),
        )  # fmt: skip
        # No refresh thread: pytest captures the output of tests, and would capture what the thread prints.
        self._progress = Progress(*columns, console=console, auto_refresh=False)
        self._shown_at = 0.0
        self._bad: dict[Cause, Outcome] = {}
        """The failures so far, by `case_of`."""
        self._causes: set[Cause] = set()
        """The causes that have been printed already."""

    def start(self, total: int) -> None:
        """Start a run of `total` cases."""
        self.total = total
        self._progress.add_task("cases", total=total, counts="")
        self._shown_at = 0.0 if self.console.is_terminal else time.monotonic()
        if self.console.is_terminal:
            self._progress.start()

    def add(self, record: Outcome) -> None:
        """Add the record of a finished case."""
        self.records.append(record)
        self._counts[record.outcome] += 1
        if record.is_bad and self.total and self._tells_failures:
            self._bad[case_of(record, record.check)] = record
            cause = cause_of(record, self._bad)
            if cause not in self._causes:
                text = spec_mistake_of(record) or record.headline
                self._line(record.outcome, f"{printable(record.id)}: {printable(text)}")
            self._causes.add(cause)
        self._advance()

    def _advance(self) -> None:
        if not self.total:
            return
        done, (task,) = len(self.records), self._progress.tasks
        is_live, now = self.console.is_terminal, time.monotonic()
        # Most cases are faster than an update, so not after every case. In a log, the summary follows the last case.
        waited = now - self._shown_at >= (PERIOD if is_live else PERIOD_OF_LINES)
        if not waited and not (is_live and done == task.total):
            return
        self._shown_at = now
        shown = _listed(self._counts, "  ", lambda kind: f" {kind}")
        room = self.console.width - BAR - len(f"cases    {task.total}/{task.total}  0:00:00 ")
        if shown.cell_len > room:
            shown = _listed(self._counts, " ", MARKS.__getitem__)
        self._progress.update(task.id, completed=done, counts=shown.markup)
        if is_live:
            self._progress.refresh()
        else:
            self.console.print(self._progress.get_renderable())

    def stop(self) -> None:
        """End the progress display."""
        if self.total and self.console.is_terminal:
            self._progress.refresh()
            self._progress.stop()

    @property
    def has_failed(self) -> bool:
        """Whether any case failed the run."""
        return any(record.is_bad for record in self.records)

    def failures(self, among: Collection[str] | None = None) -> None:
        """Print the message of one failure for each cause. among: the ids of the cases to print; None: all."""
        for failure in failures_by_cause(one for one in self.records if among is None or one.id in among):
            record, cause = failure.record, spec_mistake_of(failure.record)
            if cause:
                self._line("failed", printable(cause, most=None))
                self._line("", printable("; ".join(failure.followers())))
                continue
            self._heading(record.outcome, printable(record.id))
            self._line("", printable(record.message or record.reason, lines=True, most=None))
            for line in failure.followers():
                self._line("", printable(line))

    def summary(self, seconds: float, troubles: Sequence[str] = (), left_out: Sequence[str] = ()) -> None:
        """Print the tables, the reasons of skips, `left_out`, notes, the failures, the totals and `troubles`.

        The failures are near the end since a log is read from there. A large library has hundreds of notes.
        """
        if self.records:
            for part in _tables(self.records, self.console):
                self.console.print(part, soft_wrap=isinstance(part, Text))
        for outcome in ("skipped", "xfailed"):
            reasons = Counter(record.reason for record in self.records if record.outcome == outcome)
            for reason, count in reasons.most_common():
                self._line(outcome, f"{counted(count, 'case')}: {printable(reason)}")
        self.lines(map(printable, left_out))
        derived = Counter[str]()
        for record in self.records:
            derived.update(record.fields.get("derived", {}))
        if derived:
            each = ", ".join(f"{count:,} {what}" for what, count in derived.most_common())
            self._line("", f"{counted(derived.total(), 'derived sample')}: {each}")
        self.lines(f"note {printable(line)}" for line in note_lines(self.records))
        self.failures()
        self.totals(seconds, troubles)

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines as they are."""
        for line in lines:
            self._line("", line)

    def totals(self, seconds: float, troubles: Sequence[str] = ()) -> None:
        """Print the number of cases with each outcome, and the problems of other report files."""
        totals = _listed(self._counts, ", ", lambda kind: f" {kind}", KINDS) or Text("no cases")
        seed = max((record.seed for record in self.records), default=0)
        begin = f"{counted(len(self.records), 'case')} in {seconds:.1f} s" + (f" with seed {seed}" if seed else "")
        self.console.print(Text(f"{begin}: ") + totals, soft_wrap=True)
        for trouble in troubles:
            self._line("error", printable(trouble))

    def _line(self, word: str, text: str) -> None:
        """Print text without wrapping it, after a word in the color of the outcome."""
        begin = Text(f"{word} ", STYLES.get(word, "yellow")) if word else Text()
        self.console.print(begin + Text(text), soft_wrap=True)

    def _heading(self, outcome: str, name: str) -> None:
        title = Text(f"{outcome} ", STYLES[outcome]) + Text(name)
        if title.cell_len + 4 <= self.console.width:
            self.console.rule(title)
        else:
            self.console.rule()
            self._line(outcome, name)


def _listed(counts: Counter[str], between: str, mark: Callable[[str], str], kinds: Iterable[str] = BEHIND) -> Text:
    """Return the number of cases with each outcome, in colors."""
    parts = [Text(f"{counts[kind]}{mark(kind)}", STYLES[kind]) for kind in kinds if counts[kind]]
    return Text(between).join(parts)


Cells = Mapping[str, Mapping[str, Counter[str]]]
"""The number of cases with each outcome, by family and check."""


def _tables(records: Iterable[Outcome], console: Console) -> Iterator[Text | Table]:
    """Yield a heading, and tables that fit the console: one row for each check, one column for each family."""
    cells: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    every: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        cells[record.family][record.check][record.outcome] += 1
        every[record.check][record.outcome] += 1
    used = [kind for kind in KINDS if MARKS[kind] and any(counts[kind] for counts in every.values())]
    legend = ", ".join(f"{MARKS[kind]} {kind}" for kind in used)
    yield Text("cases passed by check and family" + (f" ({legend})" if legend else ""))
    families = {name: cells[name] for name in sorted(cells)}
    yield from _blocks({**families, "all": every} if len(families) > 1 else families, list(every), console)


def _blocks(cells: Cells, checks: Sequence[str], console: Console) -> Iterator[Table]:
    """Yield one table, or those of its halves if it does not fit the console. A single column is folded instead."""
    table = Table(box=SIMPLE, padding=(0, 1))
    table.add_column("check", overflow="fold")
    for family in cells:
        table.add_column(Text(printable(family)), justify="right", overflow="fold")
    for check in checks:
        counts = [column.get(check, Counter()) for column in cells.values()]
        if any(counts):
            shown = (_listed(one, " ", MARKS.__getitem__, KINDS) or Text("-", "dim") for one in counts)
            table.add_row(Text(printable(check)), *shown)
    width = console.measure(table, options=console.options.update(width=1_000_000)).maximum
    if len(cells) == 1 or width <= console.width:
        yield table
        return
    columns, half = list(cells.items()), len(cells) // 2
    yield from _blocks(dict(columns[:half]), checks, console)
    yield from _blocks(dict(columns[half:]), checks, console)
