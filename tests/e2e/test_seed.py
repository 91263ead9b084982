"""`--seed`: other values for the same samples, named wherever a run is described."""

from __future__ import annotations

import pytest

KEEPS = """

def kept(x):
    with open("seen.txt", "a") as file:
        print(x.tolist(), file=file)
    return Wrong.apply(x)
"""

CHECK = ("--check=backward", "--operator=demo.kept", "--report-json=report.json")
ID = "demo.kept::backward[cpu-float64]"


@pytest.fixture
def drawn(project, cli):
    """Return a function that runs the case, and gives the first values that the operator saw, and what was reported."""
    project.write("demo.py", (project.folder / "demo.py").read_text() + KEEPS)
    spec = (project.folder / "specs/bad.toml").read_text()
    project.write("specs/bad.toml", spec.replace("demo.wrong", "demo.kept"))

    def run_case(*options, settings=""):
        project.write("pyproject.toml", f'[tool.opcheck]\nspecs = ["specs"]\nmodules = ["demo"]\n{settings}')
        (project.folder / "seen.txt").unlink(missing_ok=True)
        run = cli("run", *CHECK, *options)
        return (project.folder / "seen.txt").read_text().splitlines()[0], run

    return run_case


@pytest.mark.parametrize(
    "processes", [(), pytest.param(("-n", "1"), marks=pytest.mark.nightly)], ids=["in-process", "worker"]
)
def test_another_seed_draws_other_values_and_is_named(drawn, processes):
    usual, first = drawn()
    assert drawn("--seed", "0", *processes)[0] == usual
    other, run = drawn("--seed=7", *processes)
    assert other != usual
    assert drawn("--seed", "7")[0] == other
    record = run.records[ID]
    assert (first.records[ID]["seed"], record["seed"]) == (0, 7)
    assert f"run just this: opcheck run --seed 7 'specs/bad.toml::{ID}'" in record["message"]
    assert "1 case in" in run.out
    assert " s with seed 7: 1 failed" in run.out
    assert "--seed" not in first.records[ID]["message"]
    assert "with seed" not in first.out


def test_the_project_may_have_a_seed_of_its_own(drawn):
    usual, _ = drawn()
    seven, _ = drawn("--seed=7")
    of_project, run = drawn(settings="seed = 7\n")
    assert of_project == seven
    assert "--seed 7" in run.records[ID]["message"]
    again, run = drawn("--seed=0", settings="seed = 7\n")
    assert again == usual
    assert "--seed 0" in run.records[ID]["message"], "without it, the seed of the project would count"


def test_plain_pytest_has_it_too(drawn, project, plain_pytest):
    seven, _ = drawn("--seed=7")
    (project.folder / "seen.txt").unlink()
    run = plain_pytest("specs", "-k", "demo.kept and backward", "--opcheck-seed=7", "--opcheck-report-json=report.json")
    assert (project.folder / "seen.txt").read_text().splitlines()[0] == seven
    assert run.records[ID]["seed"] == 7


def test_cases_take_a_seed(drawn, project, plain_pytest):
    drawn()
    project.write(
        "test_own.py",
        """
import opcheck

def values(**seed):
    (case,) = opcheck.cases(operator="demo.kept", check="backward", **seed).mark.args[1]
    return case.inputs()[0].leaves[0].tolist()

def test_own():
    assert values() == values(seed=0) != values(seed=7) == values(seed=7)
""",
    )
    assert plain_pytest("-p", "no:cacheprovider", "test_own.py").code == 0


@pytest.mark.parametrize("seed", ["-1", "1.5", "x", "²"])
def test_what_is_no_seed_is_refused(cli, project, seed):
    run = cli("run", f"--seed={seed}")
    assert run.code == 2
    assert f'"{seed}" is not a seed; expected a whole number of at least 0' in run.err


def test_a_seed_of_the_project_is_a_whole_number(cli, project):
    project.write("pyproject.toml", "[tool.opcheck]\nseed = -1\n")
    assert "pyproject.toml:2:8: seed is out of range: -1; expected a number of at least 0" in cli("run").err
