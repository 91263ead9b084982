"""The result of a check at one sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from opcheck.planning.expectations import Kind, fits, is_about
from opcheck.spec.checks import CheckKind
from opcheck.spec.claims import Expect
from opcheck.spec.library import Sample
from opcheck.text import BY_SOFTMAX, one_line

State = Literal["tested", "refused", "error", "inconclusive", "untested", "inapplicable", "out of reach"]
UNTESTED: Sequence[State] = ("untested", "inapplicable", "out of reach")
"""The states in which nothing was compared. These verdicts are not evidence for the claim; the title is the reason."""


@dataclass(frozen=True)
class Verdict:
    """The result of a check at one sample: whether its claim holds and, if not, why.

    Example:
        >>> import opcheck
        >>> print(opcheck.Verdict(False, "bounded: an output is above 1", "the largest is 1.5").text())
          bounded: an output is above 1
          the largest is 1.5
    """

    passed: bool
    """Whether the claim holds, or was not tested (see `untested`)."""
    title: str = ""
    """The failure, or the reason why nothing was tested, in one line."""
    detail: str = ""
    """Information that helps to fix the failure, in several lines."""
    sample: str | None = None
    """The name of the sample; None if the verdict is about the case as a whole."""
    state: State = "tested"
    """The kind of evidence.

    tested: results were compared. refused: the operator raises in the operation that the claim is about. error: the
    check could not run, for example since the operator refuses the sample. inconclusive: the results do not decide, for
    example at a kink. untested: there was nothing to compare. inapplicable: the claim does not cover the sample. out of
    reach: the claim cannot be tested, for example since torch has no function for it.
    """
    where: str = ""
    """The place of the sample, as `file:line`."""
    recipe: str = ""
    """The sample as TOML."""
    realized: str = ""
    """The arguments that the operator was called with."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Data for reports."""
    blocked: str = ""
    """The name of the check whose failure prevents a verdict on this claim; empty if there is none."""
    root: Verdict | None = field(default=None, repr=False)
    """The verdict of the check named in `blocked` at the sample, if it ran."""
    at: tuple[str, Sample] | None = field(default=None, repr=False)
    """The check and the sample that fail, if they differ from those of this verdict: for example a derived sample."""
    elsewhere: bool = field(default=False, repr=False)
    """Whether the claim fails at another point of the sample: the same recipes with other random numbers."""
    code: str = field(default="", repr=False)
    """The comparison in plain torch, with an assertion that fails (see plain_torch.py); empty if there is none."""
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception that caused the failure, for debuggers."""

    @property
    def untested(self) -> bool:
        """Whether nothing was compared, so that the verdict is not evidence for the claim. The title is the reason."""
        return self.state in UNTESTED

    @property
    def is_failure(self) -> bool:
        """Whether the claim was judged and does not hold. Errors, inconclusive and blocked verdicts do not count."""
        return not self.passed and self.kind == "failed"

    @property
    def kind(self) -> Kind:
        """The kind of outcome of a verdict that has not passed."""
        if self.blocked:
            return "blocked"
        return self.state if self.state in ("inconclusive", "error") else "failed"

    def is_expected_by(self, expect: Expect) -> bool:
        """Return whether an expectation matches the sample, kind and text of a verdict that has not passed."""
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


def fails(
    title: str, detail: str = "", *, code: str = "", cause: BaseException | None = None, **fields: Any
) -> Verdict:
    """Return the verdict that a claim does not hold."""
    return Verdict(False, title, detail, fields=fields, code=code, cause=cause)


OF_SOFTMAX = "forward mode of torch's softmax, log_softmax and logsumexp writes to what its own backward pass needs"


def refused(kind: CheckKind, title: str, *, code: str = "", cause: BaseException | None) -> Verdict:
    """Return the verdict that the operator raises an error in an operation that the spec claims to be supported."""
    fields = {} if kind.on_request or not kind.needs else remedy(f"supports.{kind.needs[-1]}", False)
    detail = f"{OF_SOFTMAX}\n{kind.remedy}" if BY_SOFTMAX.search(title) else kind.remedy
    return Verdict(False, title, detail, fields=fields, state="refused", code=code, cause=cause)


def refused_in(check: str, dtype: str, what: str, why: str, *, cause: BaseException | None = None) -> Verdict:
    """Return the verdict that an operator refuses a dtype that the spec claims.

    what: the pass that is claimed, "forward" or "backward".
    why: the end of the message, as in "is refused: RuntimeError".
    """
    fields = remedy(f"dtypes.{what}", f"-{dtype}")
    title = f"{check}: {what} is claimed for {dtype}, but {why}"
    return Verdict(False, title, how_to_take_out(dtype, what), fields=fields, state="refused", cause=cause)


def how_to_take_out(dtype: str, what: str) -> str:
    """Return the hint how to disclaim a dtype for a pass, "forward" or "backward"."""
    return f'if it is not meant to work in {dtype}, take "{dtype}" out of dtypes.{what}'


def remedy(key: str, write: bool | str) -> dict[str, Any]:
    """Return the field of a verdict with the change of the spec that would resolve the failure.

    key: the key of the spec.
    write: for `supports` and `devices`, the new value; for `dtypes`, a dtype to add, or to remove (with a leading -).
    """
    return {"remedy": {"key": key, "write": write}}


def cannot(title: str, detail: str = "", *, cause: BaseException | None = None, **fields: Any) -> Verdict:
    """Return the verdict that a claim could not be tested."""
    return Verdict(False, title, detail, state="error", fields=fields, cause=cause)


def inconclusive(title: str, detail: str = "", **fields: Any) -> Verdict:
    """Return the verdict that a test is inconclusive: no derivative exists at the sample, or values are too coarse."""
    return Verdict(False, title, detail, state="inconclusive", fields=fields)


def blocked(check: str, title: str, detail: str = "") -> Verdict:
    """Return the verdict that a claim cannot be judged, since the claim of the check `check` does not hold."""
    return Verdict(False, title, detail, blocked=check)


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the first failure, else a pass with all notes. Stops at the first failure.

    If no verdict compares anything, returns the first verdict, whose title is the reason.
    """
    notes, first, is_tested = list[str](), None, False
    for verdict in verdicts:
        if not verdict.passed:
            return verdict
        first, is_tested = first or verdict, is_tested or not verdict.untested
        notes += verdict.fields.get("notes", ())
    return noted(notes) if is_tested else first or NOTHING


