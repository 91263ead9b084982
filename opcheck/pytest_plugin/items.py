"""Spec files as pytest collectors, and cases as pytest items."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opcheck.pytest_plugin.project import PLUGIN, Plugin
from opcheck.text import printable, well_formed

if TYPE_CHECKING:
    from opcheck.planning import Case
    from opcheck.running import Outcome, OutcomeKind
    from opcheck.running.watchdog import Death


class SpecCollector(pytest.File):
    """A spec file."""

    def collect(self) -> list[pytest.Item]:
        """Return the selected cases of the file. Does not import torch, except for `opcheck run`."""
        from opcheck.planning import Selection, plan
        from opcheck.planning.left_out import left_out
        from opcheck.spec.problems import SpecError

        plugin = self.config.stash[PLUGIN]
        library = plugin.load(self.path)
        wanted = plugin.selected.get(self.path.resolve())
        planned = plan(library, plugin.devices, plugin.selection, plugin.seed)
        chosen = [case for case in planned if not wanted or case.id in wanted]
        for name in sorted((wanted or set()) - {case.id for case in chosen}):
            raise pytest.UsageError(
                self._not_there(name, [case.id for case in plan(library, plugin.devices, Selection(derive="thorough"))])
            )
        if not wanted and not self.config.option.opcheck_alone:  # `opcheck run` counts them itself
            plugin.left_out += left_out(library, plugin.devices, plugin.selection)
        if self.config.option.opcheck_alone and not plugin.runs_elsewhere and (problems := plugin.prepare(chosen)):
            raise SpecError(problems)
        # The node id is passed as text, since --lf stores it as text. pytest would build a different one from parts.
        return [CaseItem.from_parent(self, name=c.id, nodeid=f"{self.nodeid}::{c.id}", case=c) for c in chosen]

    def _not_there(self, name: str, known: Sequence[str]) -> str:
        """Return why a case is not selected. known: the ids of the cases of the file that no option leaves out."""
        from opcheck.spec.problems import nearest, worded

        if name in known:
            options = self.config.stash[PLUGIN].narrowing()
            return f'{self.nodeid}: the selection ({options}) leaves out "{name}"'
        return worded(f'{self.nodeid} has no case "{name}"', nearest=nearest(name, known))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show mistakes in a spec without a traceback."""
        from opcheck.spec import SpecError

        if isinstance(excinfo.value, pytest.UsageError):  # perhaps for mistakes in the settings
            return str(excinfo.value)
        if isinstance(excinfo.value, SpecError):
            others = self.config.stash[PLUGIN].settings.others([self.path])
            return "\n".join([str(excinfo.value), *others])
        return super().repr_failure(excinfo)


class CaseFailed(Exception):
    """Raised for a case with a bad outcome, with its reason."""


class CaseItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case
        self.outcome: Outcome | None = None
        plugin = self.config.stash[PLUGIN]
        for name in (case.check, case.device.name, case.dtype, *case.operator.spec.tags):
            self.add_marker(plugin.mark(name))
        # A worker, and the option of pytest-timeout, have a limit for all cases.
        timed = plugin.worker is not None or getattr(self.config.option, "timeout", None)
        if plugin.settings.timeout is not None and not timed and self.config.pluginmanager.hasplugin("timeout"):
            self.add_marker(pytest.mark.timeout(plugin.settings.timeout))

    def runtest(self) -> None:
        """Run the case, and report its outcome to pytest."""
        from opcheck.running.runner import abandoned, run

        self.outcome = None  # other plugins may run an item again
        plugin = self.config.stash[PLUGIN]
        busy = nullcontext() if plugin.worker is None else plugin.worker.busy(self.nodeid, plugin.session.lost_to)
        with busy:
            if plugin.worker is not None and plugin.worker.has_abandoned(self.case.hazard):
                outcome = self.outcome = abandoned(self.case, plugin.session)
            else:
                outcome = self.outcome = run(self.case, plugin.session, self._limit)
        if outcome.outcome == "skipped":
            pytest.skip(printable(outcome.reason))
        if outcome.outcome == "xfailed":
            pytest.xfail(printable(outcome.reason))
        if outcome.is_bad:
            # With --pdb, the debugger stops where the operator raised.
            cause = plugin.session.cause if self.config.option.usepdb else None
            raise CaseFailed(outcome.headline).with_traceback(cause.__traceback__ if cause else None)

    @property
    def _limit(self) -> float | None:
        """The seconds after which pytest-timeout interrupts the case; None if it never does, as with a debugger."""
        if self.config.stash[PLUGIN].worker is not None or self.config.option.usepdb:
            return None
        marker = self.get_closest_marker("timeout")
        seconds = marker.args[0] if marker and marker.args else getattr(self.config.option, "timeout", None)
        return float(seconds) if seconds else None

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the reason of the outcome, which pytest repeats in its summary, and the message, without a traceback."""
        if isinstance(excinfo.value, CaseFailed) and self.outcome is not None:
            parts = dict.fromkeys(filter(None, (self.outcome.headline, self.outcome.message)))
            return printable("\n\n".join(parts), lines=True, most=None)
        if isinstance(excinfo.value, pytest.fail.Exception):  # a time-out: its traceback does not help
            return str(excinfo.value)
        shown = super().repr_failure(excinfo, style)
        text = well_formed(str(shown))
        return shown if text == str(shown) else text  # pytest-xdist cannot send ill-formed text

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the position of the operator in its spec, and a title.

        The title must not be a suffix of the node id: otherwise `pytest -v` would replace dots in the id with `::`.
        """
        operator = self.case.operator
        where = printable(f"{operator.document.file}:{operator.line}")
        return self.path, operator.line - 1, f"{self.case.id} ({where})"

    def record_of(self, report: pytest.TestReport) -> dict[str, Any]:
        """Return the record for reports.

        If the case has no outcome, its set-up or tear-down failed after a good outcome, or a conftest.py marks its
        failure as expected, make a record from the report of pytest.
        """
        is_expected = report.skipped and hasattr(report, "wasxfail")
        if self.outcome is not None and (not is_expected if self.outcome.is_bad else not report.failed):
            return self.outcome.record()
        text = report.longreprtext.strip()
        reason = re.sub(r"^E\s+", "", text.splitlines()[-1]) if text else f"{report.when} did not finish"
        kind: OutcomeKind = "skipped" if report.skipped else "error"
        if is_expected:
            kind, reason = "xfailed", report.wasxfail
        elif isinstance(report.longrepr, tuple):  # skipped by a mark or a fixture: the file, the line and the reason
            text = reason = report.longrepr[2].removeprefix("Skipped: ")
        plugin = self.config.stash[PLUGIN]
        return plugin.outcome_without_verdict(self.case, kind, reason, text, report.duration).record()


def cases_of(items: Iterable[pytest.Item]) -> list[Case]:
    """Return the cases among the tests of pytest."""
    return [item.case for item in items if isinstance(item, CaseItem)]


AT_DERIVED = "let the operator refuse such arguments; if it cannot, remove this variation from vary (docs/checks.md)"
"""The advice for an operator that ends the process at a derived sample."""


def report_death(report: pytest.TestReport, case: Case, death: Death, plugin: Plugin) -> Outcome:
    """Turn a report into that of a case whose process has died. Return the outcome: `error`, or `xfailed`."""
    from opcheck.running.judge import expected  # imports torch

    advice = AT_DERIVED if case.check == "derived" and not death.is_time_out else ""
    text = "\n".join(filter(None, (f"{case.id}: {death.cause}", advice, death.trace)))
    outcome = plugin.outcome_without_verdict(case, "error", death.cause, text, death.seconds)
    outcome = expected(case, outcome)
    if outcome.outcome == "xfailed":
        report.outcome, report.wasxfail = "skipped", outcome.reason
    report.longrepr, report.duration = outcome.message, outcome.seconds
    report.__dict__["opcheck"] = outcome.record()
    return outcome
