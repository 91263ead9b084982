"""From pytest's reports to records: plugins of pytest that take outcomes out of a run, in the controlling process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from opcheck.report.json_report import JsonReport
from opcheck.run.outcome import Outcome, rerun_command


def register_reports(config: pytest.Config) -> None:
    """Register the reports that options ask for. Raises UsageError where one cannot be written."""
    if config.option.xmlpath:
        config.pluginmanager.register(JUnitNames(config), "opcheck_junit_names")
    if config.option.opcheck_report_json:
        path = config.invocation_params.dir / config.option.opcheck_report_json
        try:
            report = JsonReport(path)
        except OSError as error:
            raise pytest.UsageError(f"the report cannot be written: {error}") from None
        config.pluginmanager.register(JsonWriter(report), "opcheck_report_json")


def record_of(report: pytest.TestReport) -> dict[str, Any] | None:
    """Return the record of a finished case from its report; None for what is no case, or is not finished."""
    record: dict[str, Any] | None = getattr(report, "opcheck", None)
    if str(report.outcome) == "rescheduled":
        return None
    if record is None and str(report.when) == "???" and ".toml::" in report.nodeid:
        return crashed(report, "the process crashed", report.longreprtext.strip()).record()
    return record


def crashed(report: pytest.TestReport, cause: str, trace: str = "") -> Outcome:
    """Return the outcome of a case that took its process with it: pytest-xdist reports it from outside.

    cause: what became of the process, in one line. trace: where it was.
    """
    stem, _, name = report.nodeid.partition(".toml::")
    subject, _, rest = name.partition("::")
    check, _, place = rest.removesuffix("]").partition("[")
    device, _, dtype = place.rpartition("-")
    variant = next((kind for kind in ("method", "inplace") if subject.endswith(f"[{kind}]")), "function")
    rerun = f"run just this: {rerun_command(f'{stem}.toml', name)}"
    return Outcome(
        id=name, operator=subject.removesuffix(f"[{variant}]"), variant=variant, check=check, device=device,
        dtype=dtype, family=Path(stem).name, outcome="error", reason=cause,
        message="\n".join([f"{name}: {cause}", *([trace] if trace else []), "", rerun]),
    )  # fmt: skip


class JsonWriter:
    """Feeds the JSON report."""

    def __init__(self, report: JsonReport) -> None:
        self.report = report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the record of a finished case."""
        record = record_of(report)
        if record is not None:
            self.report.add(record)


class JUnitNames:
    """Gives JUnit the ids of cases as names of tests: pytest would cut them at ::."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name the test of a case, before pytest does."""
        from _pytest.junitxml import xml_key

        record, xml = record_of(report), self.config.stash.get(xml_key, None)
        if record is None or xml is None:
            return
        reporter = xml.node_reporter(report)
        reporter.add_attribute("name", record["id"])
        reporter.add_attribute("classname", report.nodeid.split("::")[0].removesuffix(".toml").replace("/", "."))


def absent_devices(reports: Iterable[pytest.TestReport]) -> list[tuple[str, int]]:
    """Return why devices are absent, and how many cases were skipped for it."""
    records = [getattr(report, "opcheck", None) for report in reports]
    reasons = Counter(record["reason"] for record in records if record and "is not present" in record["reason"])
    return reasons.most_common()
