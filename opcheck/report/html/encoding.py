"""Encodes a report for the page: each text once, each case as a few numbers. 20,000 cases take about a megabyte."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, PlainSerializer, ValidationError

from opcheck.report.content import Report
from opcheck.report.merge import gaps
from opcheck.running.outcome import KINDS, Outcome
from opcheck.spec.checks import BUILTIN

TEXTS = ("operator", "variant", "check", "device", "dtype", "family", "reason", "file")
"""The properties of a case that are encoded as indices into tables of texts."""

PLACE = "\x00"
"""A placeholder for the id of a case in its rerun command. Without the id, the cases of a file share one command."""

ENTRY = ("output", "leaf", "row", "column", "numerical", "analytical", "wrong", "entries", "name", "leaf_name")
"""Fields about the worst entry. If there is `worst`, they are left out, since it has the same data."""

CLAIMS = {kind.name: kind.claim for kind in BUILTIN}
"""The claim that each built-in check tests, in the order in which checks are planned."""

DIGITS = 12
"""The significant digits of an entry of a Jacobian. The page subtracts entries, so a few digits are not enough."""


def _number(value: float) -> float | int | str:
    """Return a number for JSON, with few characters. Infinities and NaN become text."""
    if not math.isfinite(value):
        return str(value)
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e12 else short


Number = Annotated[float, PlainSerializer(_number)]


class Window(BaseModel):
    """A part of the numerical and the analytical Jacobian: see `opcheck.checks.pictured`."""

    name: str
    output: str = ""
    leaf: str = ""
    rows: int
    columns: int
    first_row: int = 0
    first_column: int = 0
    row_labels: list[str] = []
    column_labels: list[str] = []
    numerical: list[list[Number]]
    analytical: list[list[Number]]
    wrong: list[tuple[int, int]] = []


class Entry(BaseModel):
    """A wrong entry of a Jacobian."""

    output_index: list[int]
    output_part: str
    leaf_index: list[int]
    leaf_part: str
    numerical: Number
    analytical: Number
    name: str
    leaf_name: str

    def shown(self) -> list[Any]:
        """Return the name of the entry, its numerical and its analytical value."""
        above = f"{self.name}{self.output_index}{self.output_part and '.'}{self.output_part}"
        below = f"{self.leaf_name}{self.leaf_index}{self.leaf_part and '.'}{self.leaf_part}"
        return [f"d {above} / d {below}", _number(self.numerical), _number(self.analytical)]


class Diagnosis(BaseModel):
    """The fields of a record about a wrong Jacobian. Other fields are ignored."""

    worst: list[Entry] = []
    jacobians: list[Window] = []


def encoded(report: Report) -> dict[str, Any]:
    """Return a report as plain data for the script of the page.

    `columns` has a list of numbers for each property of the cases; for `TEXTS` and "rerun", they are indices into
    `tables`. `ids` has only the ids that cannot be composed from other properties, and `details` only the cases that
    have details, each by the index of the case.
    """
    tables: dict[str, dict[str, int]] = {name: {} for name in (*TEXTS, "rerun")}
    tables["check"] = {name: place for place, name in enumerate(_checks(report))}
    tables["device"] = {name: place for place, name in enumerate(_devices(report))}
    columns: dict[str, list[int]] = {name: [] for name in (*tables, "outcome", "run", "line", "microseconds")}
    ids: dict[int, str] = {}
    details: dict[int, dict[str, Any]] = {}
    for index, (run, record) in enumerate((run, one) for run, own in enumerate(report.runs) for one in own.records):
        texts = {name: getattr(record, name) for name in TEXTS} | {"rerun": record.rerun.replace(record.id, PLACE)}
        numbers = {name: tables[name].setdefault(text, len(tables[name])) for name, text in texts.items()}
        numbers |= {"outcome": KINDS.index(record.outcome), "run": run, "line": record.line}
        numbers["microseconds"] = round(record.seconds * 1e6)
        for name, number in numbers.items():
            columns[name].append(number)
        if record.id != _usual_id(record):
            ids[index] = record.id
        if own := _details(record):
            details[index] = own
    return {
        "outcomes": KINDS,
        "runs": [{"torch": run.torch, "left_out": [rule.model_dump() for rule in run.left_out]} for run in report.runs],
        "gaps": gaps(report),
        "claims": {name: CLAIMS[name] for name in tables["check"] if name in CLAIMS},
        "tables": {name: list(table) for name, table in tables.items()},
        "columns": columns,
        "ids": ids,
        "details": details,
    }


def _checks(report: Report) -> list[str]:
    """Return the checks of a report in the order in which they are planned. Cases may finish in any order."""
    present = dict.fromkeys(record.check for record in report.records)
    return [*(name for name in CLAIMS if name in present), *(name for name in present if name not in CLAIMS)]


def _devices(report: Report) -> list[str]:
    """Return the devices of a report, in the order of the headers of its runs."""
    named = [device for run in report.runs for device in run.devices]
    return list(dict.fromkeys([*named, *(record.device for record in report.records)]))


def _usual_id(record: Outcome) -> str:
    subject = record.operator + ("" if record.variant == "function" else f"[{record.variant}]")
    return f"{subject}::{record.check}[{record.device}-{record.dtype}]"


def _details(record: Outcome) -> dict[str, Any]:
    """Return the details that only some cases have, such as messages. Checks of plugins may have any fields."""
    fields = dict(record.fields)
    shown: dict[str, Any] = {"message": record.message, "toml": record.toml, "sample": fields.pop("sample", "")}
    try:
        own = Diagnosis.model_validate(fields)
    except ValidationError:
        pass  # the fields are shown unchanged
    else:
        shown["findings"] = record.findings
        shown["worst"] = [one.shown() for one in own.worst]
        shown["jacobians"] = [one.model_dump() for one in own.jacobians]
        known = (*(["diagnosis"] if record.findings else []), *(ENTRY if "worst" in fields else []))
        for name in (*Diagnosis.model_fields, *known):
            fields.pop(name, None)
    return {name: value for name, value in {**shown, "fields": fields}.items() if value}
