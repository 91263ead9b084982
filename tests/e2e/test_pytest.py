"""Plain `pytest`: what it collects, what it leaves alone, and how it gets on with a project's own tests."""

from __future__ import annotations

import json

import pytest
import torch  # noqa: F401 - imported before pytest runs within pytest, which would forget it again
from demo_project import written

CASES = ["demo.double::backward[cpu-float64]", "demo.double[[]inplace[]]::backward[cpu-float64]"]

OWN_TEST = """
def test_own(request):
    assert True
"""

OTHER_TOML = """
[[operator]]
this = "belongs to somebody else"

[template]
this = "too"
"""


@pytest.fixture
def project(pytester):
    """The demo project, with tests of its own, and a TOML file among them that is none of opcheck's business."""
    project = written(pytester.path)
    project.write("tests/test_own.py", OWN_TEST)
    project.write("tests/data/other.toml", OTHER_TOML)
    project.write("other.toml", OTHER_TOML)
    return project


def collected(pytester, *arguments):
    """Return the ids of what pytest collects."""
    result = pytester.runpytest("--collect-only", "-q", *arguments)
    assert result.ret == 0, result.outlines
    return [line for line in result.outlines if "::" in line]


BACKWARD = [
    "specs/bad.toml::demo.wrong::backward[cpu-float64]",
    "specs/good.toml::demo.double::backward[cpu-float64]",
    "specs/good.toml::demo.double[inplace]::backward[cpu-float64]",
]
OWN = ["tests/test_own.py::test_own"]


class TestCollection:
    @pytest.mark.parametrize("arguments", [[], ["."], ["specs", "tests"], ["-p", "no:cacheprovider"]])
    def test_specs_of_the_project_and_its_tests_are_collected_and_nothing_else(self, pytester, project, arguments):
        assert sorted(collected(pytester, "-k", "backward or own", *arguments)) == sorted(BACKWARD + OWN)

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["specs/good.toml"], BACKWARD[1:]),
            (["specs/bad.toml::demo.wrong::backward[cpu-float64]"], BACKWARD[:1]),
            ([BACKWARD[2]], BACKWARD[2:]),
            ([BACKWARD[2], BACKWARD[0]], [BACKWARD[2], BACKWARD[0]]),
            (["tests"], OWN),
        ],
    )
    def test_what_the_command_line_names_is_collected(self, pytester, project, arguments, expected):
        assert collected(pytester, "-k", "backward or own", *arguments) == expected

    def test_files_and_folders_outside_the_settings_can_be_given(self, pytester, project):
        project.write("more/sin.toml", '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }]\n')
        project.write("more/notes.toml", 'title = "no specs"\n')
        case = "more/sin.toml::torch.sin::backward[cpu-float64]"
        for given in ("more", "more/sin.toml", case):
            assert collected(pytester, given, "--opcheck-dtype=float64", "-k", "torch.sin::backward") == [case]

    def test_specs_can_be_named_in_the_settings_of_pytest(self, pytester, project):
        project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["demo"]\n')
        assert collected(pytester, "-k", "backward or own") == OWN
        project.write("pytest.ini", "[pytest]\nopcheck_specs = specs/good.toml\n")
        assert collected(pytester, "-k", "backward or own") == BACKWARD[1:] + OWN

    def test_a_project_that_does_not_use_opcheck_is_undisturbed(self, pytester, project):
        project.write("pyproject.toml", '[project]\nname = "somebody"\n')
        for arguments in ([], ["."], ["tests/test_own.py"]):
            assert collected(pytester, *arguments) == OWN

    def test_plugins_names_do_not_clash_with_those_of_a_project(self, pytester, project):
        project.write("conftest.py", "def pytest_addoption(parser): parser.addoption('--device', default='tpu')\n")
        project.write("pytest.ini", "[pytest]\naddopts = --strict-markers --strict-config\n")
        assert collected(pytester, "-k", "backward", "--device=gpu") == BACKWARD


