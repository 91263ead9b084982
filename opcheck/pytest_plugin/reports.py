"""Keeps the records of a run, in the controlling process, for the JSON report and for the names in pytest's JUnit."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from opcheck.pytest_plugin.options import SELECTION, overrides
from opcheck.pytest_plugin.project import Plugin
from opcheck.report.content import End, Header, Run
from opcheck.report.files import STANDARD, within
from opcheck.report.junit import check_writable, name_tests
from opcheck.report.remarks import left_out_rows
from opcheck.report.store import ReportFile
from opcheck.running.outcome import Outcome
from opcheck.spec.versions import version_of


def record_of(report: pytest.TestReport) -> Outcome | None:
    """Return the outcome in the report of a finished case; None for other tests, and for other phases of a case."""
    record: dict[str, Any] | None = getattr(report, "opcheck", None)
    return None if record is None else Outcome(**record)


class RunReports:
    """A pytest plugin that appends the cases of a run to its report, and names them in the JUnit report of pytest."""

    def __init__(self, plugin: Plugin) -> None:
        """Open the JSON report, if requested. Raises UsageError if a report that the options name cannot be written."""
        self._plugin = plugin
        config = plugin.config
        folder, path = config.invocation_params.dir, config.option.opcheck_report_json
        if path == STANDARD:
            raise pytest.UsageError("the report cannot be written: standard output shows progress; expected a file")
        xml = getattr(config.option, "xmlpath", None)  # with -p no:junitxml, there is no such option
        self._xml = folder / os.path.expanduser(os.path.expandvars(xml)) if xml else None  # as pytest does
        try:
            if self._xml is not None:
                check_writable(self._xml)
            self._file = ReportFile(folder / path) if path else None
        except OSError as error:
            raise pytest.UsageError(f"the report cannot be written: {error}") from None
        self._started, self._start = datetime.now(timezone.utc), time.monotonic()
        self._planned: set[str] | None = None
        """The node ids of the cases to run; None until they are known."""
        self._done: dict[str, Outcome] = {}
        """The records of the finished cases, by node id."""
        self._names: dict[str, tuple[str, str]] = {}
        """By node id of a finished case, the id of the case, and why it ended its process; empty if it did not."""
        self._details: dict[str, str] = {}
        self._has_missed = False
        """Whether a file could not be collected, so that its cases are unknown."""

    def pytest_sessionstart(self) -> None:
        """Write the header. Raises UsageError for mistakes in the settings of the project."""
        if self._file is not None:
            self._file.append(self._header())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that could not be collected, here or in a worker of pytest-xdist."""
        self._has_missed |= report.failed

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the selected cases."""
        self._plan(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Record the cases that a worker of pytest-xdist has selected."""
        self._plan(ids)

    def _plan(self, nodeids: Iterable[str]) -> None:
        self._planned = (self._planned or set()).union(name for name in nodeids if ".toml::" in name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line of a finished case."""
        record = record_of(report)
        if record is None:
            return
        has_ended = str(report.when) == "???" and report.failed  # pytest-xdist reports a crash as a phase "???"
        self._names[report.nodeid] = record.id, record.reason if has_ended else ""
        self._details |= getattr(report, "opcheck_devices", {})
        config = self._plugin.config
        bases = (config.invocation_params.dir, self._plugin.rootpath)
        file = _within(self._plugin.settings.root, bases, record.file) if record.file else ""
        self._done[report.nodeid] = placed = replace(record, file=file)
        if self._file is not None:
            self._file.append(placed)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Write the end of the run to the JSON report, and name the cases in the JUnit report of pytest.

        If the JUnit report cannot be written, the JSON report still is. A problem with either report fails the run.
        """
        result, troubles = None, self._plugin.troubles
        try:
            result = yield
            if self._xml is not None:
                troubles.append(name_tests(self._xml, self._names, session.config.option.junitprefix or ""))
        except OSError as error:
            if self._xml is None:
                raise
            troubles.append(f"the report {self._xml} cannot be written: {error.strerror or error}")
        finally:
            if self._file is not None:
                self._file.append(self._end())
                troubles.append(self._file.close())
            troubles[:] = filter(None, troubles)
            if troubles and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result

    def run(self) -> Run:
        """Return the finished run, as in its JSON report."""
        return Run.model_construct(**dict(self._header()), **dict(self._end()), records=[*self._done.values()])

    def _header(self) -> Header:
        plugin, option = self._plugin, self._plugin.config.option
        return Header(
            opcheck=version_of("opcheck"),
            torch=version_of("torch"),
            python=platform.python_version(),
            platform=f"{platform.system()} {platform.machine()}",
            devices=[profile.name for profile in plugin.devices],
            command=plugin.command,
            selection=dict(_selected_by(plugin)),
            overrides=overrides(option),
            engine=plugin.selection.engine,
            seed=plugin.seed,
            shard=option.opcheck_shard or "",
            started=self._started.isoformat(timespec="seconds"),
        )

    def _end(self) -> End:
        planned = None if self._has_missed or self._plugin.refused else self._planned
        digest, specs = self._plugin.planned or ("", "")
        shared = self._plugin.shared
        return End(
            complete=planned is not None and planned <= self._done.keys(),
            seconds=round(time.monotonic() - self._start, 3),
            cases=None if planned is None else len(planned) + (shared.others if shared else 0),
            planned=digest,
            specs=specs,
            details={name: text for name, text in self._details.items() if text},
            left_out=left_out_rows(self._plugin.left_out),
        )


def _selected_by(plugin: Plugin) -> Iterator[tuple[str, list[str]]]:
    """Yield the options that select cases, with their values."""
    option, root = plugin.config.option, plugin.settings.root
    for name in SELECTION:
        if values := plugin.names(name):
            yield name, [*values]
    for name, key in (("k", "keyword"), ("m", "markexpr"), ("deselect", "deselect")):
        if value := getattr(option, key, None):
            yield name, [value] if isinstance(value, str) else [*map(str, value)]
    if getattr(option, "lf", False):
        yield "lf", []
    paths = [path for path in dict.fromkeys(plugin.requested) if path not in plugin.selected]
    cases = [f"{within(root, path)}::{name}" for path, names in plugin.selected.items() for name in sorted(names)]
    yield "paths", [*(within(root, path) for path in paths), *cases]


@lru_cache(maxsize=4096)
def _within(root: Path, bases: tuple[Path, ...], file: str) -> str:
    return within(root, next((base / file for base in bases if (base / file).exists()), bases[0] / file))
