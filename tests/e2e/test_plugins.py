"""Checks of a project's own: registered in a module that `[tool.opcheck] plugins` names, or in conftest.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from opcheck.planning.kinds import REGISTERED, check_kinds

SETTINGS = """
[tool.opcheck]
specs   = ["specs"]
modules = ["torch", "demo"]
plugins = ["my_checks"]
"""

CHECKS = '''
import opcheck


@opcheck.register_check
def doubled(subject):
    """Outputs are twice the input."""
    return bool((subject.outputs[0] == 2 * subject.leaves[0]).all())


@opcheck.register_check(dtypes="one")
def tripled(subject):
    """Outputs are three times the input."""
    return bool((subject.outputs[0] == 3 * subject.leaves[0]).all())
'''

ONLY = ("--check=doubled,tripled", "--operator=demo.wrong", "--report-json=report.json")
OUTCOMES = {"demo.wrong::doubled[cpu-float64]": "passed", "demo.wrong::tripled[cpu-float64]": "failed"}


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """Take out again what a command inside this process registers."""
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)
    check_kinds.cache_clear()


@pytest.fixture
def plugged(project):
    project.write("pyproject.toml", SETTINGS)
    project.write("my_checks.py", CHECKS)
    return project


@pytest.mark.parametrize(
    "processes",
    [pytest.param((), id="in-process"), pytest.param(("-n", "1"), id="worker", marks=pytest.mark.nightly)],
)
def test_opcheck_run_and_its_workers_know_the_checks_of_a_plugin(cli, plugged, processes):
    run = cli("run", *ONLY, *processes)
    assert (run.code, run.outcomes) == (1, OUTCOMES)
    reason = run.records["demo.wrong::tripled[cpu-float64]"]["reason"]
    assert reason == "tripled: this does not hold: outputs are three times the input"


def test_the_plugin_in_the_documents_works(cli, project):
    page = (Path(__file__).resolve().parent.parent.parent / "docs" / "api.md").read_text()
    section = page.split("## A check of your own")[1].split("## Reference")[0]
    code, settings = re.findall(r"```(?:python|toml)\n(.*?)```", section, re.DOTALL)
    project.write("my_checks.py", code)
    project.write("pyproject.toml", settings + 'specs = ["specs"]\nmodules = ["demo"]\n')
    run = cli("run", "--check=finite", "--report-json=report.json")
    assert (run.code, set(run.outcomes.values())) == (0, {"passed"})
    assert "demo.double[inplace]::finite[cpu-float64]" in run.outcomes


def test_plain_pytest_knows_them_with_marks(plain_pytest, plugged):
    run = plain_pytest("specs", "-m", "doubled or tripled", "-k", "demo.wrong", "--opcheck-report-json=report.json")
    assert (run.code, run.outcomes) == (1, OUTCOMES)
    markers = plugged.run("pytest", "--markers").out
    assert "@pytest.mark.doubled: opcheck: outputs are twice the input" in markers


def test_list_show_and_validate_know_them(cli, plugged):
    assert cli("list", "--check=doubled", "--operator=demo.wrong").out == "demo.wrong::doubled[cpu-float64]\n"
    assert "demo.wrong::doubled [cpu-float64]" in cli("show", "demo.wrong").out
    expectation = '[[operator.expect]]\nwhen = { check = "%s" }\noutcome = "fail"\nreason = "no"\n'
    good = (plugged.folder / "specs/bad.toml").read_text()
    plugged.write("specs/bad.toml", good + expectation % "tripled")
    assert cli("validate").code == 0
    plugged.write("specs/bad.toml", good + expectation % "tippled")
    run = cli("validate")
    assert run.code == 2
    assert 'unknown check "tippled"' in run.err
    assert 'did you mean "tripled"' in run.err


def test_cases_and_check_know_them(plain_pytest, plugged):
    plugged.write(
        "test_own.py",
        """
import demo, opcheck, pytest, torch

@opcheck.cases(check="tripled", operator="demo.wrong")
def test_case(case):
    assert case.case.check == "tripled"

