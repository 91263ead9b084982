"""The hooks by which pytest enters the plugin."""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from opcheck.pytest_plugin.items import CaseItem, SpecCollector, report_death
from opcheck.pytest_plugin.options import OPTIONS
from opcheck.pytest_plugin.project import PLUGIN, SENT, Plugin
from opcheck.pytest_plugin.sharding import register_shard
from opcheck.text import counted, printable, well_formed

OF_LOGGING = (
    "log_auto_indent", "log_cli", "log_cli_date_format", "log_cli_format", "log_cli_level", "log_date_format",
    "log_file", "log_file_date_format", "log_file_format", "log_file_level", "log_file_mode", "log_format", "log_level",
)  # fmt: skip
"""The settings of pytest's logging plugin. `opcheck run` blocks it: it handles all of torch's loggers in each phase."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options of the plugin. All begin with --opcheck: a conftest.py may have others of the same name."""
    group = parser.getgroup("opcheck", "opcheck: tests of operators from TOML specs")
    for option in OPTIONS:
        if not option.is_of_pytest:
            keywords = {**option.keywords, "dest": f"opcheck_{option.dest}"}
            group.addoption(option.pytest_word, help=option.help, **keywords)
        if option.word == "--specs":
            parser.addini("opcheck_specs", option.help, type="paths", default=[])
    if pluginmanager.is_blocked("logging"):  # by `opcheck run`: a project may still have settings for it
        for name in OF_LOGGING:
            parser.addini(name, "unused: logging is disabled")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Remove options from addopts that could select other tests than those requested of `opcheck run`."""
    own = list(early_config.invocation_params.args)
    if "--opcheck-alone" in own:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("-p", action="append", default=[])
        parser.add_argument("-W", "--pythonwarnings", action="append", default=[])
        allowed, _ = parser.parse_known_args(args[: len(args) - len(own)])
        args[:] = [*(f"-p{name}" for name in allowed.p), *(f"-W{filter}" for filter in allowed.pythonwarnings), *own]


def pytest_configure(config: pytest.Config) -> None:
    """Set up the plugin: the arguments, the selection, the reports."""
    plugin = config.stash[PLUGIN] = Plugin(config)
    if config.option.opcheck_alone and config.args_source != pytest.Config.ArgsSource.ARGS:
        config.args[:] = map(str, plugin.folders)
        if not config.args:
            from opcheck.settings import NO_SPECS

            raise pytest.UsageError(NO_SPECS)
    plugin.take_arguments()
    process = getattr(config, "workerinput", {})
    if "opcheck_lifeline" in process:
        from opcheck.running.worker import Worker

        plugin.worker = Worker(Path(process["opcheck_lifeline"]), process["opcheck_seconds"])
    if config.option.markers:
        from opcheck.planning import check_kinds

        plugin.settings  # noqa: B018 - imports plugins, whose checks have marks as well
        for kind in check_kinds().values():
            plugin.mark(kind.name, kind.claim)
    register_shard(plugin)
    if not config.option.opcheck_alone:  # `opcheck run` reports them itself
        _refuse_unknown_names(plugin)
    reported = config.option.opcheck_report_json or getattr(config.option, "xmlpath", None)  # without -p no:junitxml
    if reported and not hasattr(config, "workerinput"):
        from opcheck.pytest_plugin.reports import register_reports

        register_reports(plugin)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """If pytest was given a larger folder than requested, ignore the rest of it."""
    plugin = config.stash[PLUGIN]
    return None if not plugin.is_partial or plugin.is_requested(collection_path) else True


def _refuse_unknown_names(plugin: Plugin) -> None:
    """Raise UsageError for unknown checks, dtypes and devices, and for absent devices.

    Otherwise, they would silently select nothing, or test nothing.
    """
    option = plugin.config.option
    if option.opcheck_device:
        plugin.devices  # noqa: B018
        is_worker = hasattr(plugin.config, "workerinput")
        absent = [] if is_worker or option.collectonly else plugin.ask_devices()
        if absent:
            raise pytest.UsageError("\n".join(absent))
    if plugin.names("check") or plugin.names("dtype"):
        from opcheck.spec import Library

        named = dataclasses.replace(plugin.selection, operators=(), tags=())
        mistakes = named.mistakes(Library(()))
        if mistakes:
            raise pytest.UsageError("\n".join(mistakes))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect TOML files that are specs."""
    if file_path.suffix != ".toml" or file_path.name in ("pyproject.toml", ".taplo.toml", "taplo.toml"):
        return None
    root = parent.config.stash[PLUGIN].root_of(file_path)
    if root is None:
        return None
    # For specs outside of the project, the default is relative to the argument, and pytest would not find it again.
    nodeid = os.path.relpath(file_path, parent.config.rootpath).replace(os.sep, "/")
    return SpecCollector.from_parent(parent, path=file_path, nodeid=nodeid)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the cases if there is an order; other tests stay where they are.

    Which of the cases a shard has is decided by what they are, not by where they stand.
    """
    order = config.stash[PLUGIN].order
    if order is not None:
        cases = [item for item in items if isinstance(item, CaseItem)]
        shuffled = iter(random.Random(order).sample(cases, len(cases)))
        items[:] = [next(shuffled) if isinstance(item, CaseItem) else item for item in items]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Take note of the selected cases."""
    plugin = session.config.stash[PLUGIN]
    cases = [item.case for item in session.items if isinstance(item, CaseItem)]
    if plugin.planned is None and cases:
        plugin.plan(cases)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Import torch and the modules of operators. Otherwise, that would count as time of the first case."""
    cases = [item.case for item in session.items if isinstance(item, CaseItem)]
    if cases and not session.config.option.collectonly:
        plugin = session.config.stash[PLUGIN]
        if not plugin.runs_elsewhere:
            plugin.prepare(cases)
        if plugin.worker is not None:
            plugin.worker.settle()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let workers end soon, and say what they have counted. An empty shard is no mistake if the others have cases."""
    plugin = session.config.stash[PLUGIN]
    if plugin.worker is not None:
        plugin.worker.leave()
    is_empty = plugin.shared is not None and plugin.shared.own == 0 < plugin.shared.others
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[SENT] = plugin.from_worker()
    elif plugin.refused:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and is_empty:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist what it need not find out again, or must not draw again."""
    plugin = node.config.stash[PLUGIN]
    node.workerinput[SENT] = {"absent": plugin.absent, "order": plugin.order}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker of pytest-xdist has counted."""
    sent = getattr(node, "workeroutput", {}).get(SENT)
    if sent:
        node.config.stash[PLUGIN].take_over(sent)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Give a case that ended a worker of plain pytest an outcome. `opcheck run` knows more about it."""
    plugin = sched.config.stash[PLUGIN]
    if not sched.config.option.opcheck_alone and (case := plugin.case_of(crashitem)):
        from opcheck.running.watchdog import Death

        report_death(report, case, Death("the process crashed", trace=report.longreprtext.strip()), plugin)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """Say what plain pytest does not protect against."""
    if any(isinstance(item, CaseItem) for item in items) and not hasattr(config, "workerinput"):
        return (
            "opcheck: cases run in this process, which an operator that crashes, exits or hangs takes with it; "
            "`opcheck run` contains it"
        )
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the record of a case to its report, which pytest-xdist sends to the controlling process.

    A set-up or tear-down that fails has a record that replaces that of the case.
    """
    report = yield
    if not isinstance(item, CaseItem):
        return report
    if report.when == "call" or not report.passed:
        report.__dict__["opcheck"] = item.record_of(report)
        report.__dict__["opcheck_devices"] = item.config.stash[PLUGIN].details_of(item.case.device)
    report.sections = [(title, well_formed(text)) for title, text in report.sections]  # for pytest-xdist
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_to_serializable(
    config: pytest.Config, report: pytest.CollectReport | pytest.TestReport
) -> dict[str, Any] | None:
    """Shorten the report of a set-up or tear-down that succeeded: a run has thousands of them."""
    is_phase = config.stash[PLUGIN].worker is not None and isinstance(report, pytest.TestReport)
    if not is_phase or report.when == "call" or not report.passed:
        return None
    brief = {name: getattr(report, name) for name in ("nodeid", "location", "when", "outcome", "duration")}
    return {"$report_type": BRIEF, **brief}


