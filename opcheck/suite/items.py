"""Spec files as collectors of pytest, and their cases as its items."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opcheck.suite.project import PLUGIN

if TYPE_CHECKING:
    from opcheck.plan import Case
    from opcheck.run import Outcome, OutcomeKind


class SpecCollector(pytest.File):
    """A spec file."""

    def collect(self) -> list[pytest.Item]:
        """Return its selected cases. Never imports torch."""
        from opcheck.plan import plan

        plugin = self.config.stash[PLUGIN]
        library = plugin.load(self.path)
        wanted = plugin.selected.get(self.path.resolve())
        planned = plan(library, plugin.devices, plugin.selection, plugin.seed)
        found = [case for case in planned if not wanted or case.id in wanted]
        for name in sorted((wanted or set()) - {case.id for case in found}):
            from opcheck.spec.problems import nearest

            near = nearest(name, [case.id for case in plan(library, plugin.devices)])
            hint = f'; did you mean "{near}"?' if near else ""
            raise pytest.UsageError(f'{self.nodeid} has no case "{name}"{hint}')
        if self.config.option.opcheck_alone:
            plugin.look_up(found)
        # The node id as text, which is what --lf remembers: put together from parts it would not be the same to pytest.
        return [CaseItem.from_parent(self, name=c.id, nodeid=f"{self.nodeid}::{c.id}", case=c) for c in found]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show mistakes of a spec as lines, without a traceback."""
        from opcheck.spec import SpecError

        if isinstance(excinfo.value, (SpecError, pytest.UsageError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class CaseFailed(Exception):
    """Carries a bad outcome through pytest."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class CaseItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case
        self.outcome: Outcome | None = None
        plugin = self.config.stash[PLUGIN]
        for name in (case.check, case.device.name, case.dtype, *case.operator.spec.tags):
            self.add_marker(plugin.mark(name))
        timed = plugin.worker is not None or getattr(self.config.option, "timeout", None)  # from outside, or for all
        if plugin.settings.timeout is not None and not timed:
            self.add_marker(pytest.mark.timeout(plugin.settings.timeout))

    def runtest(self) -> None:
        """Run the case, and tell pytest what came of it."""
        from opcheck.run.runner import run
        from opcheck.text import printable

        self.outcome = None  # of an earlier try: other plugins may run an item again
        plugin = self.config.stash[PLUGIN]
        busy = nullcontext() if plugin.worker is None else plugin.worker.busy(self.nodeid, plugin.session.spoilt_by)
        with busy:
            outcome = self.outcome = run(self.case, plugin.session, self._limit)
        if outcome.outcome == "skipped":
            pytest.skip(printable(outcome.reason))
        if outcome.outcome == "xfailed":
            pytest.xfail(printable(outcome.reason))
        if outcome.is_bad:
            # --pdb stops where the operator raised, if it did.
            cause = plugin.session.cause if self.config.option.usepdb else None
            raise CaseFailed(outcome).with_traceback(cause.__traceback__ if cause else None)

    @property
    def _limit(self) -> float | None:
        """The seconds after which pytest-timeout interrupts the case; None where it does not, as under a debugger."""
        if self.config.stash[PLUGIN].worker is not None or self.config.option.usepdb:
            return None
        marker = self.get_closest_marker("timeout")
        given = marker.args[0] if marker and marker.args else getattr(self.config.option, "timeout", None)
        return float(given) if given else None

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the message of the outcome."""
        from opcheck.text import printable, well_formed

        if isinstance(excinfo.value, CaseFailed):
            outcome = excinfo.value.outcome
            return printable(outcome.message or outcome.reason, lines=True, most=None)
        if isinstance(excinfo.value, pytest.fail.Exception):  # a time-out: where it struck says little
            return str(excinfo.value)
        shown = super().repr_failure(excinfo, style)
        text = well_formed(str(shown))
        return shown if text == str(shown) else text  # which pytest-xdist could not send

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place of the operator in its spec.

        With a name that no node id ends in: `pytest -v` would write the dots of it as `::`, in what should be an id.
        """
        from opcheck.text import printable

        operator = self.case.operator
        place = printable(f"{operator.document.file}:{operator.line}")
        return self.path, operator.line - 1, f"{self.case.id} ({place})"

    def record_of(self, report: pytest.TestReport) -> dict[str, Any]:
        """Return the record for reports; also where the case did not come to an outcome of its own."""
        from opcheck.run.outcome import Outcome, rerun_command

        if self.outcome is not None and (self.outcome.is_bad or not report.failed):
            return self.outcome.record()
        text = report.longreprtext.strip()
        reason = text.splitlines()[-1] if text else f"{report.when} did not finish"
        kind: OutcomeKind = "skipped" if report.skipped else "error"
        seed = self.config.stash[PLUGIN].rerun_seed
        rerun = rerun_command(self.case.operator.document.file, self.case.id, seed=seed)
        message = f"{text}\n\nrun just this: {rerun}"
        outcome = Outcome.of(self.case, kind, reason, message)  # a time-out, a fixture of the project, an interrupt
        return dataclasses.replace(outcome, seconds=report.duration).record()
