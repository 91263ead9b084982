"""The result of a check at one sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from opcheck.planning.expectations import Kind, fits, is_about
from opcheck.spec.checks import CheckKind
from opcheck.spec.claims import Expect
from opcheck.spec.library import Sample

State = Literal["tested", "refused", "error", "inconclusive", "untested", "inapplicable", "out of reach"]
UNTESTED: Sequence[State] = ("untested", "inapplicable", "out of reach")
"""The states in which nothing was compared: such a verdict is no evidence for the claim. The title says why."""


@dataclass(frozen=True)
class Verdict:
    """What a check says about one sample: whether its claim holds and, if not, why.

    Example:
        >>> import opcheck
        >>> print(opcheck.Verdict(False, "bounded: an output is above 1", "the largest is 1.5").text())
          bounded: an output is above 1
          the largest is 1.5
    """

    passed: bool
    """Whether the claim holds."""
    title: str = ""
    """What is wrong, in one line."""
    detail: str = ""
    """What helps to fix it, in several lines."""
    sample: str | None = None
    """The name of the sample; None if the verdict is about the case as a whole."""
    state: State = "tested"
    """What it rests on.

    tested: evidence. refused: an error of the operator in place of a number. error: the claim could not be tested, as
    where the operator refuses the sample. inconclusive: nothing can be told here, as at a kink. untested: there was
    nothing to compare. inapplicable: the claim says nothing about the sample. out of reach: torch has no way to ask
    about the claim, whatever the operator does.
    """
    where: str = ""
    """`file:line` of the sample."""
    recipe: str = ""
    """The sample as TOML."""
    realized: str = ""
    """The arguments that the operator was called with."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Data for reports."""
    blocked: str = ""
    """The name of the check whose failure keeps this claim from being judged; empty if there is none."""
    root: Verdict | None = field(default=None, repr=False)
    """What that check says at the sample, if it was asked."""
    at: tuple[str, Sample] | None = field(default=None, repr=False)
    """The check whose claim does not hold, and the sample, where they are not those that are judged."""
    elsewhere: bool = field(default=False, repr=False)
    """Whether the claim does not hold at other numbers by the recipes of the sample."""
    code: str = field(default="", repr=False)
    """What is compared, in plain torch, with an assertion that fails (plain_torch.py). Empty: it has no such form."""
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception behind it, for debuggers."""

    @property
    def untested(self) -> bool:
        """Whether nothing was compared: the verdict is no evidence for the claim. The title says why."""
        return self.state in UNTESTED

    @property
    def is_failure(self) -> bool:
        """Whether the claim was judged, and does not hold."""
        return not self.passed and self.kind == "failed"

    @property
    def kind(self) -> Kind:
        """The kind of outcome that it leads to, if it has not passed."""
        if self.blocked:
            return "blocked"
        return self.state if self.state in ("inconclusive", "error") else "failed"

    def is_expected_by(self, expect: Expect) -> bool:
        """Tell whether an expectation covers it, if it has not passed: its sample, its kind, and its text."""
        return is_about(expect, self.sample) and fits(expect, self.kind, f"{self.title}\n{self.detail}")

    def text(self) -> str:
        """Return the verdict as several lines of text."""
        head = f"sample {self.sample} ({self.where})" if self.sample is not None else ""
        lines = [
            head,
            f"  {self.recipe}" if self.recipe else "",
            f"  realized: {self.realized}" if self.realized else "",
        ]
        body = [self.title, *self.detail.splitlines()]
        return "\n".join([line for line in lines if line] + [f"  {line}" for line in body])


HOLDS = Verdict(True)


def fails(title: str, detail: str = "", *, code: str = "", **fields: Any) -> Verdict:
    """Return the verdict that a claim does not hold."""
    return Verdict(False, title, detail, fields=fields, code=code)


def refused(kind: CheckKind, title: str) -> Verdict:
    """Return the verdict that the operator raises an error instead of doing what it claims."""
    fields = {} if kind.on_request or not kind.needs else remedy(f"supports.{kind.needs[-1]}", False)
    return Verdict(False, title, kind.remedy, fields=fields, state="refused")


def refused_in(check: str, dtype: str, what: str, why: str) -> Verdict:
    """Return the verdict that an operator refuses a dtype in which a pass is claimed: forward or backward.

    why: how it refuses it, as in "is refused: RuntimeError".
    """
    fields = remedy(f"dtypes.{what}", f"-{dtype}")
    title = f"{check}: {what} is claimed for {dtype}, but {why}"
    return Verdict(False, title, take_out(dtype, what), fields=fields, state="refused")


def take_out(dtype: str, what: str) -> str:
    """Return how a spec says that a pass is not meant to work in a dtype."""
    return f'if it is not meant to work in {dtype}, take "{dtype}" out of dtypes.{what}'


def remedy(key: str, write: bool | str) -> dict[str, Any]:
    """Return the field with the claim to make or to take back, as data: a key of the spec, and what to write.

    write: of `supports`, the value; of `dtypes`, a dtype to add, or to take out (with a leading -).
    """
    return {"remedy": {"key": key, "write": write}}


def cannot(title: str, detail: str = "") -> Verdict:
    """Return the verdict that a claim could not be tested."""
    return Verdict(False, title, detail, state="error")


def inconclusive(title: str, detail: str = "", **fields: Any) -> Verdict:
    """Return the verdict that nothing can be told: there is no derivative at the sample, or values are too coarse."""
    return Verdict(False, title, detail, state="inconclusive", fields=fields)


def blocked(check: str, title: str, detail: str = "") -> Verdict:
    """Return the verdict that a claim cannot be judged, since that of another check does not hold."""
    return Verdict(False, title, detail, blocked=check)


def first_failure(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the first verdict that is no pass, or one that holds, with all notes. Those after it are not asked for.

    Where nothing was compared, the first verdict, which says why.
    """
    notes, first, is_tested = list[str](), None, False
    for verdict in verdicts:
        if not verdict.passed:
            return verdict
        first, is_tested = first or verdict, is_tested or not verdict.untested
        notes += verdict.fields.get("notes", ())
    return noted(notes) if is_tested else first or NOTHING


def noted(notes: Sequence[str]) -> Verdict:
    """Return the verdict that a claim holds, with what is no failure, but worth to be known."""
    return replace(HOLDS, fields={"notes": [*notes]}) if notes else HOLDS


def untested(why: str) -> Verdict:
    """Return the verdict that there was nothing to compare."""
    return Verdict(True, why, state="untested")


NOTHING = untested("the check compares nothing")
NO_GRAPH = untested("no output requires grad: there is no backward pass")


def inapplicable(why: str) -> Verdict:
    """Return the verdict that the claim says nothing about a sample."""
    return Verdict(True, why, state="inapplicable")


def out_of_reach(why: str) -> Verdict:
    """Return the verdict that torch cannot be asked about the claim. A case of which this is all is skipped."""
    return Verdict(True, why, state="out of reach")


class Blocked(Exception):
    """A claim cannot be judged at a sample, since that of another check does not hold."""

    def __init__(self, check: str, why: str) -> None:
        super().__init__(why)
        self.check = check
