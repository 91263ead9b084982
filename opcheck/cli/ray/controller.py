"""Hands the cases of a run to a Ray cluster: a pytest plugin in the controlling process."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from opcheck.cli.output import terminated_as_interrupt
from opcheck.cli.ray.cluster import Broken, Cluster, Died, demand, describe
from opcheck.cli.ray.task import Job, Part, digest, run_part, run_part_contained
from opcheck.cli.request import RequestError
from opcheck.cli.workers import outcome_at_death
from opcheck.planning import Case
from opcheck.planning.expectations import foreseen
from opcheck.pytest_plugin.items import CaseItem
from opcheck.pytest_plugin.project import PLUGIN
from opcheck.running.outcome import Outcome
from opcheck.running.watchdog import Death
from opcheck.spec.device import DeviceProfile

FEWEST, MOST = 32, 200
"""The number of cases after which a task takes no further group. To begin one takes a fifth of a second."""

SHARES = 8
"""The number of tasks that each CPU gets of a run, if they have neither too few nor too many cases."""

MOST_DEATHS = 3
"""The number of deaths after which a task is given up. From the second on, none is the fault of a case."""

PATIENCE = 5.0
"""Seconds without a result after which the resources of the cluster are looked at again."""


@dataclass
class Task:
    """Some consecutive groups of cases. A group has what shares evidence: an operator, a variant, a dtype, a device."""

    part: Part
    device: DeviceProfile
    items: dict[str, CaseItem]
    """The cases that have no outcome yet, by node id."""
    deaths: list[str] = field(default_factory=list)
    """Why the processes ended that have tried it."""


class RayRun:
    """A pytest plugin that runs the collected cases as tasks of a cluster."""

    def __init__(self, where: str, cpus: int | None, job: Job, engine: str) -> None:
        self.where = where
        self.cpus = cpus
        self.job = job
        self.engine = engine
        self.trouble = ""
        """Why the run has ended early, if it has; not for a failure or an interrupt."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Leave torch and operators to the tasks."""
        self.config = config
        config.stash[PLUGIN].runs_elsewhere = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all cases. Raises what ends the session early."""
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest deals with it
        items = [item for item in session.items if isinstance(item, CaseItem)]
        files = {file: digest(Path(file)) for file in map(_file, items)}
        try:
            # Ray prints that processes die, and has a handler of its own for signals.
            with redirect_stdout(io.StringIO()), Cluster(self.where, self.cpus) as cluster, terminated_as_interrupt():
                _Loop(self, session, cluster, replace(self.job, files=files)).run(items)
        except (RequestError, Broken) as error:
            self.trouble = str(error)
        if self.trouble:
            pytest.exit(self.trouble, returncode=2)
        return True

    def given_up(self, item: CaseItem, cause: str) -> pytest.TestReport:
        """Return the report of a case that no process could bring to an end."""
        from opcheck.running.judge import expected  # imports torch

        plugin = self.config.stash[PLUGIN]
        case = replace(item.case, expectations=foreseen(item.case.expectations, self.engine))
        further = plugin.settings.option_for(case.device)
        outcome = expected(case, outcome_at_death(case, Death(cause), plugin.rerun_seed, further))
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", outcome.message, "call")
        if outcome.outcome == "xfailed":
            report.outcome, report.wasxfail = "skipped", outcome.reason
        report.__dict__["opcheck"] = outcome.record()
        return report

    def skipped(self, item: CaseItem, why: str) -> pytest.TestReport:
        """Return the report of a case on a device that the cluster does not have."""
        reason = f"the device {item.case.device.name} is not present: {why}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "skipped", (_file(item), 0, reason), "call")
        report.__dict__["opcheck"] = Outcome.of(item.case, "skipped", reason).record()
        return report


class _Loop:
    """The tasks of one run, and what becomes of them."""

    def __init__(self, run: RayRun, session: pytest.Session, cluster: Cluster, job: Job) -> None:
        self.run_ = run
        self.session = session
        self.cluster = cluster
        self.job = cluster.share(job)
        self.waiting: dict[Any, Task] = {}
        """The tasks that have not ended."""

    def run(self, items: list[CaseItem]) -> None:
        """Run all cases. Raises Broken, RequestError, or what ends the session early."""
        absent = self._absent(items)
        present = [item for item in items if item.case.device.name not in absent]
        enough = min(max(len(present) // (SHARES * self.cluster.cpus), FEWEST), MOST)
        for task in _tasks(present, enough):
            self._start(task)
        while self.waiting:
            ended = self.cluster.finished(PATIENCE)
            if not ended:
                self._look_for_resources(task.device for task in self.waiting.values())
            for one in ended:
                self._finish(self.waiting.pop(one), one)
        for item in items:
            if why := absent.get(item.case.device.name):
                self._log(_task([item]), item.nodeid, [self.run_.skipped(item, why)])

    def _absent(self, items: list[CaseItem]) -> dict[str, str]:
        """Return why devices that nobody has named are on no node, by name. Raises RequestError for a named one."""
        named = self.session.config.stash[PLUGIN].names("device")
        devices = {item.case.device.name: item.case.device for item in items}
        self._look_for_resources(device for name, device in devices.items() if name in named)
        lacking = {name: self.cluster.lacks(device.resources) for name, device in devices.items()}
        return {name: f"no node of the Ray cluster has it; it has {text}" for name, text in lacking.items() if text}

    def _look_for_resources(self, devices: Iterable[DeviceProfile]) -> None:
        """Raise RequestError if no node of the cluster has what a device asks for."""
        for device in {device.name: device for device in devices}.values():
            lacking = self.cluster.lacks(device.resources)
            if lacking:
                needed = describe(demand(device.resources))
                why = (
                    f"no node of the Ray cluster has what a task on {device.name} asks for: {needed}; it has {lacking}"
                )
                raise RequestError([why + (_ADVICE if self.cluster.is_local else "")])

    def _start(self, task: Task) -> None:
        function = run_part_contained if task.deaths else run_part
        self.waiting[self.cluster.start(function, task.device.resources, self.job, task.part)] = task

    def _finish(self, task: Task, ended: Any) -> None:
        """Report the cases of a task. If its process has ended, try it again, in a worker that is watched."""
        try:
            answer = self.cluster.result(ended)
        except Died as death:
            self._try_again(task, str(death))
            return
        if answer.errors:
            raise Broken("\n".join(dict.fromkeys(answer.errors)))
        self._report(task, answer.reports)
        if task.items:
            self._try_again(task, "the task has ended without an outcome")

    def _try_again(self, task: Task, cause: str) -> None:
        task.deaths.append(cause)
        names = tuple(item.case.id for item in task.items.values())
        task.part = replace(task.part, names=names)
        if len(task.deaths) < MOST_DEATHS:
            self._start(task)
            return
        for item in list(task.items.values()):
            self._log(task, item.nodeid, [self.run_.given_up(item, f"{cause}; the task was tried {MOST_DEATHS} times")])

    def _report(self, task: Task, reports: list[Mapping[str, Any]]) -> None:
        restore = self.session.config.hook.pytest_report_from_serializable
        restored = [restore(config=self.session.config, data=data) for data in reports]
        for nodeid, own in groupby(restored, key=lambda report: report.nodeid):
            if nodeid in task.items:
                self._log(task, nodeid, list(own))

    def _log(self, task: Task, nodeid: str, reports: list[pytest.TestReport]) -> None:
        """Report a case, as the controlling process of pytest-xdist does. Raises what ends the session early."""
        hook, location = self.session.config.hook, task.items[nodeid].location
        hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
        if str(reports[-1].outcome) != "rescheduled":
            del task.items[nodeid]
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)


_ADVICE = "; start a cluster that has it (`ray start --head --num-gpus=... --resources=...`), and join it: --ray auto"


def _tasks(items: list[CaseItem], enough: int) -> Iterator[Task]:
    """Make tasks of consecutive groups of one file and device. A task with enough cases takes no further group."""
    some: list[CaseItem] = []
    for _, group in groupby(items, key=lambda item: (_place(item), _group(item.case))):
        more = list(group)
        if some and (_place(some[0]) != _place(more[0]) or len(some) >= enough):
            yield _task(some)
            some = []
        some += more
    if some:
        yield _task(some)


def _group(case: Case) -> tuple[str, ...]:
    return case.operator.id, case.variant.kind, case.dtype


def _place(item: CaseItem) -> tuple[str, str]:
    return _file(item), item.case.device.name


def _file(item: CaseItem) -> str:
    return os.path.relpath(item.path)


def _task(items: list[CaseItem]) -> Task:
    case = items[0].case
    part = Part(_file(items[0]), case.device.name, tuple(item.case.id for item in items))
    return Task(part, case.device, {item.nodeid: item for item in items})
