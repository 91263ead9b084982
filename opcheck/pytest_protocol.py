"""How pytest runs a case: in one step and with one report, where nobody but pytest itself takes part in it.

pytest runs a test in three phases: set-up, call and tear-down. Each has its hooks, captures output and logs, and ends
in a report, which pytest-xdist sends to the controlling process. A case has no fixtures, and most take less time than
that.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PHASES = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")
LISTENED_TO = (
    *PHASES,
    "pytest_runtest_protocol",
    "pytest_runtest_makereport",
    "pytest_runtest_logreport",
    "pytest_runtest_logstart",
    "pytest_runtest_logfinish",
)

AT_HOME = ("_pytest", "_hypothesis_pytestplugin", "opcheck", "pytest_timeout", "xdist", "__channelexec__")
"""Modules of plugins that do without the phases of a case, or whose part `OneStep` keeps. The last is that of
pytest-xdist in its workers."""

FOR_THREE = ("setuponly", "setupshow", "usepdb", "xmlpath", "log_cli_level", "log_file", "log_level")
"""Options that need all three phases, or the logs of each."""

ACTING = {"skip", "skipif", "usefixtures", "xfail"}
"""Marks that act in the phases, where a project has put them on a case."""


class OneStep:
    """Runs cases without the hooks of the phases, but for those of pytest's runner, of capture and of time-outs."""

    def __init__(self, config: pytest.Config) -> None:
        def of(name: str, *kept: str) -> Any:
            keep = {id(manager.get_plugin(plugin)) for plugin in kept}
            return manager.subset_hook_caller(name, [it for it in manager.get_plugins() if id(it) not in keep])

        manager = config.pluginmanager
        setup, call, teardown = PHASES
        self._setup, self._teardown = of(setup, "runner"), of(teardown, "runner")
        self._call = of(call, "runner", "capturemanager", "timeout")
        works = hasattr(config, "workerinput")
        # Under pytest-xdist each word to the controlling process counts, and it listens to this when it is verbose.
        self._announces = not works or config.option.verbose > 0
        unseen = [manager.get_plugin("terminalreporter")] if works else []
        self._report = manager.subset_hook_caller("pytest_runtest_logreport", filter(None, unseen))

    def takes(self, item: pytest.Item) -> bool:
        """Tell whether nothing else has a part in a case: no mark that acts in the phases."""
        return not any(mark.name in ACTING for mark in item.iter_markers())

    def run(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Run a case and report it."""
        if self._announces:
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reraise = (KeyboardInterrupt, pytest.exit.Exception)
        call = pytest.CallInfo.from_call(lambda: self._phases(item, nextitem), "call", reraise)
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        report.keywords = {}
        self._report(report=report)
        if report.failed:
            item.ihook.pytest_exception_interact(node=item, call=call, report=report)
        if self._announces:
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _phases(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        self._setup(item=item)
        try:
            self._call(item=item)
        finally:
            self._teardown(item=item, nextitem=nextitem)


def one_step(config: pytest.Config) -> OneStep | None:
    """Return what runs cases in one step; None where a project, a plugin or an option has a part in the phases."""
    manager = config.pluginmanager
    parts = [part for name in LISTENED_TO for part in getattr(manager.hook, name).get_hookimpls()]
    others = any(_home(part.plugin) not in AT_HOME for part in parts)
    live_logs = manager.hasplugin("logging-plugin") and config.getini("log_cli")
    asked = any(getattr(config.option, name, None) for name in FOR_THREE)
    return None if others or live_logs or asked else OneStep(config)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Within it, nobody looks for garbage: for what makes many objects that stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _home(plugin: Any) -> str:
    module = plugin.__name__ if isinstance(plugin, type(pytest)) else type(plugin).__module__
    return str(module).split(".")[0]
