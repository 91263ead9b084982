"""Writes the reports of a run of pytest, in the controlling process: JSON Lines, and the names in its JUnit report."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from opcheck.report.files import STANDARD, within
from opcheck.report.junit import check_writable, name_tests
from opcheck.report.model import End, Header, Record
from opcheck.report.store import ReportFile
from opcheck.running.outcome import Outcome, rerun_command

TROUBLES = pytest.StashKey[list[str]]()


@dataclass(frozen=True)
class Facts:
    """What a run tells its reports."""

    header: Callable[[], Header]
    """Returns the header, once the project is known. Raises UsageError for mistakes in it."""
    end: Callable[[], End]
    """Returns what is known in the end about the selection; its cases are those of other shards."""
    root: Callable[[], Path]
    """Returns the root of the project."""
    seed: Callable[[], int | None]
    """Returns the seed to name in rerun commands."""


def register_reports(config: pytest.Config, facts: Facts) -> None:
    """Register the reports that the options request. Raises UsageError if one cannot be written."""
    config.stash[TROUBLES] = []
    folder, path = config.invocation_params.dir, config.option.opcheck_report_json
    if path == STANDARD:
        raise pytest.UsageError(
            "the report cannot be written: standard output tells how the run goes on; expected a file"
        )
    xmlpath = getattr(config.option, "xmlpath", None)
    xml = folder / os.path.expanduser(os.path.expandvars(xmlpath)) if xmlpath else None  # as pytest does
    try:
        if xml is not None:
            check_writable(xml)
        file = ReportFile(folder / path) if path else None
    except OSError as error:
        raise pytest.UsageError(f"the report cannot be written: {error}") from None
    if file is not None or xml is not None:
        config.pluginmanager.register(RunReports(config, facts, file, xml), "opcheck_report")


def troubles(config: pytest.Config) -> list[str]:
    """Return what is wrong with the reports of a finished run, one message each."""
    return config.stash.get(TROUBLES, [])


def record_of(report: pytest.TestReport, seed: Callable[[], int | None] = lambda: None) -> Record | None:
    """Return the record of a finished case; None if the report is not about a case, or the case is not finished."""
    record: dict[str, Any] | None = getattr(report, "opcheck", None)
    if str(report.outcome) == "rescheduled":
        return None
    if record is None and str(report.when) == "???" and _is_case(report.nodeid):
        record = _crashed(report, seed()).record()
    return None if record is None else Record.model_validate(record)


def _crashed(report: pytest.TestReport, seed: int | None) -> Outcome:
    """Return the outcome of a case that ended its process, from the report that pytest-xdist makes of it."""
    stem, _, name = report.nodeid.partition(".toml::")
    subject, _, rest = name.partition("::")
    check, _, place = rest.removesuffix("]").partition("[")
    device, _, dtype = place.rpartition("-")
    variant = next((kind for kind in ("method", "inplace") if subject.endswith(f"[{kind}]")), "function")
    cause, rerun = "the process crashed", rerun_command(f"{stem}.toml", name, seed=seed)
    return Outcome(
        id=name, operator=subject.removesuffix(f"[{variant}]"), variant=variant, check=check, device=device,
        dtype=dtype, family=Path(stem).name, outcome="error", reason=cause,
        message=f"{name}: {cause}\n{report.longreprtext.strip()}\n\nrun just this: {rerun}",
        seed=seed or 0, file=f"{stem}.toml", rerun=rerun,
    )  # fmt: skip


class RunReports:
    """A pytest plugin that appends the cases of a run to its report, and names them in the JUnit report of pytest."""

    def __init__(self, config: pytest.Config, facts: Facts, file: ReportFile | None, xml: Path | None) -> None:
        """Create the plugin. file, xml: the two reports, as far as they are requested."""
        self._config = config
        self._facts = facts
        self._file = file
        self._xml = xml
        self._start = time.monotonic()
        self._planned: set[str] | None = None
        """The node ids of the cases that are to run; None before they are known."""
        self._done: dict[str, tuple[str, Record | None]] = {}
        """The name of each finished case, and the record of one that ended its process, by node id."""
        self._details: dict[str, str] = {}
        self._has_missed = False
        """Whether a file could not be collected, so that its cases are not known."""

    def pytest_sessionstart(self) -> None:
        """Write the header."""
        if self._file is not None:
            self._file.append(self._facts.header())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take note of a file that could not be collected, here or in a worker of pytest-xdist."""
        self._has_missed |= report.failed

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take note of the selected cases."""
        self._plan(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Take note of the cases that a worker of pytest-xdist has selected."""
        self._plan(ids)

    def _plan(self, nodeids: Iterable[str]) -> None:
        self._planned = (self._planned or set()).union(filter(_is_case, nodeids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line of a finished case."""
        record = record_of(report, self._facts.seed)
        if record is None:
            return
        has_ended = str(report.when) == "???" and report.failed  # the process, in place of the case
        self._done[report.nodeid] = record.id, record if has_ended else None
        if self._file is not None:
            self._details |= getattr(report, "opcheck_devices", {})
            bases = (self._config.invocation_params.dir, self._config.rootpath)
            file = _within(self._facts.root(), bases, record.file) if record.file else ""
            self._file.append(record.model_copy(update={"file": file}))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Write the end of the run, and name the cases in the file that pytest has written.

        If pytest could not write it, the run and its other report go on.
        """
        result = None
        try:
            result = yield
            if self._xml is not None:
                _tell(session, name_tests(self._xml, self._done, session.config.option.junitprefix or ""))
        except OSError as error:
            if self._xml is None:
                raise
            _tell(session, f"the report {self._xml} cannot be written: {error.strerror or error}")
        finally:
            if self._file is not None:
                self._file.append(self._end())
                _tell(session, self._file.close())
        return result

    def _end(self) -> End:
        planned = None if self._has_missed else self._planned
        end = self._facts.end()
        known = {
            "complete": planned is not None and planned <= self._done.keys(),
            "seconds": round(time.monotonic() - self._start, 3),
            "cases": None if planned is None else len(planned) + (end.cases or 0),
            "details": {name: text for name, text in self._details.items() if text},
        }
        return end.model_copy(update=known)


def _tell(session: pytest.Session, trouble: str) -> None:
    """Keep what is wrong with a report, if anything is. Then the run is no success."""
    if trouble:
        session.config.stash[TROUBLES].append(trouble)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@lru_cache(maxsize=4096)
def _within(root: Path, bases: tuple[Path, ...], file: str) -> str:
    return within(root, next((base / file for base in bases if (base / file).exists()), bases[0] / file))


def _is_case(nodeid: str) -> bool:
    """Tell whether a test of pytest is a case of opcheck."""
    return ".toml::" in nodeid


def absent_devices(reports: Iterable[pytest.TestReport]) -> list[tuple[str, int]]:
    """Return the reasons why devices are absent, and how many cases each of them skipped."""
    records = [getattr(report, "opcheck", None) for report in reports]
    reasons = Counter(record["reason"] for record in records if record and "is not present" in record["reason"])
    return reasons.most_common()
