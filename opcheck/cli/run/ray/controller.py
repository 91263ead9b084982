"""Runs cases on a Ray cluster: a pytest plugin in the controlling process."""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from itertools import groupby
from typing import Any

import pytest

from opcheck.cli.run.ray.cluster import KNOWN, LOCAL, connected, demand, describe, lacks
from opcheck.cli.run.ray.task import Job, digest, run_part, versions
from opcheck.cli.stdout import terminated_as_interrupt
from opcheck.devices.presence import not_present
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

RETRIES = 2
"""How many times Ray retries a task whose process or node has died."""

PATIENCE = 5.0
"""Seconds without a result after which the cluster is checked again for the resources of the waiting tasks."""

WHOLE_RUN_OPTIONS = (
    "k", "m", "ray", "shard", "durations", "report_json", "junitxml", "x", "lf", "against", "github_annotations",
)  # fmt: skip
"""Options that apply to the run as a whole. Tasks do not get them, nor the options that select cases."""

ADVICE = "; start a cluster that has it (`ray start --head --num-gpus=... --resources=...`), and join it: --ray auto"


class RayRun:
    """A pytest plugin that runs the collected cases as tasks of a cluster."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Create the plugin. options: those of `opcheck run`."""
        self._where = options.ray
        self._cpus = int(options.n) if (options.n or "").isdecimal() else None
        own: dict[str, Any] = {**dict.fromkeys(WHOLE_RUN_OPTIONS), **{name: [] for name in SELECTION}}
        self._options = argparse.Namespace(**{**vars(options), **own, "n": "1", "is_part": True})
        self._waiting: dict[Any, list[CaseItem]] = {}
        """The cases of each task that has not ended."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep this process from importing torch and operators: only tasks need them."""
        self._plugin = config.stash[PLUGIN]
        self._plugin.runs_elsewhere = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all cases. Raises an exception of pytest if the session ends early."""
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None  # pytest's own loop handles these
        self._session = session
        try:
            # Ray prints messages about dead processes. It also sets a signal handler, which ours must replace.
            with redirect_stdout(io.StringIO()), connected(self._where, self._cpus) as ray, terminated_as_interrupt():
                try:
                    self._run(ray, [item for item in session.items if isinstance(item, CaseItem)])
                finally:
                    for task in self._waiting:
                        ray.cancel(task, force=True)
        except RequestError as error:
            pytest.exit(str(error), returncode=2)
        return True

    def _run(self, ray: Any, items: list[CaseItem]) -> None:
        """Run all cases. Raises RequestError if tasks cannot run, an exception of pytest if the session ends early."""
        devices = {item.case.device.name: item.case.device for item in items}
        self._require(ray, (devices[name] for name in self._plugin.names("device") if name in devices))
        absent = {name: why for name, device in devices.items() if (why := lacks(ray, device.resources))}
        self._start(ray, [item for item in items if item.case.device.name not in absent])
        while self._waiting:
            ended, _ = ray.wait([*self._waiting], num_returns=1, timeout=PATIENCE)
            if not ended:
                self._require(ray, (several[0].case.device for several in self._waiting.values()))
            for task in ended:
                self._finish(ray, self._waiting.pop(task), task)
        for item in items:
            if item.case.device.name in absent:
                self._skip(item, absent[item.case.device.name])

    def _start(self, ray: Any, items: list[CaseItem]) -> None:
        """Submit the tasks. Each starts once its resources are free."""
        job = ray.put(Job(os.getcwd(), self._options, {file: digest(file) for file in map(_file, items)}, versions()))
        # max_calls=0: a process is reused for many tasks.
        remote = ray.remote(max_retries=RETRIES, max_calls=0)(run_part)
        cpus = max(int(ray.cluster_resources().get("CPU", 1)), 1)
        for several in _parts(items, min(max(len(items) // (TASKS_PER_CPU * cpus), MIN_CASES), MOST)):
            device = several[0].case.device
            wanted = demand(device.resources)
            known = {name: wanted.pop(name) for name in KNOWN if name in wanted}
            function = remote.options(resources=wanted, name=f"opcheck:{run_part.__name__}", **known)
            names = [item.case.id for item in several]
            self._waiting[function.remote(job, _file(several[0]), device.name, names)] = several

    def _require(self, ray: Any, devices: Iterable[DeviceProfile]) -> None:
        """Raise RequestError if no node of the cluster has the resources that one of the devices needs."""
        for device in {device.name: device for device in devices}.values():
            if lacking := lacks(ray, device.resources):
                asked = f"{describe(demand(device.resources))}, required by a task on {device.name}"
                advice = ADVICE if self._where == LOCAL else ""
                raise RequestError([f"no node of the Ray cluster has {asked}; the nodes have: {lacking}{advice}"])

    def _finish(self, ray: Any, items: list[CaseItem], task: Any) -> None:
        """Report the cases of an ended task. Cases without an outcome are errors, since no task will run them again.

        Raises RequestError if the task raised an error, or could not start.
        """
        errors = ray.exceptions
        answer: list[pytest.TestReport] | str = []
        cause = "the task has ended without an outcome"
        try:
            answer = ray.get(task)
        except (errors.RayTaskError, errors.RaySystemError, errors.RuntimeEnvSetupError) as error:
            answer = _lines(error)[-1]
        except errors.RayError as error:
            died = _lines(error)[0].partition(". ")[0].rstrip(".")
            cause = f"{died}; the task was tried {1 + RETRIES} times"
        if isinstance(answer, str):
            raise RequestError([answer], prefix="")
        left = {item.nodeid: item for item in items}
        for nodeid, own in groupby(answer, key=lambda report: report.nodeid):
            reports = list(own)
            if nodeid in left:
                self._log(left[nodeid], reports)
                if str(reports[-1].outcome) != "rescheduled":
                    del left[nodeid]
        for item in left.values():
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", cause, "call")
            report_death(report, item.case, Death(cause), self._plugin)
            self._log(item, [report])

    def _skip(self, item: CaseItem, nodes: str) -> None:
        """Report a case on a device that the cluster does not have. nodes: the resources of its nodes."""
        why = f"no node of the Ray cluster has the resources of its profile; the nodes have: {nodes}"
        reason = not_present(item.case.device.name, why)
        report = pytest.TestReport(item.nodeid, item.location, {}, "skipped", (_file(item), 0, reason), "call")
        report.__dict__["opcheck"] = Outcome.of(item.case, "skipped", reason).record()
        self._log(item, [report])

    def _log(self, item: CaseItem, reports: list[pytest.TestReport]) -> None:
        """Report a case, as pytest-xdist does. Raises an exception of pytest if the session must end early."""
        session, name, place = self._session, item.nodeid, item.location
        session.config.hook.pytest_runtest_logstart(nodeid=name, location=place)
        for report in reports:
            session.config.hook.pytest_runtest_logreport(report=report)
        session.config.hook.pytest_runtest_logfinish(nodeid=name, location=place)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


def _parts(items: list[CaseItem], enough: int) -> Iterator[list[CaseItem]]:
    """Yield the cases of each task: consecutive groups of one file and device, until there are enough cases.

    A group is never divided, since its cases share evidence.
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


def _lines(error: BaseException) -> list[str]:
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
