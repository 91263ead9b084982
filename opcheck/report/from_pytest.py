"""Turns pytest's reports into records, in the controlling process, and feeds the JSON and JUnit reports."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from opcheck.report.junit import JUnitReport
from opcheck.report.recorder import Facts, Recorder, is_case
from opcheck.report.writing import STANDARD
from opcheck.run.outcome import Outcome, rerun_command

TROUBLES = pytest.StashKey[list[str]]()


def register_reports(config: pytest.Config, facts: Facts) -> None:
    """Register the reports that the options request. Raises UsageError if one cannot be written."""
    config.stash[TROUBLES] = []
    folder = config.invocation_params.dir
    asked, junit = config.option.opcheck_report_json, None
    if asked == STANDARD:
        raise pytest.UsageError(
            "the report cannot be written: standard output tells how the run goes on; expected a file"
        )
    try:
        if xmlpath := getattr(config.option, "xmlpath", None):
            path = os.path.expanduser(os.path.expandvars(xmlpath))  # as pytest does
            junit = JUnitReport(folder / path, config.option.junitprefix or "")
        report = Recorder(folder / asked, facts, (folder, config.rootpath)) if asked else None
    except OSError as error:
        raise pytest.UsageError(f"the report cannot be written: {error}") from None
    config.pluginmanager.register(Reports(report, junit, facts.seed), "opcheck_reports")


def troubles(config: pytest.Config) -> list[str]:
    """Return what is wrong with the reports of a finished run, one message each."""
    return config.stash.get(TROUBLES, [])


def record_of(report: pytest.TestReport, seed: Callable[[], int | None] = lambda: None) -> dict[str, Any] | None:
    """Return the record of a finished case; None if the report is not about a case, or the case is not finished."""
    record: dict[str, Any] | None = getattr(report, "opcheck", None)
    if str(report.outcome) == "rescheduled":
        return None
    if record is None and str(report.when) == "???" and is_case(report.nodeid):
        return crashed(report, "the process crashed", report.longreprtext.strip(), seed()).record()
    return record


def crashed(report: pytest.TestReport, cause: str, trace: str = "", seed: int | None = None) -> Outcome:
    """Return the outcome of a case that ended its process, from the report that pytest-xdist makes of it.

    cause: what happened to the process, in one line. trace: where it was at that time. seed: the one to name in the
    rerun command.
    """
    stem, _, name = report.nodeid.partition(".toml::")
    subject, _, rest = name.partition("::")
    check, _, place = rest.removesuffix("]").partition("[")
    device, _, dtype = place.rpartition("-")
    variant = next((kind for kind in ("method", "inplace") if subject.endswith(f"[{kind}]")), "function")
    rerun = rerun_command(f"{stem}.toml", name, seed=seed)
    return Outcome(
        id=name, operator=subject.removesuffix(f"[{variant}]"), variant=variant, check=check, device=device,
        dtype=dtype, family=Path(stem).name, outcome="error", reason=cause,
        message="\n".join([f"{name}: {cause}", *([trace] if trace else []), "", f"run just this: {rerun}"]),
        seed=seed or 0, file=f"{stem}.toml", rerun=rerun,
    )  # fmt: skip


class Reports:
    """Feeds the reports. If one fails, the run and the other reports go on, but the run does not succeed."""

    def __init__(
        self, report: Recorder | None, junit: JUnitReport | None, seed: Callable[[], int | None] = lambda: None
    ) -> None:
        self.seed = seed
        self.report = report
        self.junit = junit

    def pytest_sessionstart(self) -> None:
        """Write what is known of the run."""
        if self.report is not None:
            self.report.begin()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take note of a file that could not be collected, here or in a worker of pytest-xdist."""
        if report.failed and self.report is not None:
            self.report.miss()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take note of the selected cases."""
        if self.report is not None:
            self.report.plan(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Take note of the cases that a worker of pytest-xdist has selected."""
        if self.report is not None:
            self.report.plan(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the record of a finished case to the reports."""
        record = record_of(report, self.seed)
        if record is None:
            return
        if self.report is not None:
            self.report.add(report.nodeid, record)
            for device, details in getattr(report, "opcheck_devices", {}).items():
                self.report.describe(device, details)
        if self.junit is not None:
            ended = str(report.when) == "???" and report.failed  # the process, in place of the case
            self.junit.add(report.nodeid, record["id"], record if ended else None)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Complete the reports after pytest has written its own."""
        found, result = [], None
        try:
            result = yield
        except OSError as error:
            if self.junit is None:
                raise
            found.append(f"the report {self.junit.path} cannot be written: {error.strerror or error}")
        else:
            found.append(self.junit.finish() if self.junit is not None else "")
        found.append(self.report.finish() if self.report is not None else "")
        session.config.stash[TROUBLES] = told = [line for line in found if line]
        if told and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result


def absent_devices(reports: Iterable[pytest.TestReport]) -> list[tuple[str, int]]:
    """Return the reasons why devices are absent, and how many cases each of them skipped."""
    records = [getattr(report, "opcheck", None) for report in reports]
    reasons = Counter(record["reason"] for record in records if record and "is not present" in record["reason"])
    return reasons.most_common()