class TestSelection:
    def test_marks_select(self, pytester, project):
        assert collected(pytester, "-m", "backward and quick and float64 and cpu") == BACKWARD[1:]

    def test_a_whole_id_selects(self, pytester, project):
        assert collected(pytester, "-k", "demo.double[inplace]::backward[cpu-float64]") == BACKWARD[2:]

    def test_options_of_the_plugin_select(self, pytester, project):
        options = (
            "--opcheck-check=backward",
            "--opcheck-operator=*.double",
            "--opcheck-tag=quick",
            "--opcheck-device=cpu",
        )
        assert collected(pytester, "specs", *options) == BACKWARD[1:]

    @pytest.mark.parametrize(
        ("option", "line"),
        [
            ("--opcheck-check=bakward", 'unknown check "bakward"; expected*did you mean "backward"?'),
            ("--opcheck-dtype=flaot32", 'unknown dtype "flaot32"; expected*did you mean "float32"?'),
            ("--opcheck-device=cud", 'unknown device "cud"; expected one of cpu, cuda; did you mean "cuda"?'),
            ("--opcheck-report-json=specs", "the report cannot be written: *"),
        ],
    )
    def test_a_wrong_name_is_told(self, pytester, project, option, line):
        result = pytester.runpytest("specs", option)
        result.stderr.fnmatch_lines([f"ERROR: {line}"])
        assert result.ret == pytest.ExitCode.USAGE_ERROR

    def test_an_id_that_does_not_exist_is_told_with_the_nearest_one(self, pytester, project):
        result = pytester.runpytest("specs/good.toml::demo.duble::backward[cpu-float64]")
        near = "demo.double::backward[[]cpu-float64[]]"
        wrong = "demo.duble::backward[[]cpu-float64[]]"
        result.stdout.fnmatch_lines([f'specs/good.toml has no case "{wrong}"; did you mean "{near}"?'])
        assert "Traceback" not in result.stdout.str()
        assert result.ret == 2


class TestRunning:
    def test_a_failing_case_shows_its_message_and_no_traceback(self, pytester, project):
        result = pytester.runpytest("specs", "--opcheck-check=backward", "--opcheck-report-json=report.json")
        result.assert_outcomes(passed=2, failed=1)
        message = json.loads((pytester.path / "report.json").read_text())[0]["message"]
        assert message in result.stdout.str()
        assert "Traceback" not in result.stdout.str()
        assert ".py:" not in result.stdout.str()
        assert "run just this: opcheck run 'specs/bad.toml::demo.wrong::backward[cpu-float64]'" in result.outlines

    def test_what_failed_runs_first_or_alone_another_time(self, pytester, project):
        options = ("specs", "--opcheck-check=backward", "-q")
        pytester.runpytest(*options).assert_outcomes(passed=2, failed=1)
        pytester.runpytest(*options, "--lf").assert_outcomes(failed=1)
        pytester.runpytest(*options, "-x").assert_outcomes(failed=1)
        pytester.runpytest(*options, "--sw").assert_outcomes(failed=1)

    def test_an_absent_device_is_one_line(self, pytester, project, monkeypatch):
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        result = pytester.runpytest("specs", "--opcheck-device=cuda", "--opcheck-check=backward", "-q")
        result.assert_outcomes(skipped=3)
        result.stdout.fnmatch_lines(["opcheck: 3 cases skipped: the device cuda is not present: *"])
        assert result.ret == 0

    def test_tests_and_specs_run_side_by_side(self, pytester, project):
        pytester.runpytest("-k", "own or backward").assert_outcomes(passed=3, failed=1)

    def test_a_time_out_is_told_without_a_traceback(self, pytester, project):
        project.write("hang", "")
        project.write("hang.toml", '[[operator]]\nname = "demo.hangs"\nsamples = [{ args = [{ shape = [2] }] }]\n')
        result = pytester.runpytest("hang.toml", "--timeout=0.3", "--opcheck-check=vmap", "--opcheck-dtype=float64")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["Timeout (>0.3s) from pytest-timeout."])
        assert "demo.py" not in result.stdout.str()

    def test_marks_are_listed_with_what_the_checks_claim(self, pytester, project):
        result = pytester.runpytest("--markers")
        result.stdout.fnmatch_lines(
            ["@pytest.mark.backward: opcheck: the reverse-mode Jacobian equals the numerical one*"]
        )
