"""What a task of Ray does: it runs pytest for some cases, and returns their reports."""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import hashlib
import importlib.metadata
import io
import os
import platform
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from opcheck.cli.run_reporter import RunReporter, silence
from opcheck.cli.workers import Workers
from opcheck.devices.presence import chosen_devices
from opcheck.pytest_plugin.project import PLUGIN, Plugin
from opcheck.report.terminal import TerminalReport
from opcheck.running.watchdog import Limits, default_memory
from opcheck.running.worker import SelfWatched


@dataclass(frozen=True)
class Job:
    """What all tasks of a run have in common. Paths are relative to the folder."""

    folder: str
    """The working directory, with the same path on each node."""
    options: argparse.Namespace
    """The options of `opcheck run`, without its selection and its reports."""
    survey: list[str]
    """The command line of pytest that collects all cases of the run."""
    arguments: list[str]
    """The command line of pytest for cases that run in its process. A file follows."""
    contained: list[str]
    """The command line of pytest for cases that run in a worker. Their ids follow."""
    limits: Limits
    """How much time and memory a case may use. Without a memory limit, it depends on what its node has."""
    files: Mapping[str, str] = field(default_factory=dict)
    """A digest of each spec file."""
    versions: Mapping[str, str] = field(default_factory=lambda: versions())
    """The versions that a node must have."""


@dataclass(frozen=True)
class Part:
    """The cases of one task: some groups of one file on one device."""

    file: str
    device: str
    names: tuple[str, ...]
    """The ids of the cases."""


@dataclass
class Answer:
    """What a task returns."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    """The reports of its cases, serialized as pytest does."""
    errors: list[str] = field(default_factory=list)
    """Why no case can be run, or not all of them."""


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all nodes. Does not import torch."""
    installed = {name: importlib.metadata.version(name) for name in ("opcheck", "torch")}
    return {**installed, "Python": ".".join(platform.python_version_tuple()[:2])}


