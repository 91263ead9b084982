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
from pathlib import Path
from typing import NamedTuple

import pytest

from opcheck.cli.run.start import run_cases
from opcheck.cli.stdout import terminated_as_interrupt
from opcheck.spec import SpecError
from opcheck.spec.versions import version_of


class Job(NamedTuple):
    """The data that all tasks of a run share. Paths are relative to `folder`."""

    folder: str
    """The working directory, with the same path on each node."""
    options: argparse.Namespace
    """The options of `opcheck run`, without those that select cases or write reports."""
    files: Mapping[str, str]
    """A digest of each spec file, by path."""
    versions: Mapping[str, str]
    """The versions that a node must have."""


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all nodes: opcheck, torch and Python. Does not import torch."""
    installed = {name: version_of(name) for name in ("opcheck", "torch")}
    return {**installed, "Python": ".".join(platform.python_version_tuple()[:2])}


def digest(file: str) -> str:
    """Return a digest of a file. Raises OSError."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def run_part(job: Job, file: str, device: str, names: Sequence[str]) -> list[pytest.TestReport] | str:
    """Run cases of a file on a device in a worker process, with limits of time and memory.

    names: the ids of the cases. Returns their reports, or an error message if the cases cannot be run.
    """
    if refusal := _refusal(job, file):
        return f"opcheck: {refusal}"
    options, taken = copy.copy(job.options), _Taken()
    options.device, options.paths = [device], [f"{file}::{name}" for name in names]
    with (
        terminated_as_interrupt(),
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        try:
            code = run_cases(options, [taken])
        except SpecError as error:
            return str(error)
    if code in (0, 1) or taken.reports:
        return taken.reports
    return said.getvalue().strip() or "pytest refuses its arguments"


def _refusal(job: Job, file: str) -> str:
    """Return why this node cannot run cases of a file, else an empty string. Enters the folder of the run."""
    node, installed = socket.gethostname(), versions()
    for name, wanted in job.versions.items():
        if installed[name] != wanted:
            return (
                f"node {node} has {name} {installed[name]}, but the run was started with {wanted}; "
                "install the same version on every node"
            )
    try:
        os.chdir(job.folder)
        if digest(file) == job.files[file]:
            return ""
    except OSError as error:
        return f"node {node} cannot read the project: {error}; every node needs it at the same path"
    return f"{file} on node {node} differs from the file on the machine that started the run; synchronize the project"


class _Taken:
    """A pytest plugin that collects the reports of a session."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report, without the worker that pytest-xdist adds to it, which cannot be sent to other processes."""
        kept = copy.copy(report)
        kept.__dict__.pop("node", None)
        self.reports.append(kept)
