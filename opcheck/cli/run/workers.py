"""The worker processes of `opcheck run`: a case that crashes, hangs or uses too much memory gets an outcome."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from opcheck.pytest_plugin.items import report_death
from opcheck.pytest_plugin.project import PLUGIN
from opcheck.running.watchdog import Death, Watchdog

MOST_TIME_OUTS = 2
"""The number of time-outs of an operator on a device after which its other cases are blocked."""


class Workers:
    """A pytest plugin for the controlling process. pytest-xdist starts the workers and replaces them."""

    def __init__(self, folder: Path, seconds: float | None, memory: int) -> None:
        """Create the plugin.

        folder: the folder of the lifeline files. seconds: the time limit of a case; None: no limit. memory: the memory
            limit of its process, in MiB.
        """
        self._watchdog = Watchdog(folder, seconds, memory)
        self._deaths: dict[str, Death] = {}
        self._collected: set[str] = set()
        self._time_outs: Counter[str] = Counter()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Start the watchdog."""
        self._plugin = session.config.stash[PLUGIN]
        self._watchdog.start()

    def pytest_configure_node(self, node: Any) -> None:
        """Pass the path of the lifeline file and the time limit of a case to a worker."""
        node.workerinput["opcheck_lifeline"] = str(self._watchdog.path_of(node.gateway.id))
        node.workerinput["opcheck_seconds"] = self._watchdog.seconds

    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Record that a worker is ready to run cases."""
        self._collected.add(node.gateway.id)

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Find out why a worker has ended, before its process is reaped."""
        name = node.gateway.id
        if error is None:
            return
        death = self._deaths[name] = self._watchdog.death_of(name)
        if name not in self._collected:
            # Its replacement would die as well.
            what = f", importing {death.sign.what}" if death.sign.what else ""
            trace = f"\n{death.trace}" if death.trace else ""
            pytest.exit(f"opcheck: a process ended before its first case{what}: {death.cause}{trace}", returncode=2)

    @pytest.hookimpl(tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """Report the outcome of a case whose process died. If an earlier case broke the process, run the case again."""
        death = self._deaths.get(report.node.gateway.id, Death("the process is gone"))
        if death.sign.doing == "broken":  # the case that broke it has an outcome, so this cannot loop
            report.outcome = "rescheduled"
            sched.mark_test_pending(crashitem)
            return
        case = self._plugin.case_of(crashitem)
        if case and report_death(report, case, death, self._plugin).is_bad and death.is_time_out:
            self._time_outs[case.hazard] += 1
            if self._time_outs[case.hazard] == MOST_TIME_OUTS:  # its other cases may hang as well
                self._watchdog.give_up(case.hazard)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Kill the workers that are still busy after an interrupt. pytest-xdist would wait for them."""
        self._watchdog.kill_busy()

    def pytest_unconfigure(self) -> None:
        """Stop the watchdog, once pytest-xdist has ended the workers."""
        self._watchdog.stop()
