"""The script of action.yml, in a project of somebody else, with files in place of GitHub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from demo_project import Project, written
from report_files import lines

from opcheck.report.merge import merge
from opcheck.report.store import read, write

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "action/opcheck.sh"
BIN = Path(sys.executable).parent

MATRIX = """
[tool.opcheck.matrix]
dtypes = ["float64"]
shards = 2
"""


@dataclass
class Done:
    code: int
    out: str
    summary: str
    output: str


class Action:
    """Steps of the action in a project."""

    def __init__(self, project):
        self.project = project
        self.folder = project.folder
        self.path = [str(BIN)]

    def step(self, *words, **variables):
        """Run a step with variables such as `device`, as the action passes them."""
        names = {"summary": "GITHUB_STEP_SUMMARY", "output": "GITHUB_OUTPUT"}
        files = {key: self.folder / f".{key}" for key in names}
        for file in files.values():
            file.write_text("")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "OPCHECK_"))}
        environment |= {names[key]: str(file) for key, file in files.items()}
        environment |= {f"OPCHECK_{key.upper()}": value for key, value in variables.items()}
        environment |= {"PATH": os.pathsep.join([*self.path, os.environ["PATH"]]), "GITHUB_WORKFLOW": "their-ci"}
        done = subprocess.run(
            ["bash", str(SCRIPT), *words], cwd=self.folder, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, *(file.read_text() for file in files.values()))

    def program(self, name, text):
        """Put a program in front of those of the machine."""
        path = self.project.write(f"programs/{name}", f"#!/usr/bin/env bash\n{text}")
        path.chmod(0o755)
        self.path.insert(0, str(path.parent))

    def records(self, name):
        return [line for line in lines(self.folder / name) if "id" in line]


def adopted(project):
    """Return the action in a project that has a matrix."""
    project.write("pyproject.toml", (project.folder / "pyproject.toml").read_text() + MATRIX)
    project.write("specs/sines.toml", '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]\n')
    return Action(project)


@pytest.fixture
def action(project):
    return adopted(project)


FEW = "--check backward,variants --in-process"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The project after the jobs of its matrix, for several tests."""
    action = adopted(written(tmp_path_factory.mktemp("ran")))
    printed = action.step("matrix")
    assert (printed.code, printed.summary) == (0, "")
    name, _, jobs = printed.output.partition("=")
    assert name == "matrix"
    codes = []
    for job in json.loads(jobs)["include"]:
        variables = {key: value for key, value in job.items() if isinstance(value, str)}
        codes.append(action.step("run", **variables, options=FEW).code)
    assert sorted(codes) == [0, 1], "the job with demo.wrong fails, and leaves its report"
    return action.folder, jobs


@pytest.fixture
def finished(ran, tmp_path):
    """A copy of the project after the jobs of its matrix."""
    folder, matrix = ran
    action = Action(Project(shutil.copytree(folder, tmp_path / "copy")))
    action.matrix = matrix
    return action


@pytest.mark.nightly
def test_a_project_gets_matrix_summary_and_annotations(finished):
    reports = sorted(path.name for path in (finished.folder / "opcheck-reports").iterdir())
    assert reports == ["cpu-float64-1of2.json", "cpu-float64-2of2.json"]
    done = finished.step("report", matrix=finished.matrix)
    assert "::error file=specs/bad.toml,line=5,col=13," in done.out
    assert "demo.wrong" in done.summary
    assert "Since the last report" not in done.summary
    merged = [record["id"] for record in finished.records("opcheck-report/opcheck.json")]
    assert len(merged) == len(set(merged)) == sum(len(finished.records(f"opcheck-reports/{name}")) for name in reports)
    assert "<html" in (finished.folder / "opcheck-report/opcheck.html").read_text()
    assert done.code == 1, "a case failed, and there is no base that has it, too"


@pytest.mark.nightly
def test_a_report_without_failures_passes_without_a_base(finished):
    for path in (finished.folder / "opcheck-reports").iterdir():
        path.write_text(path.read_text().replace('"outcome": "failed"', '"outcome": "passed"'))
    assert finished.step("report", matrix=finished.matrix).code == 0


@pytest.mark.nightly
def test_a_failure_that_the_base_has_passes(finished):
    assert finished.step("report", matrix=finished.matrix).code == 1
    base = finished.project.write("opcheck-base/opcheck.json", "")
    base.write_bytes((finished.folder / "opcheck-report/opcheck.json").read_bytes())
    assert finished.step("report", matrix=finished.matrix).code == 0


@pytest.mark.nightly
def test_the_last_report_divides_shards_and_tells_what_is_new(finished):
    reports = sorted((finished.folder / "opcheck-reports").iterdir())
    base = finished.folder / "opcheck-base/opcheck.json"
    write(merge((path.name, read(path)) for path in reports), base)
    base.write_text(base.read_text().replace('"outcome": "failed"', '"outcome": "passed"'))
    done = finished.step("matrix")
    assert done.out.startswith("opcheck: no job tests ")  # the matrix of the project is of double precision
    assert (len(done.out.splitlines()), base.exists()) == (1, True)
    done = finished.step("report", matrix=finished.matrix)
    assert done.code == 1
    assert "demo.wrong::backward[cpu-float64]" in done.summary.partition("Since the last report")[2]
    again = finished.step("run", id="again", device="cpu", dtype="float64", shard="1/2", options=FEW)
    assert "--durations" in lines(finished.folder / "opcheck-reports/again.json")[0]["command"], again.out


