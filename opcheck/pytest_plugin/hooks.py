"""The pytest hooks of the plugin."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pickle
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from opcheck.pytest_plugin.items import CaseItem, SpecCollector, cases_of, report_death
from opcheck.pytest_plugin.options import OPTIONS
from opcheck.pytest_plugin.project import PLUGIN, SENT, Plugin
from opcheck.pytest_plugin.sharding import Sharding
from opcheck.text import counted, printable, well_formed

OF_LOGGING = (
    "log-level", "log-format", "log-date-format", "log-cli-level", "log-cli-format", "log-cli-date-format", "log-file",
    "log-file-mode", "log-file-level", "log-file-format", "log-file-date-format", "log-auto-indent", "log-disable",
)  # fmt: skip
"""The options of pytest's logging plugin. The settings of the same names have underscores."""
COUNTS = ("left_out", "planned", "shared", "refused")
"""The attributes of `Plugin` that a worker of pytest-xdist sets in collection and sends to the controlling process."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options of the plugin. All begin with --opcheck, to avoid conflicts with options of a conftest.py."""
    group = parser.getgroup("opcheck", "opcheck: tests of operators from TOML specs")
    for option in OPTIONS:
        if not option.is_of_pytest:
            keywords = {**option.keywords, "dest": f"opcheck_{option.dest}"}
            group.addoption(option.pytest_word, help=option.help, **keywords)
        if option.word == "--specs":
            parser.addini("opcheck_specs", option.help, type="paths", default=[])
    if pluginmanager.is_blocked("logging"):  # by `opcheck run`, but a project may have settings for the plugin
        for name in OF_LOGGING:
            parser.addoption(f"--{name}", action="append", help=argparse.SUPPRESS)
        for name in ("log-cli", *OF_LOGGING):
            parser.addini(name.replace("-", "_"), "ignored")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """For `opcheck run`, remove all options from addopts but -p and -W: others could change the selection of tests."""
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

        plugin.settings  # noqa: B018 - imports plugins, so that marks of their checks are listed, too
        for kind in check_kinds().values():
            plugin.mark(kind.name, kind.claim)
    # Registered late, so that it comes before the plugin of --lf, which would remove cases before they are divided.
    config.pluginmanager.register(Sharding(plugin))
    if not config.option.opcheck_alone:  # `opcheck run` reports unknown names itself
        _refuse_unknown_names(plugin)
    option = config.option
    is_reported = option.opcheck_alone or option.opcheck_report_json or getattr(option, "xmlpath", None)
    if is_reported and not hasattr(config, "workerinput"):
        from opcheck.pytest_plugin.reports import RunReports

        plugin.reports = RunReports(plugin)
        config.pluginmanager.register(plugin.reports)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore paths that were not requested, if pytest was given a parent folder of a requested path."""
    plugin = config.stash[PLUGIN]
    return None if not plugin.is_partial or plugin.is_requested(collection_path) else True


def _refuse_unknown_names(plugin: Plugin) -> None:
    """Raise UsageError for unknown checks, dtypes and devices, for absent devices, and for specs that do not exist.

    Otherwise, such names would silently select nothing, or test nothing. Unknown operators and tags are refused after
    collection, see sharding.py.
    """
    option = plugin.config.option
    requests_all = not plugin.named_paths and (plugin.config.getini("opcheck_specs") or plugin.is_used)
    if (option.opcheck_specs or requests_all) and (missing := plugin.missing_specs()):
        raise pytest.UsageError("\n".join(missing))
    if option.opcheck_device:
        plugin.devices  # noqa: B018
        is_worker = hasattr(plugin.config, "workerinput")
        absent = [] if is_worker or option.collectonly else plugin.ask_devices()
        if absent:
            raise pytest.UsageError("\n".join(absent))
    if plugin.names("check") or plugin.names("dtype"):
        from opcheck.spec import Library

        named = dataclasses.replace(plugin.selection, operators=(), tags=())
        if mistakes := named.mistakes(Library(())):
            raise pytest.UsageError("\n".join(mistakes))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect TOML files that are specs."""
    if file_path.suffix != ".toml" or file_path.name in ("pyproject.toml", ".taplo.toml", "taplo.toml"):
        return None
    plugin = parent.config.stash[PLUGIN]
    if plugin.root_of(file_path) is None:
        return None
    # For specs outside of the project, pytest's default is relative to the argument: it would not find the file again.
    nodeid = os.path.relpath(file_path, plugin.rootpath).replace(os.sep, "/")
    return SpecCollector.from_parent(parent, path=file_path, nodeid=nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Import torch and the modules of operators. Otherwise, the imports would count as time of the first case."""
    cases = cases_of(session.items)
    if cases and not session.config.option.collectonly:
        plugin = session.config.stash[PLUGIN]
        if not plugin.runs_elsewhere:
            plugin.prepare(cases)
        if plugin.worker is not None:
            plugin.worker.settle()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let workers exit quickly, send their counts to the controlling process, and set the exit status.

    An empty shard is not an error if other shards have cases.
    """
    plugin = session.config.stash[PLUGIN]
    if plugin.worker is not None:
        plugin.worker.leave()
    is_empty = plugin.shared is not None and plugin.shared.own == 0 < plugin.shared.others
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[SENT] = pickle.dumps({name: getattr(plugin, name) for name in COUNTS})
    elif plugin.refused:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and is_empty:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send a worker of pytest-xdist the root, the absent devices, which it need not probe again, and the order."""
    plugin = node.config.stash[PLUGIN]
    node.workerinput[SENT] = {"root": str(plugin.rootpath), "absent": plugin.absent, "order": plugin.order}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over the counts of a worker of pytest-xdist. Those of all workers are equal: they collect the same cases."""
    if sent := getattr(node, "workeroutput", {}).get(SENT):
        vars(node.config.stash[PLUGIN]).update({name: value for name, value in pickle.loads(sent).items() if value})


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Give an outcome to a case that crashed a worker of plain pytest. `opcheck run` has its own hook for this."""
    plugin = sched.config.stash[PLUGIN]
    if not sched.config.option.opcheck_alone and (case := plugin.case_of(crashitem)):
        from opcheck.running.watchdog import Death

        report_death(report, case, Death("the process crashed", trace=report.longreprtext.strip()), plugin)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """Return a line that plain pytest does not contain crashes, exits and hangs."""
    if not cases_of(items) or hasattr(config, "workerinput"):
        return None
    has_limit = config.stash[PLUGIN].settings.timeout is not None and not config.pluginmanager.hasplugin("timeout")
    return (
        "opcheck: cases run in the pytest process: an operator that crashes, exits or hangs stops the whole session. "
        "Use `opcheck run` to run cases in separate processes"
        + "\nopcheck: without pytest-timeout, the timeout of [tool.opcheck] has no effect"
        * has_limit
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the hook of a conftest.py, which may expect a failure
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the record of a case to its report, which pytest-xdist sends to the controlling process.

    If the set-up or tear-down fails, its record replaces that of the case.
    """
    report = yield
    if not isinstance(item, CaseItem):
        return report
    if report.when == "call" or not report.passed:
        report.__dict__["opcheck"] = item.record_of(report)
        report.__dict__["opcheck_devices"] = item.config.stash[PLUGIN].details_of(item.case.device)
    # pytest-xdist cannot send ill-formed text.
    report.sections = [(title, well_formed(text)) for title, text in report.sections]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_to_serializable(
    config: pytest.Config, report: pytest.CollectReport | pytest.TestReport
) -> dict[str, Any] | None:
    """Shorten the report of a successful set-up or tear-down in a worker: a run has thousands of such reports."""
    is_phase = config.stash[PLUGIN].worker is not None and isinstance(report, pytest.TestReport)
    if not is_phase or report.when == "call" or not report.passed:
        return None
    brief = {name: getattr(report, name) for name in ("nodeid", "location", "when", "outcome", "duration")}
    return {"$report_type": "TestReport", "keywords": {}, "longrepr": None, **brief}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the order and the shard, which cases are left out, skipped, or held to wider tolerances, and problems."""
    plugin, say = terminalreporter.config.stash[PLUGIN], terminalreporter.write_line
    reports = [one for several in terminalreporter.stats.values() for one in several if hasattr(one, "opcheck")]
    if reports or plugin.left_out:
        from opcheck.pytest_plugin.reports import record_of
        from opcheck.report.remarks import wide_count

        records = list(filter(None, map(record_of, reports)))
        for line in (*plugin.left_out_lines(), *wide_count(records, "opcheck run --wide")):
            say(f"opcheck: {line}")
        skipped = Counter(record.reason for record in records if record.outcome == "skipped")
        for reason, count in skipped.most_common():
            if "is not present" in reason:
                say(f"opcheck: {counted(count, 'case')} skipped: {printable(reason)}", yellow=True)
    for line in plugin.troubles:
        say(f"opcheck: {printable(line)}", red=True)
    if plugin.refused:
        say(f"ERROR: {plugin.refused}", red=True)
    else:
        for line in plugin.shared_lines():
            say(f"opcheck: {line}")
