"""The outcome of a case, as plain data that can be sent to other processes and written to reports."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field

from opcheck.text import class_of, message_of, shortened, well_formed

if TYPE_CHECKING:
    from opcheck.planning.case import Case
    from opcheck.settings import Settings
    from opcheck.spec.library import Sample

OutcomeKind = Literal["passed", "failed", "error", "skipped", "xfailed", "xpassed", "inconclusive", "blocked"]
KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)

BAD: frozenset[str] = frozenset({"failed", "error", "xpassed", "inconclusive", "blocked"})
"""The outcomes that fail a run."""

MOST = {"reason": 2_000, "message": 100_000}
"""The most characters of a text. The rest is cut."""


@dataclass(frozen=True)
class Outcome:
    """The result of one case, and a line of a report. Plain data; `record()` returns it for JSON.

    Example:
        >>> import opcheck
        >>> cases = opcheck.plan(opcheck.load("builtin"), operator="torch.sin", check="vmap", dtype="float64")
        >>> outcome: opcheck.Outcome = opcheck.run(cases[:1])[0]
        >>> outcome.id, outcome.outcome, outcome.is_bad
        ('torch.sin::vmap[cpu-float64]', 'passed', False)
    """

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)  # the docstrings describe it in the JSON Schema

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
    """What the operator is grouped with: the folder of its spec, or the file."""
    outcome: OutcomeKind
    """What it is: failed, error, xpassed, inconclusive and blocked fail a run."""
    reason: str = ""
    """One line: why it failed, was skipped, or was expected to fail."""
    seconds: float = 0.0
    """How long it took."""
    message: str = ""
    """All that helps to fix a failure, in several lines."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The diagnosis as data."""
    seed: int = 0
    """The seed of the sample values."""
    file: str = ""
    """The spec, relative to the root of the project; builtin/... for a shipped one."""
    line: Annotated[int, Field(ge=0)] = 0
    """The line of the sample that failed, else of the operator; 0 if it is unknown."""
    column: Annotated[int, Field(ge=0)] = 0
    """The column of the same; 0 if it is unknown."""
    rerun: str = ""
    """The command that runs this case alone."""
    toml: str = ""
    """The sample that failed, as TOML; empty if the case is not bad."""

    def __post_init__(self) -> None:
        """Make sure that all text can be encoded, and shorten it."""
        reason = shortened(" ".join(well_formed(self.reason).split()), MOST["reason"])
        message = shortened(well_formed(self.message), MOST["message"], end=MOST["message"] // 4)
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "message", message)

    @property
    def is_bad(self) -> bool:
        """Whether it fails the run."""
        return self.outcome in BAD

    def record(self) -> dict[str, Any]:
        """Return the outcome as plain data, for JSON and for other processes."""
        record: dict[str, Any] = _plain(vars(self))
        return record

    @classmethod
    def of(cls, case: Case, kind: OutcomeKind, reason: str = "", message: str = "", **fields: Any) -> Outcome:
        """Return an outcome of a case, at the place of its operator. A bad one without a message tells the reason."""
        document, place = case.operator.document, case.operator.span
        known = bool(document.text)  # a call from Python has none
        message = message or (f"{case.id}: {reason}" if kind in BAD else "")
        return cls(
            case.id, case.operator.id, case.variant.kind, case.check, case.device.name, case.dtype,
            case.operator.family, kind, reason, message=message, fields=fields, seed=case.base_seed,
            file=document.file, line=place.line * known, column=place.column * known,
        )  # fmt: skip

    def at(self, sample: Sample) -> Outcome:
        """Return the outcome at the place of a sample that failed, with the sample as TOML."""
        place = sample.span
        return replace(self, file=sample.document.file, line=place.line, column=place.column, toml=sample.toml())


def rerun_of(case: Case, settings: Settings, engine: str | None = None, derive: str | None = None) -> str:
    """Return the command that runs a case of a project alone, without what its settings say anyway.

    engine, derive: those of the run; None: those of the settings.
    """
    file = case.operator.document.file
    place = f"./{file}" if file.startswith("-") else file
    options = [
        f"--engine {engine}" if engine not in (None, settings.engine) else "",
        f"--seed {case.base_seed}" if case.base_seed or settings.seed else "",  # 0 goes without saying by default
        f"--derive {derive}" if derive and (derive == "thorough" or case.kind.least != "none") else "",
        settings.option_for(case.device),
    ]
    return " ".join(["opcheck run", *filter(None, options), shlex.quote(f"{place}::{case.id}")])


def with_rerun(outcome: Outcome, command: str) -> Outcome:
    """Return an outcome with the command that runs its case alone. The message of a bad one ends with it."""
    message = f"{outcome.message}\n\nrun just this: {command}" if outcome.is_bad else outcome.message
    return replace(outcome, message=message, rerun=command)


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it. Infinities and other objects become text."""
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