@pytest.hookimpl(tryfirst=True)
def pytest_report_from_serializable(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport | None:
    """Restore a report that was shortened."""
    if data.get("$report_type") != BRIEF:
        return None
    del data["$report_type"]
    return pytest.TestReport(keywords={}, longrepr=None, **data)


BRIEF = "opcheck phase"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what is left out, skipped, or held to wider tolerances, and what is wrong with the reports."""
    plugin, say = terminalreporter.config.stash[PLUGIN], terminalreporter.write_line
    if plugin.order is not None:
        say(f"opcheck: cases in a random order, which --opcheck-order={plugin.order} gives again")
    if plugin.left_out:
        from opcheck.report.remarks import left_out_lines

        for line in left_out_lines(plugin.left_out):
            say(f"opcheck: {line}")
    reports = [one for several in terminalreporter.stats.values() for one in several if hasattr(one, "opcheck")]
    if any("tolerance" in report.opcheck.get("fields", {}) for report in reports):
        from opcheck.pytest_plugin.reports import record_of
        from opcheck.report.remarks import wide_count

        for line in wide_count(filter(None, map(record_of, reports)), "opcheck run --wide"):
            say(f"opcheck: {line}")
    skipped = [report.opcheck["reason"] for report in reports if report.opcheck["outcome"] == "skipped"]
    for reason, count in Counter(one for one in skipped if "is not present" in one).most_common():
        say(f"opcheck: {counted(count, 'case')} skipped: {printable(reason)}", yellow=True)
    for line in plugin.troubles:
        say(f"opcheck: {printable(line)}", red=True)
    if plugin.refused:
        say(f"ERROR: {plugin.refused}", red=True)
    elif plugin.shared is not None:
        say(f"opcheck: {plugin.shared}")
