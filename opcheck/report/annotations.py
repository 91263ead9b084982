"""GitHub annotations: lines of a workflow's log, which GitHub shows as failures at their lines of the spec files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from opcheck.report.causes import failures_by_cause
from opcheck.running.outcome import Outcome
from opcheck.spec.load import BUILTIN
from opcheck.text import printable

MOST = 10
"""The maximum number of annotations of one kind that GitHub shows for a step."""


def github_annotations(runs: Iterable[Iterable[Outcome]], folder: str = "", most: int = MOST) -> Iterator[str]:
    """Yield a line for each cause of failures, and one that counts the causes beyond `most`.

    runs: the records of each run. folder: the path of the project in its repository; empty: the root.
    """
    every = [failure for records in runs for failure in failures_by_cause(records)]
    for failure in every[:most]:
        record, also = failure.record, len(failure.others)
        text = failure.message() + (f"\n\nthe same cause: {also} more" if also else "")
        yield _command("error", _place(record, folder), f"{record.outcome}: {record.id}", text)
    if len(every) > most:
        what = f"{len(every) - most} of {len(every)} failures have no annotation: see the report"
        yield _command("warning", {}, "opcheck", what)


def _place(record: Outcome, folder: str) -> dict[str, str]:
    """Return file, line and column of a record; an empty dictionary if the file is outside the repository."""
    file = PurePosixPath(record.file)
    if not record.file or file.is_absolute() or file.parts[0] in (BUILTIN, ".."):
        return {}
    place = {"file": (PurePosixPath(folder) / file).as_posix()}
    return place | ({"line": str(record.line), "col": str(record.column)} if record.line else {})


def _command(kind: str, place: dict[str, str], title: str, text: str) -> str:
    listed = ",".join(f"{name}={_property(value)}" for name, value in {**place, "title": title}.items())
    return f"::{kind} {listed}::{_data(text)}"


def _data(text: str) -> str:
    """Return text with `%` and line ends escaped, as by GitHub's own toolkit: a line end would end the command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")
