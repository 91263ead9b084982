"""Reads and writes report files: JSON Lines, appended during a run, and readable even if the end is missing."""

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
    """The report file of a run in progress. Each line is written at once, so that it survives a crash.

    If the disk is full, lines are kept and written later: the file may be cut off, but is never corrupt.
    """

    def __init__(self, path: Path) -> None:
        """Create or truncate a file, or open a stream. Raises OSError if it cannot be written."""
        self._path = path
        self._is_stream = is_stream(path)
        self._file = opened(path)
        self._count = 0
        self._waiting = bytearray()
        self._trouble: OSError | None = None

    def append(self, line: Line | Outcome) -> None:
        """Write a line. If that fails, keep it, and write it with the next one."""
        self._waiting += _encoded(line)
        self._count += 1
        self._write()

    def close(self) -> str:
        """Write the lines that were kept. Return an error message if the report is incomplete, else an empty string."""
        self._write()
        try:
            with self._file:
                if not self._is_stream:
                    os.fsync(self._file.fileno())  # some file systems report a full disk only here
                    if not self._path.exists():  # it was removed during the run
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
    """Write a report to a stream, or replace a file. If that fails, raise OSError and leave the file unchanged."""
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
    """Return a line as JSON, with a line end. Raises ValueError for infinities and NaN."""
    data = line.record() if isinstance(line, Outcome) else line.model_dump(mode="json")
    return json.dumps(data, allow_nan=False).encode() + b"\n"


def read(path: Path) -> Report:
    """Return the report in a file. The shards of a run are joined if all of them are present.

    Unknown keys are ignored if the report has a newer minor version. If the last line is cut off, it is left out and
    listed in `unread`. Raises RequestError if the file cannot be read or has any other mistake.
    """
    prefix = f"{shown(path)}: "
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RequestError([f"cannot be read: {error.strerror or error}"], prefix) from None
    return _report(text, prefix)


def read_durations(path: Path) -> Durations:
    """Return the durations of cases from the report of an earlier run. Raises RequestError if it cannot be read.

    Skipped cases are left out, since their durations do not predict those of a run.
    """
    records = (record for record in read(path).records if record.outcome != "skipped")
    return Durations.of((Taken(one.id, one.operator, one.check, one.seconds) for one in records), str(path))


def _report(text: bytes, prefix: str) -> Report:
    """Parse the text of a report. prefix: the beginning of messages, with the file. Raises RequestError."""
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
        run.records = [*{record.id: record for record in run.records}.values()]  # the last record of each case
    return Report(joined(runs), unread)


def _parsed(text: bytes, prefix: str) -> Iterator[tuple[int, Line | Outcome]]:
    """Yield the parsed lines of a file with their numbers. A last line that is cut off becomes an `Unread`."""
    if not text.strip():
        raise RequestError(["is empty"], prefix)
    is_newer = False
    lines = text.rstrip().split(b"\n")
    for number, line in enumerate(lines, 1):
        no_report = f"is not a report of opcheck: line {number}"
        try:
            data = from_json(line, allow_inf_nan=False)
        except ValueError as error:
            if number == 1 or number < len(lines) or not str(error).startswith("EOF "):
                why = str(error).replace(" at line 1 column ", ", at column ")
                raise RequestError([f"{no_report} is not JSON: {why}"], prefix) from None
            yield number, Unread(unread=f"{prefix}line {number} is cut off")
            return
        key = next((key for key in KINDS if key in data), None) if isinstance(data, dict) else None
        if key is None and number == 1:
            raise RequestError([f'has no "schema": it is not a report of opcheck; {RENEW}'], prefix)
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
    """Return the parser of a kind of line. It is created when needed, since that takes milliseconds."""
    return TypeAdapter(KINDS[key])


def _is_newer(version: object, prefix: str) -> bool:
    """Return whether a report has a newer minor version. Raises RequestError if it has another major version."""
    parts = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", str(version))
    if parts is None or not isinstance(version, str):
        raise RequestError([f'"schema" is {version!r}; expected a version such as "{SCHEMA}"'], prefix)
    major, minor = map(int, parts.groups())
    if major != MAJOR:
        remedy = "update opcheck to read it" if major > MAJOR else RENEW
        raise RequestError([f"is of version {version} of the format; expected {MAJOR}.x: {remedy}"], prefix)
    return minor > MINOR


def _first_mistake(error: ValidationError, data: dict[str, Any]) -> str:
    """Return the first mistake in a line, with its key, and the number of further mistakes."""
    first, *others = error.errors()
    case = f" ({json.dumps(data['id'])})" if "id" in data else ""
    what = "unknown key" if first["type"] in ("extra_forbidden", "unexpected_keyword_argument") else first["msg"]
    more = f" (and {len(others)} more mistakes)" if others else ""
    return f"{case}: {': '.join([*map(str, first['loc']), what])}{more}"
