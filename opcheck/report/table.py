"""The table at the end of a run: the number of cases by check and family; a letter marks those that did not pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opcheck.report.model import Record
from opcheck.running.outcome import KINDS
from opcheck.text import printable

STYLES = {
    "passed": "green",
    "failed": "bold red",
    "error": "bold red",
    "xpassed": "bold red",
    "inconclusive": "bold yellow",
    "blocked": "bold yellow",
    "skipped": "yellow",
    "xfailed": "yellow",
}

MARKS = {
    "passed": "", "failed": "F", "error": "E", "skipped": "s", "xfailed": "x", "xpassed": "X", "inconclusive": "?",
    "blocked": "B",
}  # fmt: skip

ALL = "all"

Cells = Mapping[str, Mapping[str, Counter[str]]]
"""The number of cases with each outcome, by family and check."""


def tables(records: Iterable[Record], console: Console) -> Iterator[Text | Table]:
    """Yield a heading and the table, one row per check and one column per family, in blocks that fit the console."""
    cells: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    everything: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        cells[record.family][record.check][record.outcome] += 1
        everything[record.check][record.outcome] += 1
    used = [kind for kind in KINDS if MARKS[kind] and any(counts[kind] for counts in everything.values())]
    legend = ", ".join(f"{MARKS[kind]} {kind}" for kind in used)
    yield Text("cases passed by check and family" + (f" ({legend})" if legend else ""))
    total = {ALL: everything}
    families = {name: cells[name] for name in sorted(cells)}
    whole = _table({**families, **(total if len(families) > 1 else {})}, everything)
    if _width(whole, console) <= console.width:
        yield whole
        return
    for block in [*_blocks(families, everything, console), *([total] if len(families) > 1 else [])]:
        yield _table(block, everything)


def _blocks(families: Cells, checks: Iterable[str], console: Console) -> Iterator[Cells]:
    """Yield the families in blocks that fit the console, with at least one per block."""
    block: dict[str, Mapping[str, Counter[str]]] = {}
    for name, column in families.items():
        if block and _width(_table({**block, name: column}, checks), console) > console.width:
            yield block
            block = {}
        block[name] = column
    yield block


def _width(table: Table, console: Console) -> int:
    """Return the width that a table would have on a console of any width."""
    return console.measure(table, options=console.options.update(width=1_000_000)).maximum


def _table(cells: Cells, checks: Iterable[str]) -> Table:
    """Return a table with one column per family. Text that is still too wide is folded, not cut."""
    table = Table(box=SIMPLE, padding=(0, 1))
    table.add_column("check", overflow="fold")
    for family in cells:
        table.add_column(Text(printable(family)), justify="right", overflow="fold")
    for check in checks:
        counts = [column.get(check, Counter()) for column in cells.values()]
        if any(counts):
            table.add_row(Text(printable(check)), *map(_cell, counts))
    return table


def _cell(counts: Counter[str]) -> Text:
    parts = [Text(f"{counts[kind]}{MARKS[kind]}", STYLES[kind]) for kind in KINDS if counts[kind]]
    return Text(" ").join(parts) if parts else Text("-", "dim")
