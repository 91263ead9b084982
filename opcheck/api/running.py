"""`opcheck.run`: runs cases in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opcheck.api.caller import settings_of
from opcheck.planning.case import Case
from opcheck.running.outcome import Outcome
from opcheck.running.runner import run as run_one
from opcheck.running.session import RunSession


def run(cases: Iterable[Case], *, project: str | Path | None = None) -> list[Outcome]:
    """Run cases one after the other, in this process.

    After each case, the settings of the process (grad mode, default dtype, threads, random generators and so on) are
    restored. An operator that crashes or hangs takes this process with it; the command `opcheck run` does not have
    that problem.

    Args:
        cases: The cases, from `opcheck.plan`.
        project: A folder of the project whose `[tool.opcheck]` to use. Default: the project of the calling file.

    Returns:
        One `Outcome` for each case, in the same order. Failures do not raise: see `outcome.is_bad`.

    Raises:
        TypeError: `cases` contains something that is not a `Case`.
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
    devices = {case.device.name: case.device for case in chosen}
    session.prepare({case.operator.id: case.operator for case in chosen}.values(), devices.values())
    return [run_one(case, session) for case in chosen]
