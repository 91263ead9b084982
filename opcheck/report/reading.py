"""Reads report files: those of this format, of newer minor versions of it, and those that are cut off."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from opcheck.report.model import SCHEMA, Report
from opcheck.spec.files import shown
from opcheck.spec.problems import SpecError
from opcheck.text import printable

MAJOR, MINOR = map(int, SCHEMA.split("."))
RENEW = "run the cases again with --report-json"


class ReportError(SpecError):
    """A report that cannot be read. The message names the file, and says what is wrong and what was expected."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__([])
        self.args = (printable(f"{shown(path)}: {what}", most=10_000),)


def read(path: Path) -> Report:
    """Return the report in a file.

    One of a newer minor version may have keys that are unknown here: they are ignored. One that is cut off has all the
    records that are whole, and says so: `Report.cut_off`. Raises ReportError for anything else that is no report.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ReportError(path, f"cannot be read: {error.strerror or error}") from None
    data, cut_off = _parsed(path, text)
    newer = _is_newer(path, data)
    if cut_off and not all(isinstance(data.get(key), list) for key in ("runs", "records")):
        raise ReportError(path, "is cut off before its first record")
    try:
        report = Report.model_validate(data, extra="ignore" if newer else "forbid")
    except ValidationError as error:
        raise ReportError(path, _told(error, data)) from None
    return report.cut() if cut_off else report


def _parsed(path: Path, text: bytes) -> tuple[dict[str, Any], bool]:
    """Return the data in a file without a record that is not whole, and whether the file is cut off."""
    cut_off = False
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        cut_off = bool(text.strip()) and str(error).startswith("EOF ")
        if not cut_off:
            raise ReportError(path, f"is not JSON: {error}" if text.strip() else "is empty") from None
        data = from_json(text, allow_inf_nan=False, allow_partial=True)
    if isinstance(data, list) and (data == [] or (isinstance(data[0], dict) and "outcome" in data[0])):
        raise ReportError(path, f"is a report without a header, of an earlier opcheck; {RENEW}")
    if not isinstance(data, dict) or "schema" not in data:
        raise ReportError(path, f'has no "schema": it is no report of opcheck; {RENEW}')
    if cut_off and isinstance(data.get("records"), list) and not _ends_between_records(text):
        del data["records"][-1:]
    return data, cut_off


def _ends_between_records(text: bytes) -> bool:
    """Tell whether nothing but the end of the list of records is missing."""
    for end in (b"]}", b"}"):
        with suppress(ValueError):
            from_json(text.rstrip().removesuffix(b",") + end)
            return True
    return False


def _is_newer(path: Path, data: dict[str, Any]) -> bool:
    """Return whether a report is of a newer minor version. Raises ReportError if it is of another major one."""
    found = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", str(data["schema"]))
    if found is None:
        raise ReportError(path, f'"schema" is {data["schema"]!r}; expected a version such as "{SCHEMA}"')
    major, minor = map(int, found.groups())
    if major != MAJOR:
        remedy = "update opcheck to read it" if major > MAJOR else RENEW
        raise ReportError(path, f"is of version {data['schema']} of the format; expected {MAJOR}.x: {remedy}")
    return minor > MINOR


def _told(error: ValidationError, data: dict[str, Any]) -> str:
    """Return the first mistake in a report, with its place."""
    first, *others = error.errors()
    place = [str(part) for part in first["loc"]]
    if first["loc"][:1] == ("records",) and len(first["loc"]) > 1:
        record = data["records"][first["loc"][1]]
        place[0:2] = [f'record {first["loc"][1]} ("{record.get("id", "?") if isinstance(record, dict) else "?"}")']
    what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
    more = f" (and {len(others)} more mistakes)" if others else ""
    return f"is no report of opcheck: {': '.join([*place, what])}{more}"