def digest(path: Path) -> str:
    """Return a digest of a file. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_part(job: Job, part: Part) -> Answer:
    """Run cases in this process. If one of them ends it, nothing is returned."""
    refusal = _refusal(job, part)
    if refusal:
        return Answer(errors=[f"opcheck: {refusal}"])
    process = _Process.of(job)
    return process.survey(part.device) or process.run(part)


def run_part_contained(job: Job, part: Part) -> Answer:
    """Run cases in a worker of its own, as `opcheck run` does. A case that ends it has an outcome that says why."""
    refusal = _refusal(job, part)
    if refusal:
        return Answer(errors=[f"opcheck: {refusal}"])
    from rich.console import Console

    options = copy.copy(job.options)
    options.device = [part.device]
    options.ray = socket.gethostname()  # a task of a cluster: nobody has named the device but the run
    workers = Workers(_limits(job))
    with open(os.devnull, "w") as nowhere:
        reporter = RunReporter(TerminalReport(Console(file=nowhere)), options, workers)
        place = f"./{part.file}" if part.file.startswith("-") else part.file
        cases = [f"{place}::{name}" for name in part.names]
        answer = _answer([*job.contained, f"--opcheck-device={part.device}", *cases], _Taken(), [reporter, workers])
    if reporter.mistake is not None:
        answer.errors = [str(reporter.mistake)]
    elif workers.stillborn:
        answer.errors = [f"opcheck: {workers.stillborn}"]
    return answer


def _refusal(job: Job, part: Part) -> str:
    """Return why this node must not run cases of a run; an empty string if it may."""
    node = socket.gethostname()
    installed = versions()
    for name, wanted in job.versions.items():
        if installed[name] != wanted:
            return f"the node {node} has {name} {installed[name]}, and the run began with {wanted}"
    try:
        os.chdir(job.folder)
        same = digest(Path(part.file)) == job.files[part.file]
    except OSError as error:
        return f"the node {node} lacks what the run needs, under the same path: {error}"
    return "" if same else f"on the node {node}, {part.file} is another file than where the run began"


def _limits(job: Job) -> Limits:
    return Limits(job.limits.seconds, job.limits.memory or default_memory(os.cpu_count() or 1))


class _Process:
    """What the tasks that this process runs, one after the other, have in common: as in a worker of `opcheck run`."""

    _only: ClassVar[_Process | None] = None

    @classmethod
    def of(cls, job: Job) -> _Process:
        """Return that of this process. Ray gives no process to two runs."""
        cls._only = cls._only or cls(job)
        return cls._only

    def __init__(self, job: Job) -> None:
        self._job = job
        self.worker = SelfWatched(_limits(job))
        self.kept: Plugin | None = None
        """The state of the plugin after the survey, whose settings, files and session the others share."""
        self._surveyed: dict[str, object] = {}
        """What Ray has assigned to this process, by the device that is tested on it."""

    def survey(self, device: str) -> Answer | None:
        """Collect all cases of the run on a device, in order. Return the answer if there is something wrong with them.

        So that names that do not exist are told before any case runs, and what an import changes in the process belongs
        to the same operator in each process. The first time, the modules of all devices of the run are imported:
        autograd has no thread for a device that is registered after the first backward pass.
        """
        assigned = _assigned()
        if device in self._surveyed:
            if self._surveyed[device] != assigned or (self.kept is not None and self.kept.session.lost_to):
                os._exit(1)  # torch keeps to the devices that it found first, and nothing mends a broken one
            return None
        arguments = [*self._job.survey, f"--opcheck-device={device}", "--collect-only"]
        answer = _answer(arguments, _Taken(self))
        if answer.errors or self.kept is None:
            return answer
        if not self._surveyed:
            for profile in chosen_devices(self._job.options.device, self.kept.settings):
                self.kept.session.availability(profile)
        self._surveyed[device] = assigned
        return None

    def run(self, part: Part) -> Answer:
        """Run some cases."""
        gc.collect()  # what the last session has left; the next collection need not look at the rest
        gc.freeze()
        arguments = [*self._job.arguments, f"--opcheck-device={part.device}", part.file]
        return _answer(arguments, _Taken(self, {Path(part.file).resolve(): set(part.names)}))


def _assigned() -> object:
    """Return the accelerators that Ray lets this task use."""
    import ray  # type: ignore[import-not-found, unused-ignore]

    return ray.get_runtime_context().get_accelerator_ids()


class _Taken:
    """A pytest plugin: takes the reports of a session, and makes it one of this process's if there is one."""

    def __init__(self, process: _Process | None = None, selected: Mapping[Path, set[str]] | None = None) -> None:
        self.process = process
        self.selected = selected
        self.answer = Answer()
        self.configured: Callable[[], object] = lambda: None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Share what the process has."""
        self.configured()
        self._config = config
        if self.process is None:
            return
        silence(config)
        plugin = config.stash[PLUGIN]
        plugin.worker = self.process.worker
        if self.process.kept is not None:
            kept = self.process.kept
            plugin.settings, plugin.catalogue, plugin.session = kept.settings, kept.catalogue, kept.session
        if self.selected is not None:
            plugin.selected = {path: set(names) for path, names in self.selected.items()}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep what the survey has found."""
        if self.process is not None and self.process.kept is None:
            self.process.kept = session.config.stash[PLUGIN]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take an error in collection."""
        if report.failed:
            self.answer.errors.append(str(report.longrepr))

    def pytest_internalerror(self, excrepr: object) -> None:
        """Take an error in pytest or in one of its plugins."""
        self.answer.errors.append(str(excrepr))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report."""
        if "node" in report.__dict__:  # pytest-xdist's: it cannot be sent
            report = copy.copy(report)
            del report.__dict__["node"]
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.answer.reports.append(data)


def _answer(arguments: list[str], taken: _Taken, plugins: list[object] | None = None) -> Answer:
    """Run pytest, and return what the plugin has taken."""
    with contextlib.ExitStack() as redirected:
        said = redirected.enter_context(contextlib.redirect_stderr(io.StringIO()))
        taken.configured = redirected.close  # from then on, operators may print
        code = pytest.main(arguments, plugins=[taken, *(plugins or [])])
    if code == pytest.ExitCode.USAGE_ERROR and not taken.answer.errors:
        taken.answer.errors.append(said.getvalue().strip() or "pytest refuses its arguments")
    return taken.answer
