"""Shows the progress of `opcheck run`: a pytest plugin in the controlling process."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from opcheck.cli.selecting import devices, loaded
from opcheck.cli.stdout import warn
from opcheck.devices.presence import not_present
from opcheck.planning import plan
from opcheck.planning.left_out import left_out
from opcheck.pytest_plugin.project import PLUGIN
from opcheck.pytest_plugin.reports import record_of
from opcheck.report.annotations import github_annotations
from opcheck.report.content import Report, Run
from opcheck.report.diff import Diff, diff
from opcheck.report.files import within
from opcheck.report.remarks import left_out_lines, wide_count, wide_lines
from opcheck.report.store import read
from opcheck.report.terminal import TerminalReport
from opcheck.running.outcome import Outcome
from opcheck.spec import Library, SpecError
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.problems import RequestError
from opcheck.text import well_formed


class RunReporter:
    """A pytest plugin that replaces pytest's terminal report with opcheck's."""

    def __init__(self, console: Console, options: argparse.Namespace) -> None:
        """Create the plugin. Raises RequestError if the report of `--against` cannot be read."""
        self.options = options
        self.old = read(Path(options.against)) if options.against else None
        self.report = TerminalReport(console, tells_failures=self.old is None)
        self.start = time.monotonic()
        self.mistakes: list[str] = []
        """Mistakes in the request or the specs, and other reasons why the run was not started or was ended."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Silence pytest's terminal report, and check the request and the specs before any process starts."""
        self.plugin = config.stash[PLUGIN]
        self.plugin.command = ["opcheck", *self.options.words]
        silence(config)
        if self.options.is_part:  # the larger run has checked the specs and the selection
            return
        plugin, options = self.plugin, self.options
        try:
            self.library = loaded(plugin.requested, plugin.settings)  # workers load them again
            self.devices = devices(options, plugin.settings)
            mistakes = ill_formed({os.getcwd(), *(operator.document.file for operator in self.library)})
            # With --ray, the devices of the cluster count, not those of this machine.
            mistakes += plugin.selection.mistakes(self.library) or ([] if options.ray else plugin.ask_devices())
            if mistakes:
                raise RequestError(mistakes)
        except SpecError as error:
            self.mistakes += str(error).splitlines()
            raise pytest.UsageError from None
        if not plugin.selected:
            plugin.left_out = left_out(self.library, self.devices, plugin.selection)

    def pytest_internalerror(self, excrepr: object) -> None:
        """Show an error in pytest or in one of its plugins."""
        print(excrepr, file=sys.stderr)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record the reason if a plugin has ended the run by `pytest.exit` with exit code 2."""
        if isinstance(excinfo.value, pytest.exit.Exception) and excinfo.value.returncode == 2:
            self.mistakes.append(str(excinfo.value.msg))

    def pytest_collection_finish(self, session: Any) -> None:
        """Start the progress bar. With pytest-xdist, the workers report the number of cases later."""
        if session.items:
            self.report.start(len(session.items))

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Start the progress bar with pytest-xdist. Stop the run if the workers could not collect."""
        if self.mistakes:
            pytest.exit("a worker could not collect", returncode=pytest.ExitCode.USAGE_ERROR)
        if not self.report.total:
            self.report.start(len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record an error in collection."""
        if report.failed:
            self.mistakes.append(str(report.longrepr))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report a finished case."""
        record = record_of(report)
        if record is not None:
            self.report.add(record)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Record the reason if the cases could not be selected, or divided into shards."""
        if self.plugin.refused:
            self.mistakes.append(f"opcheck: {self.plugin.refused}")

    def finish(self, code: int) -> int:
        """Print the failures and the summary. Return the exit code of opcheck.

        code: the exit code of pytest. Raises RequestError if nothing could be run.
        """
        self.report.stop()
        if self.mistakes:
            raise RequestError(dict.fromkeys(self.mistakes), prefix="")  # each worker reports the same mistakes
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise RequestError(["the request selects no case", *left_out_lines(self.plugin.left_out)])
        if code == pytest.ExitCode.USAGE_ERROR:
            return 2  # pytest has printed the reason
        report, seconds, wrong = self.report, time.monotonic() - self.start, self.plugin.troubles
        new: set[str] | None = None
        if self.old is None:
            failed = report.has_failed or bool(wrong)
            wide = (wide_lines if self.options.wide else wide_count)(report.records)
            report.summary(seconds, wrong, [*self.plugin.left_out_lines(), *wide, *self.plugin.shared_lines()])
        else:
            paths = [within(self.plugin.settings.root, path) for path in self.plugin.requested]
            changed = changes(self.old, self.plugin.reports.run(), self.library, self.devices, paths)
            failed = changed.is_regression() or bool(wrong)
            new = {one.id for records in changed.newly_failing() for one in records}
            report.failures(new)
            report.lines([*changed.lines(), *self.plugin.shared_lines()])
            report.totals(seconds, wrong)
        if self.options.github_annotations:
            shown = (one for one in self.plugin.reports.run().records if new is None or one.id in new)
            report.lines(github_annotations([shown]))
        done, total = len(report.records), report.total
        if self.options.x and report.has_failed:
            report.lines([f"stopped at a failure, after {done} of {total} cases"])
            return 1
        if code == pytest.ExitCode.INTERRUPTED:
            report.lines([f"interrupted after {done} of {total} cases"])
        elif done < total:
            report.lines([f"incomplete: {done} of {total} cases have an outcome"])
        elif untested := self._untested():
            warn(untested)
        elif code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return int(failed)
        return 2

    def _untested(self) -> str:
        """Return why requested tests were not run, else an empty string.

        The reason is that a device named by `--device` is absent, or that every case was skipped. In a shard, the
        latter is not a mistake: the other shards may have cases that run.
        """
        skipped = [record.reason for record in self.report.records if record.outcome == "skipped"]
        for name in self.plugin.names("device"):
            reason = next((why for why in skipped if why.startswith(not_present(name, ""))), "")
            if reason:
                return reason
        if self.options.shard or len(skipped) < max(len(self.report.records), 1):
            return ""
        first, *others = dict.fromkeys(skipped)
        more = f" (and for {len(others)} other reasons)" if others else ""
        return f"nothing was tested: every case was skipped, {len(skipped)} in all: {first}{more}"


def ill_formed(paths: Iterable[str]) -> list[str]:
    """Return a message for each path that Python cannot decode: workers, reports and pytest's cache need text."""
    wrong = f"the path is no {sys.getfilesystemencoding()} text"
    expected = "another name, or a UTF-8 locale, as PYTHONUTF8=1 sets"
    return [f"{path}: {wrong}; expected {expected}" for path in sorted(paths) if well_formed(path) != path]


def silence(config: pytest.Config) -> None:
    """Replace pytest's terminal reporter by a silent one. Other plugins rely on a registered reporter."""
    config.pluginmanager.unregister(name="terminalreporter")
    silent: Any = pytest.TerminalReporter(config, io.StringIO())
    for hook in ("logstart", "logreport", "logfinish"):  # they would take time and memory for each case
        setattr(silent, f"pytest_runtest_{hook}", None)
    config.pluginmanager.register(silent, "terminalreporter")


def changes(old: Report, new: Run, library: Library, devices: Iterable[DeviceProfile], paths: Collection[str]) -> Diff:
    """Compare a run with an earlier report.

    A case of the old report counts as gone only if the specs no longer have it. A case that this run did not select is
    not gone: it may be on another device, in another file or shard, or excluded by an option.

    library: the operators in the requested specs. paths: these files and folders, in the form of `Outcome.file`.
    """
    devices = list(devices)
    names, planned = {device.name for device in devices}, {case.id for case in plan(library, devices)}

    def is_gone(record: Outcome) -> bool:
        file = record.file
        is_below = not file or any(path in (".", file) or file.startswith(f"{path}/") for path in paths)
        return is_below and record.device in names and record.id not in planned

    alone = new.model_copy(update={"shard": "", "cases": None})
    return diff(old, Report([alone]), is_gone=is_gone)
