"""The workflows, the action and the scripts, as far as programs can check them without GitHub."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCRIPTS = [ROOT / "action/opcheck.sh", ROOT / ".ci/run"]
PLACES = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

Checker = Callable[..., tuple[int, str]]


@pytest.fixture
def checker() -> Checker:
    """Return a function that runs a program over files, and gives its exit code and output."""

    def run(name: str, *arguments: str | Path) -> tuple[int, str]:
        program = shutil.which(name, path=PLACES)
        if program is None:
            pytest.skip(f"{name}, of the extra `dev`, is not installed")
        done = subprocess.run(
            [program, *map(str, arguments)], env={**os.environ, "PATH": PLACES}, cwd=ROOT, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


def test_there_are_workflows_and_scripts() -> None:
    assert {path.name for path in WORKFLOWS} >= {"ci.yml", "device-matrix.yml", "nightly.yml"}
    assert all(path.is_file() for path in SCRIPTS)


def test_macos_runs_the_two_commands_of_the_readme() -> None:
    commands = re.findall(r"^make \w+", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    (job,) = re.findall(
        r"^  macos:\n.*?(?=^  \S)", (ROOT / ".github/workflows/ci.yml").read_text(), re.DOTALL | re.MULTILINE
    )
    assert "runs-on: macos-latest" in job
    assert re.findall(r"- run: (.*)", job) == commands == ["make run", "make test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actionlint_has_no_objection(path: Path, checker: Checker) -> None:
    assert checker("actionlint", "-no-color", path) == (0, "")


def test_actionlint_would_object_to_a_mistake(checker: Checker, tmp_path: Path) -> None:
    text = (ROOT / ".github/workflows/device-matrix.yml").read_text()
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(text.replace("needs.matrix.outputs.matrix", "needs.matrix.outputs.matrices"))
    code, told = checker("actionlint", "-no-color", wrong)
    assert code == 1
    assert 'property "matrices" is not defined' in told


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda path: path.name)
def test_each_is_of_its_schema(path: Path, checker: Checker) -> None:
    schema = "vendor.github-actions" if path.name == "action.yml" else "vendor.github-workflows"
    code, told = checker("check-jsonschema", "--builtin-schema", schema, path)
    assert code == 0, told


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(path: Path, checker: Checker) -> None:
    assert checker("bash", "-n", path) == (0, "")
    assert checker("shellcheck", path) == (0, "")


def test_what_gitlab_gets_is_of_its_schema(
    checker: Checker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matrix", "--format=gitlab"]) == 0  # the matrix of this project
    whole = tmp_path / ".gitlab-ci.yml"
    whole.write_text(
        '.opcheck:\n  image: "python:$OPCHECK_PYTHON"\n  script: [opcheck run]\n' + capsys.readouterr().out
    )
    code, told = checker("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", whole)
    assert code == 0, told


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    """A folder with the files that docs/matrix.md shows."""
    text = (ROOT / "docs/matrix.md").read_text(encoding="utf-8")
    for name, content in re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + (JOB if name == "ci/opcheck-jobs.yml" else ""))
    return tmp_path


JOB = '"cpu": {"extends": ".opcheck", "tags": ["gpu"], "variables": {"OPCHECK_ID": "cpu", "OPCHECK_DEVICE": "cpu"}}\n'
"""What `opcheck matrix` adds to the jobs of GitLab."""


def test_what_the_document_shows_is_sound(documented: Path, checker: Checker) -> None:
    for name in ("opcheck.yml", "opcheck-matrix.yml"):
        assert checker("actionlint", "-no-color", documented / ".github/workflows" / name) == (0, "")
    for name in (".gitlab-ci.yml", "ci/opcheck-jobs.yml"):
        code, told = checker("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", documented / name)
        assert code == 0, told


def test_the_matrix_of_this_project_has_the_pinned_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--format=github"]) == 0
    jobs = json.loads(capsys.readouterr().out)["include"]
    pins = (ROOT / "constraints.txt").read_text()
    assert any(f"torch=={job['torch']}\n" in pins for job in jobs)
    assert len({job["id"] for job in jobs}) == len(jobs) > 1
