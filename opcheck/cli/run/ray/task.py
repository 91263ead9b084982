"""The function that a Ray task calls: it runs cases like `opcheck run`, and returns pytest's reports."""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import io
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from opcheck.cli.run.start import run_cases
from opcheck.running.watchdog import default_memory
from opcheck.settings import Settings
from opcheck.spec import SpecError
from opcheck.spec.versions import version_of

Report = dict[str, Any]


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all nodes: opcheck, torch and Python. Does not import torch."""
    installed = {name: version_of(name) for name in ("opcheck", "torch")}
    return {**installed, "Python": ".".join(platform.python_version_tuple()[:2])}


@dataclass(frozen=True)
class Job:
    """The data that all tasks of a run share. Paths are relative to `folder`."""

    folder: str
    """The working directory, with the same path on each node."""
    options: argparse.Namespace
    """The options of `opcheck run`, without those that select cases or write reports."""
    files: Mapping[str, str]
    """A digest of each spec file, by path."""
    versions: Mapping[str, str] = field(default_factory=versions)
    """The versions that a node must have."""


def digest(path: Path) -> str:
    """Return a digest of a file. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_part(job: Job, file: str, device: str, names: Sequence[str]) -> list[Report] | str:
    """Run cases of a file on a device in a worker process, with limits of time and memory.

    names: the ids of the cases. Returns their reports, as pytest serializes them, or an error message if the cases
    cannot be run.
    """
    refusal = _refusal(job, file)
    if refusal:
        return f"opcheck: {refusal}"
    options, taken = copy.copy(job.options), _Taken()
    place = f"./{file}" if file.startswith("-") else file
    options.device, options.paths = [device], [f"{place}::{name}" for name in names]
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        try:
            settings = Settings.find(profiles=options.device_profile)
            # The memory is divided by the number of CPUs, since a node may run one task on each.
            options.memory = options.memory or settings.memory or default_memory(os.cpu_count() or 1)
            code = run_cases(options, settings, [taken], is_part=True)
        except SpecError as error:
            return str(error)
    if code in (0, 1) or taken.reports:
        return taken.reports
    return said.getvalue().strip() or "pytest refuses its arguments"


def _refusal(job: Job, file: str) -> str:
    """Return why this node cannot run the cases: another version, a missing file or a different one.

    Return an empty string if it can. Changes the working directory to that of the run.
    """
    node = socket.gethostname()
    installed = versions()
    for name, wanted in job.versions.items():
        if installed[name] != wanted:
            return (
                f"node {node} has {name} {installed[name]}, but the run was started with {wanted}; "
                "install the same version on every node"
            )
    try:
        os.chdir(job.folder)
        same = digest(Path(file)) == job.files[file]
    except OSError as error:
        return f"node {node} cannot read the project: {error}; every node needs it at the same path"
    differs = (
        f"{file} on node {node} differs from the file on the machine that started the run; synchronize the project"
    )
    return "" if same else differs


class _Taken:
    """A pytest plugin that collects the reports of a session, serialized."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep the configuration, whose hook serializes reports."""
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Serialize and keep a report."""
        if "node" in report.__dict__:  # set by pytest-xdist; it cannot be serialized
            report = copy.copy(report)
            del report.__dict__["node"]
        self.reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
