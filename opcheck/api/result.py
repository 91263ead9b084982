"""The result of `opcheck.check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from opcheck.derivatives.diagnosis import RESEED
from opcheck.report.causes import failures_by_cause
from opcheck.running.outcome import KINDS, Outcome
from opcheck.text import printable, shortened

OF_RESEED = (
    "reseed = true is a key of specs, which opcheck.check does not have: write a spec, or let a wrapper call "
    "torch.manual_seed(0) under torch.random.fork_rng()"
)
HELD = ("passed", "xfailed")
"""Outcomes that are not failures. xfailed is a failure that a device profile expects."""


@dataclass(frozen=True)
class CheckReport:
    """The result of `opcheck.check`: one outcome for each check and dtype, in the order in which they ran.

    `str(report)` gives a summary, with the message of one failure for each cause.

    Example:
        >>> import opcheck, torch
        >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64)
        >>> report: opcheck.CheckReport = opcheck.check(torch.sin, x, checks=["backward", "vmap"])
        >>> print(report)
        torch.sin: 2 passed
          passed backward[cpu-float64]
          passed vmap[cpu-float64]
        >>> [outcome.dtype for outcome in report.by_check["backward"]]
        ['float64']
    """

    name: str
    """The name of the function."""
    outcomes: tuple[Outcome, ...]
    """All outcomes."""

    @property
    def passed(self) -> bool:
        """Whether every check passed, except checks that torch has no means to perform. False if no check passed."""
        return bool(self.outcomes) and not self.failures

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes of checks that failed or could not test anything.

        Checks that torch has no means to perform are left out, unless no check passed.
        """
        bad = tuple(outcome for outcome in self.outcomes if outcome.outcome not in HELD)
        within = tuple(outcome for outcome in bad if not outcome.fields.get("out_of_reach"))
        return bad if len(bad) == len(self.outcomes) else within  # no check passed: nothing has been shown

    @property
    def by_check(self) -> dict[str, tuple[Outcome, ...]]:
        """The outcomes by name of the check."""
        names = dict.fromkeys(outcome.check for outcome in self.outcomes)
        return {name: tuple(outcome for outcome in self.outcomes if outcome.check == name) for name in names}

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __str__(self) -> str:
        """Return the number of outcomes of each kind, a line for each outcome, and one failure for each cause."""
        lines = [f"{self.name}: {self._counts()}", *(f"  {_line(outcome)}" for outcome in self.outcomes)]
        return "\n\n".join(["\n".join(map(printable, lines)), *self._messages()])

    def failure(self) -> str:
        """Return the message of a `CheckError`: a count, and one failure for each cause."""
        messages = [*self._messages()]
        hint = [OF_RESEED] if any(RESEED[True] in message for message in messages) else []
        return "\n\n".join([printable(f"{self.name}: {self._counts()}"), *messages, *hint])

    def _messages(self) -> Iterator[str]:
        """Yield the message of one failure for each cause, with the names of the others, and those of skipped cases."""
        for failure in failures_by_cause(self.failures):
            yield "\n".join([_message(failure.record), *map(printable, failure.followers())])
        yield from (_message(outcome) for outcome in self.failures if not outcome.is_bad)

    def _counts(self) -> str:
        counts = Counter(outcome.outcome for outcome in self.outcomes)
        return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])


class CheckError(AssertionError):
    """Raised by `opcheck.check` if a check failed or could not test anything. A subclass of AssertionError.

    `error.report` is the `CheckReport`, with the checks that passed as well.

    Example:
        >>> import opcheck, torch
        >>> def floor_everything(x):
        ...     return x.floor() + x.detach()
        >>> x = torch.tensor([0.5, 2.25], dtype=torch.float64)
        >>> try:
        ...     opcheck.check(floor_everything, x, checks="backward")
        ... except opcheck.CheckError as error:
        ...     print(error.report.failures[0].reason)
        backward: the reverse-mode Jacobian is not the numerical one
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(report.failure())
        self.report = report

    def __reduce__(self) -> tuple[type[CheckError], tuple[CheckReport]]:
        return type(self), (self.report,)


def _line(outcome: Outcome) -> str:
    reason = f": {shortened(outcome.reason, 200)}" if outcome.reason and outcome.outcome not in HELD else ""
    return f"{outcome.outcome} {outcome.check}[{outcome.device}-{outcome.dtype}]{reason}"


def _message(outcome: Outcome) -> str:
    return printable(outcome.message or f"{outcome.id}: {outcome.reason}", lines=True, most=None)
