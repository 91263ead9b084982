"""The text of a report file: a header, then one record a line."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from opcheck.report.model import SCHEMA, Report, plain

BETWEEN, END = b",\n", b"\n]}\n"


def head(runs: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the text before the first record."""
    listed = BETWEEN.join(map(line, runs))
    return b'{"schema": %s,\n"runs": [\n%s\n],\n"records": [\n' % (json.dumps(SCHEMA).encode(), listed)


def line(part: Mapping[str, Any]) -> bytes:
    """Return a run or a record on one line. Raises ValueError for numbers that JSON does not have."""
    return json.dumps(part, allow_nan=False).encode()


def write(report: Report, path: Path) -> None:
    """Write a whole report in place of a file. Raises OSError, and leaves the file as it was."""
    replace(path, [head(map(plain, report.runs)), BETWEEN.join(line(plain(one)) for one in report.records), END])


def replace(path: Path, parts: Iterable[bytes], mode: int = 0o644) -> None:
    """Replace the content of a file at once. Raises OSError, and leaves the file as it was."""
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
