"""The data model of reports: the kinds of lines in a file, and the runs that they form. Source of the JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from opcheck.running.outcome import Outcome

SCHEMA = "2.0"
"""The version of the format. A minor version adds keys; a major version changes existing ones."""


class Line(BaseModel):
    """The base class of lines other than `Outcome`. `store.read` decides if unknown keys are ignored or rejected."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)


class LeftOut(Line):
    """The number of cases that a rule of a device profile, or of the spec of an operator, left out."""

    device: str = Field(description="name of the device in its profile")
    reason: str = Field(description="the rule: deny, allow, devices, or what the device lacks")
    cases: int = Field(ge=0, description="how many cases")


class Header(Line):
    """The first line of a run: its versions, its settings and its selection of cases."""

    schema_version: str = Field(
        SCHEMA, alias="schema", pattern=r"^\d+\.\d+$", description="version of this format, MAJOR.MINOR"
    )
    opcheck: str = Field(description="version of opcheck")
    torch: str = Field(description="version of torch; empty if torch is not installed")
    python: str = Field(description="version of Python")
    platform: str = Field(description="operating system and architecture, such as Linux x86_64")
    devices: list[str] = Field(default=[], description="names of the devices that cases are planned for")
    command: list[str] = Field(default=[], description="the command, word by word")
    selection: dict[str, list[str]] = Field(
        default={}, description="the options that select cases, with their values; a flag has none"
    )
    overrides: dict[str, Any] = Field(
        default={}, description="numbers and settings of derivatives that take precedence over the specs"
    )
    engine: str = Field(description="what computes the derivative evidence")
    seed: int = Field(ge=0, description="seed of the sample values")
    shard: str = Field(
        "", pattern=r"^([1-9]\d*/[1-9]\d*)?$", description="which part of several, as in 3/8; else empty"
    )
    started: str = Field(description="when it began, in UTC, by ISO 8601")


class End(Line):
    """The last line of a run. It is missing if the run crashed or was killed."""

    complete: bool = Field(description="whether every selected case has a line")
    seconds: float | None = Field(None, description="how long the run took")
    cases: int | None = Field(
        None, ge=0, description="how many cases were selected, in all shards of the run together; null if unknown"
    )
    planned: str = Field("", description="digest of the ids of these cases; empty if unknown")
    specs: str = Field("", description="digest of the specs, with their templates; empty if unknown")
    details: dict[str, str] = Field(
        default={}, description="what torch calls a device, such as the model of a GPU, by the name of the device"
    )
    left_out: list[LeftOut] = Field(
        default=[], description="what rules left out of the selection; each shard has what they left out of the whole"
    )


class Unread(Line):
    """A line in place of a file that could not be read when reports were merged."""

    unread: str = Field(description="the file, and why it could not be read")


KINDS: dict[str, type[Line | Outcome]] = {"schema": Header, "id": Outcome, "complete": End, "unread": Unread}
"""The kinds of lines, each by a key that only lines of that kind have."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    lines: TypeAdapter[Any] = TypeAdapter(Header | Outcome | End | Unread)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a line of a report",
    } | lines.json_schema()


class Run(Header, End):
    """A run: its header, its records, and its end. `seconds` is None if there is no end line."""

    complete: bool = False
    records: list[Outcome] = []


@dataclass
class Report:
    """A report of opcheck: one run, or several that were merged."""

    runs: list[Run]
    unread: list[str] = field(default_factory=list)
    """The files, or parts of files, that could not be read, with the reasons."""

    @property
    def records(self) -> list[Outcome]:
        """The records of all runs."""
        return [record for run in self.runs for record in run.records]
