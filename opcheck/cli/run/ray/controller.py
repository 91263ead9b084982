"""Runs cases on a Ray cluster: a pytest plugin in the controlling process."""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from opcheck.cli.run.ray.cluster import RETRIES, Cluster, Died, demand, describe
from opcheck.cli.run.ray.task import Job, digest, run_part
from opcheck.cli.stdout import terminated_as_interrupt
from opcheck.planning.shards import Group
from opcheck.pytest_plugin.items import CaseItem, report_death
from opcheck.pytest_plugin.options import SELECTION
from opcheck.pytest_plugin.project import PLUGIN
from opcheck.running.outcome import Outcome
from opcheck.running.watchdog import Death
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.problems import RequestError

MIN_CASES, MOST = 64, 500
"""The bounds of the number of cases that fill a task. Starting a task is expensive, since it may import torch."""

TASKS_PER_CPU = 4
"""The number of tasks per CPU, unless their sizes would be out of bounds."""

PATIENCE = 5.0
"""Seconds without a result after which the cluster is checked again for the resources of the waiting tasks."""

WHOLE_RUN_OPTIONS = (
    "k", "m", "ray", "shard", "durations", "report_json", "junitxml", "x", "lf", "against", "github_annotations",
)  # fmt: skip
"""Options that apply to the run as a whole. Tasks do not get them, nor the options that select cases."""


class RayRun:
    """A pytest plugin that runs the collected cases as tasks of a cluster."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Create the plugin. options: those of `opcheck run`."""
        self._where = options.ray
        self._cpus = int(options.n) if (options.n or "").isdecimal() else None
        own: dict[str, Any] = {**dict.fromkeys(WHOLE_RUN_OPTIONS), **{name: [] for name in SELECTION}, "n": "1"}
        self._options = argparse.Namespace(**{**vars(options), **own})

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep this process from importing torch and operators: only tasks need them."""
        config.stash[PLUGIN].runs_elsewhere = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all cases. Raises an exception of pytest if the session ends early."""
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None  # pytest's own loop handles these
        items = [item for item in session.items if isinstance(item, CaseItem)]
        self.session = session
        try:
            # Ray prints messages about dead processes. It also sets a signal handler, which ours must replace.
            with redirect_stdout(io.StringIO()), Cluster(self._where, self._cpus) as cluster, terminated_as_interrupt():
                self.cluster = cluster
                self._run(items)
        except RequestError as error:
            pytest.exit(str(error), returncode=2)
        return True

    def _run(self, items: list[CaseItem]) -> None:
        """Run all cases. Raises RequestError if tasks cannot run, an exception of pytest if the session ends early."""
        files = {file: digest(Path(file)) for file in map(_file, items)}
        job = self.cluster.share(Job(os.getcwd(), self._options, files))
        absent = self._absent(items)
        present = [item for item in items if item.case.device.name not in absent]
        enough = min(max(len(present) // (TASKS_PER_CPU * self.cluster.cpus), MIN_CASES), MOST)
        waiting: dict[Any, list[CaseItem]] = {}  # the cases of each task that has not ended
        for several in _parts(present, enough):
            device, names = several[0].case.device, [item.case.id for item in several]
            task = self.cluster.start(run_part, device.resources, job, _file(several[0]), device.name, names)
            waiting[task] = several
        while waiting:
            ended = self.cluster.finished(PATIENCE)
            if not ended:
                self._require(several[0].case.device for several in waiting.values())
            for one in ended:
                self._finish(waiting.pop(one), one)
        for item in items:
            if why := absent.get(item.case.device.name):
                self._log(item, [_skipped(item, why)])

    def _absent(self, items: list[CaseItem]) -> dict[str, str]:
        """Return why devices are absent from the cluster, by name. Raises RequestError if `--device` names one."""
        named = self.session.config.stash[PLUGIN].names("device")
        devices = {item.case.device.name: item.case.device for item in items}
        self._require(device for name, device in devices.items() if name in named)
        lacking = {name: self.cluster.lacks(device.resources) for name, device in devices.items()}
        why = "no node of the Ray cluster has the resources of its profile; the nodes have"
        return {name: f"{why}: {text}" for name, text in lacking.items() if text}

    def _require(self, devices: Iterable[DeviceProfile]) -> None:
        """Raise RequestError if no node of the cluster has the resources that one of the devices needs."""
        for device in {device.name: device for device in devices}.values():
            if lacking := self.cluster.lacks(device.resources):
                asked = f"{describe(demand(device.resources))}, required by a task on {device.name}"
                advice = _ADVICE if self.cluster.is_local else ""
                raise RequestError([f"no node of the Ray cluster has {asked}; the nodes have: {lacking}{advice}"])

    def _finish(self, items: list[CaseItem], ended: Any) -> None:
        """Report the cases of an ended task. Cases without an outcome are errors, since no task will run them again."""
        left = {item.nodeid: item for item in items}
        cause = "the task has ended without an outcome"
        try:
            answer = self.cluster.result(ended)
            if isinstance(answer, str):
                raise RequestError([answer], prefix="")
            self._report(left, answer)
        except Died as death:
            cause = f"{death}; the task was tried {1 + RETRIES} times"
        for item in left.values():
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", cause, "call")
            report_death(report, item.case, Death(cause), item.config.stash[PLUGIN])
            self._log(item, [report])

    def _report(self, left: dict[str, CaseItem], reports: list[pytest.TestReport]) -> None:
        """Report the cases of a task. Remove those with an outcome from `left`."""
        for nodeid, own in groupby(reports, key=lambda report: report.nodeid):
            several = list(own)
            if nodeid in left:
                self._log(left[nodeid], several)
                if str(several[-1].outcome) != "rescheduled":
                    del left[nodeid]

    def _log(self, item: CaseItem, reports: list[pytest.TestReport]) -> None:
        """Report a case, as pytest-xdist does. Raises an exception of pytest if the session must end early."""
        hook, name, place = self.session.config.hook, item.nodeid, item.location
        hook.pytest_runtest_logstart(nodeid=name, location=place)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=name, location=place)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)


_ADVICE = "; start a cluster that has it (`ray start --head --num-gpus=... --resources=...`), and join it: --ray auto"


def _parts(items: list[CaseItem], enough: int) -> Iterator[list[CaseItem]]:
    """Yield the cases of each task: consecutive groups of one file and device, until there are enough cases.

    A group is never divided, since its cases share evidence: those of one operator, variant, dtype and device.
    """
    for _, place in groupby(items, key=lambda item: (_file(item), item.case.device.name)):
        part: list[CaseItem] = []
        for _, group in groupby(place, key=lambda item: Group.of(item.case)):
            if len(part) >= enough:
                yield part
                part = []
            part += group
        yield part


def _file(item: CaseItem) -> str:
    return os.path.relpath(item.path)


def _skipped(item: CaseItem, why: str) -> pytest.TestReport:
    """Return the report of a case on a device that the cluster does not have."""
    reason = f"the device {item.case.device.name} is not present: {why}"
    report = pytest.TestReport(item.nodeid, item.location, {}, "skipped", (_file(item), 0, reason), "call")
    report.__dict__["opcheck"] = Outcome.of(item.case, "skipped", reason).record()
    return report
