"""A small project with operators and specs of its own, driven as a user would."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from gc import freeze
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

BIN = Path(sys.executable).parent

LENGTHENING = ("CI", "BUILD_NUMBER")
"""Variables under which pytest repeats whole messages in its summary."""

PYPROJECT = """
[tool.opcheck]
specs = ["specs"]
modules = ["torch", "demo"]
"""

OPERATORS = '''
"""Operators of somebody."""

import os
import time

import torch


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, v):
        return 3 * v


def double(x):
    return 2 * x


def double_(x):
    return x.mul_(2)


def wrong(x):
    return Wrong.apply(x)


def raises(x):
    raise RuntimeError("not today")


def slow(x):
    time.sleep(0.2)
    return 2 * x


def hangs(x):
    if os.path.exists("hang"):
        time.sleep(60)
    return 2 * x


def aborts(x):
    os.abort()


def leaves(x):
    raise SystemExit(3)


def noisy(x):
    return x * torch.rand_like(x)
'''

GOOD = """
[defaults]
dtypes   = { forward = ["float64"], exact = true }
supports = { out = false }
samples  = [{ args = [{ shape = [2] }] }]

[[operator]]
name     = "demo.double"
tags     = ["quick"]
variants = [{ kind = "inplace", target = "demo.double_" }]
"""

BAD = """
[defaults]
dtypes   = { forward = ["float64"], exact = true }
supports = { out = false, vmap = false, forward_ad = false, batched_grad = false }
samples  = [{ args = [{ shape = [2] }] }]

[[operator]]
name = "demo.wrong"
"""


@dataclass
class Finished:
    """What a command left."""

    code: int
    out: str
    err: str
    records: dict[str, dict[str, Any]]
    """The JSON report, by case id."""
    junit: list[dict[str, Any]]
    """Attributes of the test cases of the JUnit report, with `kind` (passed, failure, error, skipped)."""
    header: dict[str, Any]
    """The first and the last line of the report, in one."""

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: record["outcome"] for name, record in self.records.items()}


class Project:
    """A folder with a project, and commands run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command of the virtual environment, without a GPU, and in English."""
        for name in ("report.json", "report.xml"):
            (self.folder / name).unlink(missing_ok=True)
        hidden = ("PYTEST_", "COVERAGE_", "COV_", "COLUMNS")
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(hidden) and key not in LENGTHENING
        }
        environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        environment["PYTEST_ADDOPTS"] = "-p no:hypothesispytest"  # takes as long to load as torch
        return subprocess.Popen(
            [str(BIN / command[0]), *command[1:]], cwd=self.folder, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str], seconds: float = 240) -> Finished:
        out, err = process.communicate(timeout=seconds)
        return Finished(process.returncode, out, err, self.records(), self.junit(), self.header())

    def run(self, *command: str, seconds: float = 240) -> Finished:
        return self.finish(self.start(*command), seconds)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the report."""
        path = self.folder / "report.json"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def records(self) -> dict[str, dict[str, Any]]:
        return {line["id"]: line for line in self.lines() if "id" in line}

    def header(self) -> dict[str, Any]:
        own = [line for line in self.lines() if "id" not in line]
        lost = {"complete": False, "seconds": None, "cases": None} if own else {}
        return {key: value for line in (lost, *own) for key, value in line.items()}

    def junit(self) -> list[dict[str, Any]]:
        path = self.folder / "report.xml"
        cases = ElementTree.parse(path).iter("testcase") if path.exists() else []
        return [{**case.attrib, "kind": case[0].tag if len(case) else "passed"} for case in cases]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in LENGTHENING:
        monkeypatch.delenv(name, raising=False)
    return written(tmp_path)


def written(folder: Path) -> Project:
    project = Project(folder)
    project.write("pyproject.toml", PYPROJECT)
    project.write("demo.py", OPERATORS)
    project.write("specs/good.toml", GOOD)
    project.write("specs/bad.toml", BAD)
    return project


Shared = Callable[[str, Callable[[Project], Any]], Any]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Return a function that does something costly in a fresh project, once for all processes of pytest-xdist."""
    folder = tmp_path_factory.getbasetemp()
    root = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def do(name: str, action: Callable[[Project], Any]) -> Any:
        kept = root / f"{name}.pickle"
        with FileLock(f"{kept}.lock"):
            if not kept.exists():
                shutil.rmtree(root / name, ignore_errors=True)
                kept.write_bytes(pickle.dumps(vars(action(written(root / name)))))
        return Finished(**pickle.loads(kept.read_bytes()))

    return do


@contextmanager
def forgetting(folder: Path) -> Iterator[None]:
    """Forget what is imported from a folder: the next test has other modules of the same names."""
    freeze()  # pytest collects garbage as it ends: what was there before, such as torch, need not be looked at
    paths = sys.path.copy()
    try:
        yield
    finally:
        sys.path[:] = paths
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


@pytest.fixture
def plain_pytest(project: Project, capfd: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Return a function that runs `pytest` inside this process, in the project."""

    def run(*arguments: str) -> Finished:
        with forgetting(project.folder):
            code = int(pytest.main(["--color=no", *arguments]))
        captured = capfd.readouterr()
        return Finished(code, captured.out, captured.err, project.records(), project.junit(), project.header())

    return run


@pytest.fixture
def cli(project: Project, capfd: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Return a function that runs `opcheck` inside this process, in the project: spares importing torch again.

    Cases run in this process, too, but where processes are asked for (-n).
    """
    from opcheck.cli import main

    def run(*arguments: str) -> Finished:
        for name in ("report.json", "report.xml"):
            (project.folder / name).unlink(missing_ok=True)
        if arguments[:1] == ("run",) and "-n" not in arguments:
            arguments = (*arguments, "--in-process")
        try:
            with forgetting(project.folder):
                code = main(arguments)
        except SystemExit as error:  # argparse
            code = int(str(error.code))
        captured = capfd.readouterr()
        return Finished(code, captured.out, captured.err, project.records(), project.junit(), project.header())

    return run
