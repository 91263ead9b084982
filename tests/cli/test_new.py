"""`opcheck new`: what is refused before anything is called, and what already has a spec."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from demo_project import Finished, Project

Cli = Callable[..., Finished]
ARRAY = "'[{ shape = [2, 3] }, 0.5]'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--args", "[{shap=[1]}]"], '--args [{shap=[1]}]: unknown key "shap"; expected one of shape, values, dtype, '),
        (["--args", "{kwarg={}}"], '; did you mean "kwargs"?'),
        (["--args", "3"], f"--args 3: an integer (3); expected TOML such as {ARRAY} or "),
        (["--args", "[3"], f"--args [3: Unclosed array (at end of document); expected TOML such as {ARRAY} or "),
        (["--module", "{arg=[3]}"], '--module {arg=[3]}: unknown key "arg"; expected one of args, kwargs, train, init'),
        (["--from-tests", "nope::test_it"], "--from-tests nope::test_it: no such file or folder"),
    ],
)
def test_an_option_that_cannot_be_meant_says_what_is_expected(
    cli: Cli, project: Project, options: list[str], message: str
) -> None:
    run = cli("new", "demo.double", *options)
    assert message in run.err
    assert "validation error" not in run.err
    assert run.code == 2


def test_an_operator_that_another_spec_of_the_project_has_is_left_out(cli: Cli, project: Project) -> None:
    project.write("squares.py", "def square(x):\n    return x * x\n\ndef cube(x):\n    return x**3\n")
    project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["squares"]\nspecs = ["specs"]\n')
    project.write("specs/own.toml", '[[operator]]\nname = "squares.square"\nsamples = [{ args = [{ shape = [2] }] }]\n')
    run = cli("new", "squares", "-n", "1")
    assert "specs/own.toml has 1 operator of squares already" in run.out
    assert "squares.square" not in (project.folder / "specs" / "squares.toml").read_text()
    assert "wrote 1 operator" in run.out
    assert "wrote 2 operators" in cli("new", "squares", "-n", "1", "--output", "elsewhere.toml").out


def test_tests_that_call_no_operator_are_said(cli: Cli, project: Project) -> None:
    run = cli("new", "demo.double", "-n", "1", "--from-tests", "demo.py", "--output", "elsewhere.toml")
    assert "no calls were recorded in the tests" in run.out
    assert "wrote 1 operator" in run.out