def noted(notes: Sequence[str]) -> Verdict:
    """Return the verdict that a claim holds, with additional information."""
    return replace(HOLDS, fields={"notes": [*notes]}) if notes else HOLDS


def untested(why: str) -> Verdict:
    """Return the verdict that there was nothing to compare."""
    return Verdict(True, why, state="untested")


NOTHING = untested("the check compares nothing")
NO_GRAPH = untested("no output requires grad: there is no backward pass")
NO_LEAVES = untested("no tensor to differentiate with respect to")
OF_NO_LEAVES = (
    "leave out grad = false, or the dtype, of a floating tensor; if the operator has no derivative, "
    "supports = { backward = false, forward_ad = false } says so"
)
NO_DERIVATIVE = untested("no output is of a floating or complex dtype")
EMPTY_DERIVATIVE = untested("the outputs that have a derivative are empty")
EMPTY = untested("inputs or outputs are empty")


def inapplicable(why: str) -> Verdict:
    """Return the verdict that the claim does not cover a sample."""
    return Verdict(True, why, state="inapplicable")


def out_of_reach(why: str) -> Verdict:
    """Return the verdict that the claim cannot be tested. A case without other verdicts is skipped."""
    return Verdict(True, why, state="out of reach")


class Raised(Exception):
    """Raised if the operator raises while one of several results is computed that a claim is about.

    what: the operation, as in "computing the values under torch.no_grad()".
    cause: the exception of the operator.
    code: code in plain torch that raises it; empty if there is none.
    check: the check that reports the exception, so that this claim cannot be judged; empty if the claim does not hold.
    """

    def __init__(self, what: str, cause: Exception, code: str = "", check: str = "") -> None:
        super().__init__(f"{what} raised {one_line(cause)}")
        self.what, self.cause, self.code, self.check = what, cause, code, check
