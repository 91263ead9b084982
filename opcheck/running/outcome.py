"""The outcome of a case, as plain data that can be sent to other processes and written to reports."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field

from opcheck.planning.selection import runs_at
from opcheck.text import class_of, message_of, shortened, well_formed

if TYPE_CHECKING:
    from opcheck.planning.case import Case
    from opcheck.settings import Settings
    from opcheck.spec.checks import Derive

OutcomeKind = Literal["passed", "failed", "error", "skipped", "xfailed", "xpassed", "inconclusive", "blocked"]
KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)

BAD: frozenset[str] = frozenset({"failed", "error", "xpassed", "inconclusive", "blocked"})
"""The outcomes that fail a run."""

MOST = {"reason": 2_000, "message": 100_000}
"""The maximum number of characters of each text. Longer texts are shortened."""


@dataclass(frozen=True)
class Outcome:
    """The result of one case, which is one line of a report. Plain data; `record()` returns it for JSON.

    Example:
        >>> import opcheck
        >>> cases = opcheck.plan(opcheck.load("builtin"), operator="torch.sin", check="vmap", dtype="float64")
        >>> outcome: opcheck.Outcome = opcheck.run(cases[:1])[0]
        >>> outcome.id, outcome.outcome, outcome.is_bad
        ('torch.sin::vmap[cpu-float64]', 'passed', False)
    """

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)  # descriptions in the JSON Schema

    id: str
    """The id of the case, such as torch.sin::backward[cpu-float64]."""
    operator: str
    """The id of the operator."""
    variant: str
    """function, method or inplace."""
    check: str
    """The name of the check."""
    device: str
    """The name of the device in its profile."""
    dtype: str
    """The name of the dtype."""
    family: str
    """The group of the operator: the folder of its spec, or else the file name without suffix."""
    outcome: OutcomeKind
    """The kind of outcome: failed, error, xpassed, inconclusive and blocked fail a run."""
    reason: str = ""
    """Why the case failed, was skipped, or was expected to fail, in one line."""
    seconds: float = 0.0
    """The run time of the case, in seconds."""
    message: str = ""
    """The details of a failure, in several lines."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Details as data, such as the diagnosis of a failure."""
    seed: int = 0
    """The seed of the sample values."""
    file: str = ""
    """The file of the spec, relative to the root of the project; builtin/... for a shipped spec."""
    line: Annotated[int, Field(ge=0)] = 0
    """The line of the failed sample in the file, else that of the operator; 0 if it is unknown."""
    column: Annotated[int, Field(ge=0)] = 0
    """The column of the failed sample, else that of the operator; 0 if it is unknown."""
    rerun: str = ""
    """The command that runs this case alone."""
    toml: str = ""
    """The failed sample, as TOML; empty if the case is not bad, or no single sample failed."""

    def __post_init__(self) -> None:
        """Shorten the reason and the message, and escape characters in them that cannot be encoded."""
        reason = shortened(" ".join(well_formed(self.reason).split()), MOST["reason"])
        message = shortened(well_formed(self.message), MOST["message"], end=MOST["message"] // 4)
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "message", message)

    @property
    def is_bad(self) -> bool:
        """Whether the outcome fails the run."""
        return self.outcome in BAD

    @property
    def headline(self) -> str:
        """The reason and, if the failure has a diagnosis, its first finding, in one line."""
        first = next(iter(self.findings), "")
        return self.reason if first in self.reason else f"{self.reason}: {first}"

    @property
    def findings(self) -> list[str]:
        """The findings of the diagnosis, in words; empty if there is none."""
        return findings_in(self.fields)

    def record(self) -> dict[str, Any]:
        """Return the outcome as plain data, for JSON and for other processes."""
        record: dict[str, Any] = _plain(vars(self))
        return record

    @classmethod
    def of(cls, case: Case, kind: OutcomeKind, reason: str = "", message: str = "", **fields: Any) -> Outcome:
        """Return an outcome of a case, located at its operator. The message of a bad outcome defaults to the reason."""
        document = case.operator.document
        place = case.operator.span if document.text else None  # an operator passed in from Python has no text
        message = message or (f"{case.id}: {reason}" if kind in BAD else "")
        return cls(
            case.id, case.operator.id, case.variant.kind, case.check, case.device.name, case.dtype,
            case.operator.family, kind, reason, message=message, fields=fields, seed=case.base_seed,
            file=document.file, line=place.line if place else 0, column=place.column if place else 0,
        )  # fmt: skip

    def ended(self, seconds: float, rerun: str, **fields: Any) -> Outcome:
        """Return the outcome with its run time, its rerun command and further fields.

        The command is also appended to the message of a bad outcome.
        """
        message = f"{self.message}\n\nrun just this: {rerun}" if self.is_bad else self.message
        return replace(self, seconds=seconds, rerun=rerun, message=message, fields={**self.fields, **fields})


def findings_in(fields: Mapping[str, Any]) -> list[str]:
    """Return the findings of the diagnosis among the fields of an outcome, in words; empty if there is none."""
    diagnosis = fields.get("diagnosis")
    parts = diagnosis if isinstance(diagnosis, list) else []
    return [str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text")]


def rerun_of(case: Case, settings: Settings, engine: str | None, derive: Derive | None) -> str:
    """Return the command that runs only this case of a project, with the options that it needs.

    engine, derive: the options of the run. None: the project's settings apply.
    """
    is_by_default = runs_at(case.kind, derive or settings.derive)
    file = case.operator.document.file
    place = f"./{file}" if file.startswith("-") else file
    options = [
        f"--engine {engine}" if engine not in (None, settings.engine) else "",
        f"--seed {case.base_seed}" if case.base_seed or settings.seed else "",  # 0 is the default
        "" if is_by_default else f"--check {case.check}",
        f"--derive {derive}" if derive and (derive == "thorough" or case.kind.least != "none") else "",
        settings.option_for(case.device),
    ]
    return " ".join(["opcheck run", *filter(None, options), shlex.quote(f"{place}::{case.id}")])


def _plain(value: Any) -> Any:
    """Return a value as JSON data. NaN, infinities and objects of other types become text."""
    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return _text(value)


def _text(value: Any) -> str:
    try:
        return shortened(well_formed(str(value)), MOST["message"])
    except Exception as error:
        return f"({class_of(value)} that cannot be shown: {class_of(error)}: {message_of(error)})"
