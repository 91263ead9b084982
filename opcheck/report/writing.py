"""Writes reports: a header, then one record a line. Files are replaced at once, streams are written to."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from opcheck.report.model import SCHEMA, Report, plain

BETWEEN, END = b",\n", b"\n]}\n"


def head(runs: Iterable[Mapping[str, Any]], unread: Sequence[str] = ()) -> bytes:
    """Return the text before the first record."""
    schema, lost, listed = json.dumps(SCHEMA).encode(), json.dumps(unread).encode(), BETWEEN.join(map(line, runs))
    more = b'"unread": %s,\n' % lost if unread else b""
    return b'{"schema": %s,\n%s"runs": [\n%s\n],\n"records": [\n' % (schema, more, listed)


def line(part: Mapping[str, Any]) -> bytes:
    """Return a run or a record on one line. Raises ValueError for numbers that JSON does not have."""
    return json.dumps(part, allow_nan=False).encode()


def write(report: Report, path: Path) -> None:
    """Write a whole report. Raises OSError, and leaves the file as it was."""
    records = BETWEEN.join(line(plain(one)) for one in report.records)
    put(path, [head(map(plain, report.runs), report.unread), records, END])


STANDARD = "-"
"""The name of standard output, as of a file."""


def is_stream(path: Path) -> bool:
    """Tell whether a path names what can be written to, but not replaced: a device, a pipe, or a standard stream."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def put(path: Path, parts: Iterable[bytes], mode: int = 0o644) -> None:
    """Write to a stream, or replace the content of a file at once. Raises OSError, and leaves the file as it was."""
    if is_stream(path):
        with _opened(path) as stream:
            stream.writelines(parts)
        return
    path = path.resolve()  # a symbolic link remains one
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _descriptor(path: Path) -> int | None:
    """Return the descriptor of the standard stream that a path names, if it names one.

    A stream that was redirected to a file is that file. By another descriptor, it would be overwritten from its start.
    """
    if str(path) == STANDARD:
        return 1
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(number)):
                return number
    return None


def _opened(path: Path) -> BinaryIO:
    number = _descriptor(path)
    return path.open("wb") if number is None else os.fdopen(os.dup(number), "wb")