@pytest.mark.nightly
def test_a_job_that_left_no_report_is_a_failure(finished):
    (finished.folder / "opcheck-reports/cpu-float64-2of2.json").unlink()
    done = finished.step("report", matrix=finished.matrix)
    assert done.code == 1
    assert "::error title=opcheck::no report of: cpu, float64, shard 2/2\n" in done.out
    assert "- cpu, float64, shard 2/2\n" in done.summary
    assert (finished.folder / "opcheck-report/opcheck.json").exists()


def test_no_report_at_all_is_one_too(action):
    done = action.step("report")
    assert (done.code, done.out) == (1, "::error title=opcheck::there is no report\n")


@pytest.mark.nightly
def test_one_job_does_it_all_without_a_matrix(action):
    done = action.step("all", options=f"{FEW} --operator demo.*")
    assert done.code == 1
    assert "::error file=specs/bad.toml,line=5,col=13," in done.out
    assert "demo.wrong" in done.summary


def test_a_mistake_in_the_matrix_ends_the_first_job(action):
    path = action.folder / "pyproject.toml"
    path.write_text(path.read_text().replace("shards = 2", "shards = 0"))
    done = action.step("matrix")
    assert (done.code, done.output) == (2, "")
    assert "pyproject.toml:8:10: shards is out of range: 0" in done.out


@pytest.mark.nightly
def test_options_are_split_as_a_shell_does(action):
    done = action.step("run", options=f"{FEW} --operator 'demo.*' -k 'double and backward'")
    assert done.code == 0
    done = action.step("run", options="-k 'double")
    assert (done.code, done.out) == (2, "the options cannot be split: No closing quotation: -k 'double\n")


@pytest.mark.parametrize("matrix", ["{", "[]", '{"include": [1]}', '{"include": [{"id": "cpu"}]}'])
def test_a_malformed_matrix_is_told(action, matrix):
    done = action.step("report", matrix=matrix)
    assert done.code == 2
    assert done.out == "OPCHECK_MATRIX is no matrix; expected what opcheck matrix --format github prints\n"


@pytest.mark.nightly
def test_a_job_about_an_absent_device_does_not_pass(action):
    done = action.step("run", device="mps")
    assert done.code == 2
    assert "the device mps is not present: " in done.out
    assert not (action.folder / "opcheck-reports").exists()
    assert "no such device" in action.step("run", device="cup").out


def test_a_last_report_of_no_use_is_told_and_dropped(action):
    base = action.project.write("opcheck-base/opcheck.json", "[]")
    done = action.step("matrix")
    assert done.code == 0
    assert "::warning title=opcheck::nothing is compared, since the last report is of no use: " in done.out
    assert not base.exists()


GH = """
echo "$@" >> asked
if [ "$1 $2" = "run list" ]; then echo 31; echo 30; echo 29; exit; fi
[ "$3" = "$HAVING" ] || { echo "no valid artifacts found" >&2; exit 1; }
mkdir -p "$7" && echo "{}" > "$7/opcheck.json"
"""


def test_the_last_report_is_that_of_the_latest_run_that_has_one(action, monkeypatch):
    action.program("gh", GH)
    monkeypatch.setenv("HAVING", "30")
    done = action.step("base", "main")
    assert done.code == 0
    assert "compared with the report of run 30\n" in done.out
    listed, *downloads = (action.folder / "asked").read_text().splitlines()
    assert listed.startswith("run list --workflow their-ci --branch main --status completed")
    assert downloads == [f"run download {run} --name opcheck-report --dir opcheck-base" for run in (31, 30)]
    assert (action.folder / "opcheck-base/opcheck.json").exists()


def test_a_branch_need_not_have_a_report(action, monkeypatch):
    action.program("gh", GH)
    monkeypatch.setenv("HAVING", "none")
    done = action.step("base", "main")
    assert done.code == 0
    assert "::notice title=opcheck::main has no report yet" in done.out


@pytest.mark.parametrize(
    ("first", "what"), [("", "list the runs"), ('[ "$1 $2" != "run list" ] || { echo 31; exit; }\n', "fetch a report")]
)
def test_a_failing_gh_is_told(action, first, what):
    action.program("gh", f"{first}echo 'HTTP 401: Bad credentials' >&2; exit 4")
    done = action.step("base", "main")
    assert "HTTP 401: Bad credentials" in done.out
    assert f"::warning title=opcheck::gh cannot {what} of main: nothing is compared" in done.out
    assert "has no report yet" not in done.out


PYTHON = """
echo "$@" >> "$HOME_OF_TEST/asked"
[ "$1" = -m ] || exec "$REAL" "$@"
[ "${*: -1}" != /dev/stdin ] || cat >> "$HOME_OF_TEST/required"
"""


@pytest.mark.parametrize("parts", ["whole", "without-torch"])
def test_planning_and_reporting_need_no_torch(action, monkeypatch, parts):
    action.program("python", PYTHON)
    monkeypatch.setenv("HOME_OF_TEST", str(action.folder))
    monkeypatch.setenv("REAL", sys.executable)
    assert action.step("install", parts, torch="2.13.0", install="-e . demo").code == 0
    asked = [line for line in (action.folder / "asked").read_text().splitlines() if line.startswith("-m")]
    if parts == "whole":
        assert asked == ["-m pip install torch==2.13.0", f"-m pip install {ROOT}[reference] -e . demo"]
    else:
        assert asked == [f"-m pip install --no-deps {ROOT}", "-m pip install --requirement /dev/stdin"]
        required = (action.folder / "required").read_text()
        assert "pydantic>=" in required
        assert "torch" not in required
        assert "extra" not in required


def test_a_step_that_is_none_is_told_so(action):
    done = action.step("rnu")
    assert done.code == 2
    assert done.out == 'opcheck.sh: unknown step "rnu"; expected one of install, base, matrix, run, report, all\n'
