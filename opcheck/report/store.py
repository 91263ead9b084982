"""The file of a report: JSON Lines, appended while a run goes on, and read back, even if the end is missing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from opcheck.planning.shards import Durations, Taken
from opcheck.report.content import KINDS, SCHEMA, End, Header, Line, Report, Run, Unread
from opcheck.report.files import is_stream, opened, replace
from opcheck.report.merge import joined
from opcheck.running.outcome import Outcome
from opcheck.spec.document import shown
from opcheck.spec.problems import RequestError

MAJOR, MINOR = map(int, SCHEMA.split("."))
RENEW = "run the cases again with --report-json"


class ReportFile:
    """The file of a run that goes on: a line once it is known, whatever becomes of the process afterwards.

    Lines that find no room on the disk are kept and written later: the file may be cut off, but is never corrupt.
    """

    def __init__(self, path: Path) -> None:
        """Begin an empty file, or open a stream. Raises OSError if it cannot be written."""
        self._path = path
        self._is_stream = is_stream(path)
        self._file = opened(path)
        self._count = 0
        self._waiting = bytearray()
        self._trouble: OSError | None = None

    def append(self, line: Line | Outcome) -> None:
        """Write a line, if possible."""
        self._waiting += _encoded(line)
        self._count += 1
        self._write()

    def close(self) -> str:
        """Write what is waiting. Return what is wrong with the report; an empty string if nothing is."""
        self._write()
        try:
            with self._file:
                if not self._is_stream:
                    os.fsync(self._file.fileno())  # some file systems report only now that they are full
                    if not self._path.exists():  # somebody has removed it
                        self._file.seek(0)
                        replace(self._path, [self._file.read()])
        except OSError as error:
            self._trouble = error
        if self._trouble is None:
            return ""
        missing = self._waiting.count(b"\n")
        count = f"{missing} of {self._count} lines are missing: " if missing else ""
        return f"the report {self._path} is incomplete: {count}{self._trouble.strerror or self._trouble}"

    def _write(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._file.fileno(), self._waiting)]
            self._trouble = None
        except OSError as error:
            self._trouble = error


def write(report: Report, path: Path) -> None:
    """Write a whole report to a stream, or in place of a file. Raises OSError, and leaves the file as it was."""
    replace(path, map(_encoded, _lines(report)))


def _lines(report: Report) -> Iterator[Line | Outcome]:
    for run in report.runs:
        yield _part(run, Header)
        yield from run.records
        if run.seconds is not None:
            yield _part(run, End)
    yield from (Unread(unread=what) for what in report.unread)


def _part(run: Run, kind: type[Header | End]) -> Line:
    return kind.model_construct(**{name: getattr(run, name) for name in kind.model_fields})


def _encoded(line: Line | Outcome) -> bytes:
    """Return the text of a line. Raises ValueError for numbers that JSON does not have."""
    data = line.record() if isinstance(line, Outcome) else line.model_dump(mode="json")
    return json.dumps(data, allow_nan=False).encode() + b"\n"


def read(path: Path) -> Report:
    """Return the report in a file. The shards of a run are one run if all of them are there.

    One of a newer minor version may have keys that are unknown here: they are ignored. If the last line is cut off, the
    report has the others, and says so. Raises RequestError for anything else that is no report.
    """
    prefix = f"{shown(path)}: "
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RequestError([f"cannot be read: {error.strerror or error}"], prefix) from None
    return _report(text, prefix)


def read_durations(path: Path) -> Durations:
    """Return how long cases have taken, by the report of an earlier run. Raises RequestError if it cannot be read.

    A skipped case has taken no time, and says nothing of what it would take.
    """
    records = (record for record in read(path).records if record.outcome != "skipped")
    return Durations.of((Taken(one.id, one.operator, one.check, one.seconds) for one in records), str(path))


def _report(text: bytes, prefix: str) -> Report:
    """Return the report that a text is. prefix: names its file in messages. Raises RequestError."""
    runs: list[Run] = []
    unread = []
    for number, line in _parsed(text, prefix):
        if isinstance(line, Header):
            runs.append(Run.model_construct(**dict(line), records=[]))
        elif isinstance(line, Unread):
            unread.append(line.unread)
        elif not runs or runs[-1].seconds is not None:
            raise RequestError([f'line {number} belongs to no run; expected a header before it, with "schema"'], prefix)
        elif isinstance(line, Outcome):
            runs[-1].records.append(line)
        else:
            runs[-1] = runs[-1].model_copy(update=dict(line))
    for run in runs:
        run.records = [*{record.id: record for record in run.records}.values()]  # the last one of each case
    return Report(joined(runs), unread)


def _parsed(text: bytes, prefix: str) -> Iterator[tuple[int, Line | Outcome]]:
    """Yield the lines of a file with their numbers. One that is cut off at the end counts as a file that is unread."""
    if not text.strip():
        raise RequestError(["is empty"], prefix)
    is_newer = False
    lines = text.rstrip().split(b"\n")
    for number, line in enumerate(lines, 1):
        no_report = f"is no report of opcheck: line {number}"
        try:
            data = from_json(line, allow_inf_nan=False)
        except ValueError as error:
            if number == 1 and (old := re.match(rb'\s*\{\s*"schema": *"(\d+\.\d+)"', text)):
                _is_newer(old[1].decode(), prefix)  # it was one JSON document
            if number == 1 or number < len(lines) or not str(error).startswith("EOF "):
                why = str(error).replace(" at line 1 column ", ", at column ")
                raise RequestError([f"{no_report} is not JSON: {why}"], prefix) from None
            yield number, Unread(unread=f"{prefix}line {number} is cut off")
            return
        key = next((key for key in KINDS if key in data), None) if isinstance(data, dict) else None
        if key is None and number == 1:
            raise RequestError([f'has no "schema": it is no report of opcheck; {RENEW}'], prefix)
        if key is None:
            raise RequestError([f"{no_report} is neither a case nor the end of a run"], prefix)
        if key == "schema":
            is_newer = _is_newer(data["schema"], prefix)
        try:
            yield number, _adapter(key).validate_python(data, extra="ignore" if is_newer else "forbid")
        except ValidationError as error:
            raise RequestError([f"{no_report}{_first_mistake(error, data)}"], prefix) from None


@cache
def _adapter(key: str) -> TypeAdapter[Line | Outcome]:
    """Return what reads a kind of line. It takes milliseconds to make, which a run that only writes need not spend."""
    return TypeAdapter(KINDS[key])


def _is_newer(version: object, prefix: str) -> bool:
    """Return whether a report is of a newer minor version. Raises RequestError if it is of another major one."""
    parts = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", str(version))
    if parts is None or not isinstance(version, str):
        raise RequestError([f'"schema" is {version!r}; expected a version such as "{SCHEMA}"'], prefix)
    major, minor = map(int, parts.groups())
    if major != MAJOR:
        remedy = "update opcheck to read it" if major > MAJOR else RENEW
        raise RequestError([f"is of version {version} of the format; expected {MAJOR}.x: {remedy}"], prefix)
    return minor > MINOR


def _first_mistake(error: ValidationError, data: dict[str, Any]) -> str:
    """Return the first mistake in a line, with its place."""
    first, *others = error.errors()
    case = f" ({json.dumps(data['id'])})" if "id" in data else ""
    what = "unknown key" if first["type"] in ("extra_forbidden", "unexpected_keyword_argument") else first["msg"]
    more = f" (and {len(others)} more mistakes)" if others else ""
    return f"{case}: {': '.join([*map(str, first['loc']), what])}{more}"
