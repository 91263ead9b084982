"""`opcheck.run`: cases run in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opcheck.api.caller import settings_of
from opcheck.plan.case import Case
from opcheck.run.outcome import Outcome
from opcheck.run.runner import run as run_one
from opcheck.run.session import RunSession


def run(cases: Iterable[Case], *, project: str | Path | None = None) -> list[Outcome]:
    """Run cases in this process, one after the other.

    The settings of the process (grad mode, default dtype, threads, random generators and the like) are put back after
    each case. A crash or a hang of an operator is one of this process: the command `opcheck run` contains those.

    Args:
        cases: What `opcheck.plan` returned, or some of it.
        project: A folder of the project whose `[tool.opcheck]` counts. Default: the one of the calling file.

    Returns:
        One `Outcome` for each case, in the same order. A claim that does not hold raises nothing: look at
        `outcome.outcome`, or `outcome.is_bad`.

    Raises:
        TypeError: Something among `cases` is not a `Case`.
        SpecError: `[tool.opcheck]` has a mistake.

    Example:
        >>> import opcheck
        >>> cases = opcheck.plan(opcheck.load("builtin"), operator="torch.sin", check="backward", device="cpu")
        >>> [outcome.outcome for outcome in opcheck.run(cases[:2])]
        ['passed', 'passed']
    """
    if isinstance(cases, Case):
        raise TypeError("opcheck.run expects an iterable of cases, not a Case: write opcheck.run([case])")
    chosen = list(cases)
    for case in chosen:
        if not isinstance(case, Case):
            raise TypeError(f"opcheck.run expects cases, as opcheck.plan returns them, not {type(case).__name__}")
    session = RunSession.start(settings_of(project))
    session.prepare({case.operator.id: case.operator for case in chosen}.values())
    return [run_one(case, session) for case in chosen]
