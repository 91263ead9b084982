"""`opcheck run` tests what the project says, whatever the project's own options of pytest are."""

from __future__ import annotations

import pytest

BACKWARD = ("--check=backward", "--dtype=float64", "--report-json=report.json")

PLUGIN = """
def pytest_addoption(parser):
    parser.addini("my_setting", "of this plugin")
"""

WARNING = """
import warnings

import torch


def warns(x):
    warnings.warn("mind this")
    return 2 * x
"""


def test_specs_named_in_the_settings_of_pytest_are_those_of_the_project(cli, project):
    project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["demo"]\n')
    (project.folder / "specs").rename(project.folder / "ours")
    project.write("pytest.ini", "[pytest]\nopcheck_specs = ours/good.toml\n")
    run = cli("run", *BACKWARD)
    assert run.code == 0
    assert set(run.outcomes) == {"demo.double::backward[cpu-float64]", "demo.double[inplace]::backward[cpu-float64]"}


@pytest.mark.parametrize("options", ["-k nothing", "-x -m nothing", "--deselect specs", "-n 3 --maxfail=1", "--lf"])
def test_options_of_the_project_select_nothing(cli, project, options):
    project.write("pytest.ini", f"[pytest]\naddopts = {options}\n")
    assert len(cli("run", *BACKWARD).outcomes) == 3


@pytest.mark.parametrize(
    "processes",
    [pytest.param((), id="in-process"), pytest.param(("-n", "1"), id="worker", marks=pytest.mark.nightly)],
)
def test_plugins_that_the_project_loads_are_loaded(cli, project, monkeypatch, processes):
    project.write("ours.py", PLUGIN)
    project.write(
        "pytest.ini",
        "[pytest]\npythonpath = .\naddopts = -p ours --strict-config\nmy_setting = 1\nrequired_plugins = pytest-xdist",
    )
    run = cli("run", *BACKWARD, *processes)
    assert len(run.outcomes) == 3
    assert run.err == ""


def test_settings_of_pytests_log_are_no_mistake(cli, project):
    settings = (
        "log_level = INFO\nlog_cli = true\nlog_file = out.log\naddopts = --log-level=INFO\nstrict_config = true\n"
    )
    project.write("pytest.ini", f"[pytest]\n{settings}")
    run = cli("run", *BACKWARD)
    assert (len(run.outcomes), run.err) == (3, "")


def test_no_conftest_is_run(cli, project):
    for folder in (".", "specs"):
        project.write(f"{folder}/conftest.py", "open('seen', 'w').write('code of a pull request')\n")
    assert len(cli("run", *BACKWARD).outcomes) == 3
    assert not (project.folder / "seen").exists()


class TestWarnings:
    @pytest.fixture(autouse=True)
    def warning(self, project):
        project.write("warning.py", WARNING)
        project.write("pyproject.toml", '[tool.opcheck]\nspecs = ["w.toml"]\nmodules = ["warning"]\n')
        project.write("w.toml", '[[operator]]\nname = "warning.warns"\nsamples = [{ args = [{ shape = [2] }] }]\n')

    def test_they_are_no_failure(self, cli):
        assert cli("run", *BACKWARD).outcomes == {"warning.warns::backward[cpu-float64]": "passed"}

    @pytest.mark.parametrize(
        ("ini", "options"),
        [("filterwarnings = error", ()), ("addopts = -W error", ()), ("", ("-W", "error"))],
        ids=["filterwarnings", "addopts", "option"],
    )
    def test_they_are_errors_where_the_project_says_so(self, cli, project, ini, options):
        project.write("pytest.ini", f"[pytest]\n{ini}\n")
        run = cli("run", *BACKWARD, *options)
        (record,) = run.records.values()
        assert record["outcome"] == "error"
        assert record["reason"] == "the operator refuses the sample: UserWarning: mind this"
        assert "Traceback" not in run.out + run.err

    @pytest.mark.nightly
    def test_what_opcheck_itself_does_is_no_warning(self, shared):
        def run(project):
            project.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
            return project.run("opcheck", "run", "specs/good.toml", "--dtype=float64", "--report-json", "report.json")

        run = shared("strict", run)
        assert set(run.outcomes.values()) == {"passed"}
        assert (run.code, run.err) == (0, "")
