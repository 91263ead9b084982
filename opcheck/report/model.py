"""The report file: what `--report-json` writes and `opcheck report` reads. The models make the JSON Schema, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from typing_extensions import Self

from opcheck.run.outcome import BAD, OutcomeKind

SCHEMA = "1.1"
"""The version of the format. A minor version adds keys; a major one changes what was there."""

NAME = "name of the device in its profile"


class Part(BaseModel):
    """A part of a report. Unknown keys are kept out, or refused: `reading.read` says which."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)


class Device(Part):
    """A device that a run is about."""

    name: str = Field(description=NAME)
    details: str = Field("", description="what torch calls it, such as the model of a GPU; empty for a CPU")


class LeftOut(Part):
    """Cases that a rule of a device profile, or the spec of an operator, left out."""

    device: str = Field(description=NAME)
    reason: str = Field(description="the rule: deny, allow, devices, or what the device lacks")
    cases: int = Field(ge=0, description="how many cases")


class Run(Part):
    """One run: what it ran with, what was selected, and whether it came to its end."""

    opcheck: str = Field(description="version of opcheck")
    torch: str = Field(description="version of torch; empty if torch is not installed")
    python: str = Field(description="version of Python")
    platform: str = Field(description="operating system and architecture, such as Linux x86_64")
    devices: list[Device] = Field(default=[], description="the devices that cases were planned for")
    command: list[str] = Field(default=[], description="the command, word by word")
    selection: dict[str, list[str]] = Field(
        default={}, description="the options that selected cases, with their values; a flag has none"
    )
    overrides: dict[str, Any] = Field(
        default={}, description="numbers and settings of derivatives that took precedence over the specs"
    )
    engine: str = Field(description="what computed the derivative evidence")
    seed: int = Field(ge=0, description="seed of the sample values")
    shard: str = Field(
        "", pattern=r"^([1-9]\d*/[1-9]\d*)?$", description="which part of several, as in 3/8; else empty"
    )
    started: str = Field(description="when it began, in UTC, by ISO 8601")
    seconds: float | None = Field(None, description="how long it took; null if it did not come to its end")
    cases: int | None = Field(
        None, ge=0, description="how many cases were selected, in all shards of the run together; null if unknown"
    )
    planned: str = Field("", description="digest of the ids of these cases; empty if unknown")
    specs: str = Field("", description="digest of the specs, with their templates; empty if unknown")
    complete: bool = Field(description="whether every selected case has a record")
    left_out: list[LeftOut] = Field(
        default=[], description="what rules left out of the selection; each shard has what they left out of the whole"
    )


class Record(Part):
    """The outcome of one case."""

    id: str = Field(description="id of the case, such as torch.sin::backward[cpu-float64]")
    operator: str = Field(description="id of the operator")
    variant: str = Field(description="function, method or inplace")
    check: str = Field(description="name of the check")
    device: str = Field(description=NAME)
    dtype: str = Field(description="name of the dtype")
    family: str = Field(description="what the operator is grouped with: the folder of its spec, or the file")
    outcome: OutcomeKind = Field(description="failed, error, xpassed, inconclusive and blocked fail a run")
    reason: str = Field("", description="one line: why it failed, was skipped, or was expected to fail")
    seconds: float = Field(0.0, description="how long it took")
    message: str = Field("", description="all that helps to fix a failure, in several lines")
    fields: dict[str, Any] = Field(default={}, description="the diagnosis as data")
    seed: int = Field(0, description="seed of the sample values")
    run: int = Field(0, ge=0, description="index of its run in runs")
    file: str = Field("", description="its spec, relative to the root of the project; builtin/... for a shipped one")
    line: int = Field(0, ge=0, description="line of the sample that failed, else of the operator; 0 if unknown")
    column: int = Field(0, ge=0, description="column of the same; 0 if unknown")
    rerun: str = Field("", description="the command that runs this case alone")
    toml: str = Field("", description="the sample that failed, as TOML; empty if the case is not bad")

    @property
    def is_bad(self) -> bool:
        """Whether it fails its run."""
        return self.outcome in BAD


class Report(Part):
    """A report of opcheck: one run, or several that were merged."""

    schema_version: str = Field(
        SCHEMA, alias="schema", pattern=r"^\d+\.\d+$", description="version of this format, MAJOR.MINOR"
    )
    unread: list[str] = Field(
        default=[], description="why a file could not be read that was to be merged, one line each"
    )
    runs: list[Run] = Field(description="the runs that the records come from")
    records: list[Record] = Field(description="one for each case of each run")
    _cut_off: bool = PrivateAttr(default=False)

    @property
    def cut_off(self) -> bool:
        """Whether the end of the file was missing when it was read."""
        return self._cut_off

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        seen: set[tuple[int, str]] = set()
        for record in self.records:
            if record.run >= len(self.runs):
                raise ValueError(f'the record of "{record.id}" is of run {record.run}, but there are {len(self.runs)}')
            if (record.run, record.id) in seen:
                raise ValueError(f'two records of "{record.id}" in the same run')
            seen.add((record.run, record.id))
        return self

    def run_of(self, record: Record) -> Run:
        """Return the run that a record comes from."""
        return self.runs[record.run]

    def cut(self) -> Report:
        """Return this report as one whose file has lost its end: no run of it is complete."""
        runs = [run.model_copy(update={"complete": False}) for run in self.runs]
        found = self.model_copy(update={"runs": runs})
        found._cut_off = True
        return found


def plain(part: Part) -> Mapping[str, Any]:
    """Return a part of a report as JSON can hold it."""
    return part.model_dump(mode="json")