def test_check():
    x = torch.ones(2, dtype=torch.float64)
    with pytest.raises(opcheck.CheckError, match="three times"):
        opcheck.check(demo.wrong, x, checks=["doubled", "tripled"])
    assert opcheck.check(demo.wrong, x, checks="doubled").passed
""",
    )
    run = plain_pytest("-p", "no:cacheprovider", "test_own.py")
    assert run.code == 0, run.out


def test_a_conftest_of_the_root_folder_registers_for_plain_pytest(plain_pytest, project):
    project.write("conftest.py", CHECKS)
    run = plain_pytest(
        "specs", "--opcheck-check=doubled", "--opcheck-operator=demo.wrong", "--opcheck-report-json=report.json"
    )
    assert (run.code, run.outcomes) == (0, {"demo.wrong::doubled[cpu-float64]": "passed"})


@pytest.mark.parametrize(
    ("plugins", "text", "message"),
    [
        (
            '["my_chekcs"]', CHECKS,
            '5:12: no module named "my_chekcs"; expected a module on sys.path or in FOLDER; did you mean "my_checks"?',
        ),
        ('["my_checks"]', "1 / 0", 'importing the plugin "my_checks" failed: ZeroDivisionError: division by zero'),
        ('["my_checks"]', "import nowhere", 'importing the plugin "my_checks" failed: ModuleNotFoundError: No module'),
        ('["my_checks"]', "raise SystemExit(3)", 'importing the plugin "my_checks" failed: SystemExit: 3'),
        (
            '["my_checks", "others"]', CHECKS,
            '5:25: importing the plugin "others" failed: ValueError: the check "doubled" is registered twice',
        ),
        ('"my_checks"', CHECKS, '5:11: wrong type for plugins: a string ("my_checks"); expected an array'),
    ],
    ids=["no module", "raises", "its import is missing", "exits", "twice", "no array"],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run", "pytest"])
def test_what_is_wrong_with_a_plugin_is_told_in_words(cli, plain_pytest, plugged, command, plugins, text, message):
    plugged.write("pyproject.toml", SETTINGS.replace('["my_checks"]', plugins))
    plugged.write("my_checks.py", text)
    plugged.write("others.py", text)
    run = plain_pytest("specs") if command == "pytest" else cli(command)
    told = run.out + run.err
    assert "pyproject.toml:5:" in told
    assert message.replace("FOLDER", str(plugged.folder.resolve())) in " ".join(told.split())
    assert "Traceback" not in told
    assert run.code == 2


@pytest.mark.parametrize(
    ("roots", "message"),
    [
        ({"mine": ["bakward"]}, 'the check "mine" rests on an unknown check "bakward"; expected '),
        (
            {"mine": ["backward", "mine"]},
            "checks rest on each other in a circle: mine rests on mine; expected a more basic check",
        ),
        (
            {"mine": ["yours"], "yours": ["hers"], "hers": ["mine"]},
            "checks rest on each other in a circle: mine rests on yours rests on hers rests on mine; "
            "expected a more basic check",
        ),
    ],
    ids=["unknown", "itself", "circle"],
)
def test_a_check_that_rests_on_what_it_cannot_is_a_mistake_of_its_package(project, roots, message):
    kinds = [f'{name} = CheckKind("{name}", "", "mylib:check", rests_on={tuple(on)})' for name, on in roots.items()]
    project.write("mylib.py", "\n".join(["from opcheck.planning import CheckKind", *kinds]))
    listed = "".join(f"{name} = mylib:{name}\n" for name in roots)
    project.write("mylib-1.0.dist-info/entry_points.txt", f"[opcheck.checks]\n{listed}")
    project.write("mylib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mylib\nVersion: 1.0\n")
    for command in (["opcheck", "validate"], ["pytest", "specs", "--opcheck-check", "backward"]):
        run = project.run("python", "-m", *command)
        said = f"entry point mine of mylib:1:1: opcheck.checks: {message}"
        (line,) = [line for line in run.err.splitlines() if said in line]
        assert "Traceback" not in run.out + run.err
        assert run.code in (2, pytest.ExitCode.USAGE_ERROR)
    assert ("unknown" not in message) or line.endswith('did you mean "backward"?')
