"""Which cases `opcheck run` runs, and what it says to requests that make no sense."""

from __future__ import annotations

import json
import keyword
import shlex

import pytest

REPORTS = ("--report-json", "report.json", "--junitxml", "report.xml")
BACKWARD = {
    "demo.wrong::backward[cpu-float64]": "failed",
    "demo.double::backward[cpu-float64]": "passed",
    "demo.double[inplace]::backward[cpu-float64]": "passed",
}


def only(*names):
    return {name: outcome for name, outcome in BACKWARD.items() if name in names}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--check", "backward"], BACKWARD),
        (["--check=backward", "--operator", "demo.double"], only(*list(BACKWARD)[1:])),
        (["--check=backward", "--operator", "*.wrong,*.double"], BACKWARD),
        (["--check=backward", "--tag", "quick"], only(*list(BACKWARD)[1:])),
        (["--check=backward", "-m", "quick and cpu and float64"], only(*list(BACKWARD)[1:])),
        (["-m", "backward and not quick"], only(next(iter(BACKWARD)))),
        (["-k", "demo.double[inplace]::backward[cpu-float64]"], only("demo.double[inplace]::backward[cpu-float64]")),
        (["-k", "backward and double and not inplace"], only("demo.double::backward[cpu-float64]")),
        (["specs/good.toml", "--check=backward"], only(*list(BACKWARD)[1:])),
        (["specs/good.toml::demo.double[inplace]::backward[cpu-float64]"], only(list(BACKWARD)[2])),
        (
            ["specs/bad.toml::demo.wrong::backward[cpu-float64]", f"specs/good.toml::{list(BACKWARD)[1]}"],
            only(*list(BACKWARD)[:2]),
        ),
        (["--check=dtypes", "--dtype=int8", "--operator=demo.wrong"], {"demo.wrong::dtypes[cpu-int8]": "failed"}),
        (["--check=dtypes,vmap", "--dtype=double", "--tag=quick"], {
            "demo.double::dtypes[cpu-float64]": "passed",
            "demo.double::dtypes[cpu-complex128]": "failed",
            "demo.double::vmap[cpu-float64]": "passed",
        }),
    ],
)  # fmt: skip
def test_selection_runs_these_and_no_others(cli, options, expected):
    run = cli("run", *options, *REPORTS)
    assert run.outcomes == expected
    assert run.code == ("failed" in expected.values())
    counted = "1 case" if len(expected) == 1 else f"{len(expected)} cases"
    assert f"{counted} in " in run.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--atol", "inf"], '"inf" is not a tolerance; expected a finite number of at least 0'),
        (["--timeout", "nan"], '"nan" is not a time limit; expected seconds, at most 1e+09, or 0 for none'),
        (["--memory", "-5"], '"-5" is not a memory limit; expected a whole number of MiB, at least 1'),
    ],
)
def test_limits_out_of_range_are_refused(cli, words, message):
    run = cli("run", *words)
    assert run.err.splitlines()[-1] == f"opcheck run: error: argument {words[0]}: {message}"
    assert (run.code, run.out) == (2, "")


def test_the_first_failure_ends_a_run_with_x(cli):
    run = cli("run", "-x", "--check=backward", *REPORTS)
    assert run.outcomes == only("demo.wrong::backward[cpu-float64]")
    assert run.out.splitlines()[-1] == "stopped at a failure, after 1 of 3 cases"
    assert run.code == 1


def test_what_failed_last_time_runs_alone_with_lf(cli):
    assert cli("run", "--check=backward", *REPORTS).outcomes == BACKWARD
    assert cli("run", "--check=backward", "--lf", *REPORTS).outcomes == only("demo.wrong::backward[cpu-float64]")


def test_all_that_holds_gives_exit_code_0(cli):
    assert cli("run", "--tag=quick", "--check=variants").code == 0


def in_a_worker(option, expression, column):
    """Return the options of a run in another process, and the line that it prints."""
    line = f"opcheck: Wrong expression passed to '{option}': {expression}: at column {column}: "
    return pytest.param(["-n", "1", option, expression], line, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--check=bakward"], 'unknown check "bakward"; expected one of backward, forward_ad, accuracy'),
        (["--check=bakward"], 'did you mean "backward"?'),
        (["--dtype=flaot32"], 'did you mean "float32"?'),
        (["--tag=quik"], 'unknown tag "quik"; expected quick; did you mean "quick"?'),
        (["--device=cud"], 'unknown device "cud"; expected one of cpu, cuda, mps, xpu; did you mean "cuda"?'),
        (["--operator=demo.duble"], 'no operator matches "demo.duble"; did you mean "demo.double"?'),
        (["-k", "nothing"], "the request selects no case"),
        (["-m", "quick and not cpu"], "the request selects no case"),
        (["--check=vmap", "--dtype=int8"], "the request selects no case"),
        (["--report-json", "specs"], "the report cannot be written"),
        (
            ["specs/good.toml::demo.double[inplaec]::backward[cpu-float64]"],
            'specs/good.toml has no case "demo.double[inplaec]::backward[cpu-float64]"; '
            'did you mean "demo.double[inplace]::backward[cpu-float64]"?',
        ),
        (
            ["specs/good.toml::demo.double::vmap[cpu-float64]", "--dtype=float32", "--tag=quick"],
            'specs/good.toml: the selection (--dtype float32, --tag quick) leaves out "demo.double::vmap[cpu-float64]"',
        ),
        (
            ["specs/good.toml::demo.double::derived[cpu-float64]", "--derive=none"],
            'specs/good.toml: the selection (derive = none) leaves out "demo.double::derived[cpu-float64]"',
        ),
        (["-k", "and and"], "Wrong expression passed to '-k'"),
        in_a_worker("-k", "double and", 11),
        in_a_worker("-m", "quick and", 10),
        (["--junitxml="], 'argument --junitxml: "" is not a file; expected a path'),
        (["--against="], 'argument --against: "" is not a file; expected a path'),
        (["specs/bad.toml", "--tag=quick"], 'opcheck: unknown tag "quick": the specs have no tag'),
        ([""], '"" is not a path; expected a spec file or folder'),
        (["-n", "many"], 'argument -n: "many" is neither a number nor auto'),
    ],
)
def test_a_request_that_makes_no_sense_is_told_so(cli, options, line):
    run = cli("run", *options)
    assert line in run.err
    assert run.code == 2
    assert run.out == ""
    assert "Traceback" not in run.err


def test_several_wrong_names_are_told_at_once(cli):
    run = cli("run", "--check=bakward", "--tag=quik", "--operator=demo.duble", "--dtype=flaot32")
    assert run.code == 2
    assert len(run.err.splitlines()) == 4


def test_numbers_of_the_command_line_win_over_the_spec(cli):
    run = cli("run", "--operator=demo.wrong", "--check=backward", "--atol=1.5", *REPORTS)
    assert run.outcomes == {"demo.wrong::backward[cpu-float64]": "passed"}


def test_a_settings_file_with_a_time_out_is_overruled_by_the_command_line(cli, project):
    project.write("pyproject.toml", (project.folder / "pyproject.toml").read_text() + "timeout = 0.1\n")
    project.write("slow.toml", '[[operator]]\nname = "demo.slow"\nsamples = [{ args = [{ shape = [1] }] }]\n')
    options = ("slow.toml", "--check=vmap", "--dtype=float64", *REPORTS)
    assert set(cli("run", *options).outcomes.values()) == {"error"}
    assert set(cli("run", *options, "--timeout=60").outcomes.values()) == {"passed"}


@pytest.mark.parametrize("name", ["skip", "xfail", "parameterize", "_slow", "not"])
def test_a_tag_that_cannot_be_a_mark_of_ours_is_refused_at_its_place(cli, plain_pytest, project, name):
    text = (project.folder / "specs/good.toml").read_text()
    project.write("specs/good.toml", text.replace('["quick"]', f'["slow", "{name}"]'))
    place = f'specs/good.toml:{text[: text.index("tags")].count(chr(10)) + 1}:21: "{name}" cannot be a '
    run = cli("validate")
    assert run.code == 2
    assert run.err.startswith(place)
    # The other files of the project are collected all the same.
    run = plain_pytest("--collect-only", "-q")
    assert place in run.out
    assert "specs/bad.toml::demo.wrong::backward[cpu-float64]" in run.out


def test_every_other_tag_is_a_mark_to_select_by(plain_pytest, project):
    names = [
        *sorted({*keyword.kwlist, *keyword.softkwlist} - {"and", "not", "or", "_"}),
        "a.b",
        "a-b",
        "a+b",
        "1",
        "größer",
    ]
    text = (project.folder / "specs/good.toml").read_text()
    project.write("specs/good.toml", text.replace('["quick"]', json.dumps(names, ensure_ascii=False)))
    run = plain_pytest("--collect-only", "-q", "--strict-markers", "-m", " and ".join(names), "-k", "double::backward")
    assert run.code == 0, run.out
    assert "specs/good.toml::demo.double::backward[cpu-float64]" in run.out


def test_options_of_the_projects_own_pytest_do_not_get_in_the_way(cli, project):
    project.write("pytest.ini", "[pytest]\naddopts = --strict-markers -k nothing\ntestpaths = tests\n")
    project.write("conftest.py", "def pytest_addoption(parser): parser.addoption('--device')\n")
    (project.folder / "specs" / "build").mkdir()
    (project.folder / "specs/good.toml").rename(project.folder / "specs/build/good.toml")
    assert cli("run", "--check=backward", *REPORTS).outcomes == BACKWARD


def test_plugins_of_the_projects_own_pytest_that_are_missing_leave_no_files(cli, project, monkeypatch):
    project.write("pytest.ini", "[pytest]\naddopts = -p nosuchplugin\n")
    (project.folder / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(project.folder / "temporary"))
    assert cli("run", "--check=backward").code != 0
    assert [*(project.folder / "temporary").glob("opcheck-*")] == []


def test_a_case_of_a_check_that_was_named_can_be_run_again(cli, project):
    first = cli("run", "--derive=none", "--check=derived", "--operator=demo.wrong", "--dtype=float64", *REPORTS)
    (record,) = first.records.values()
    words = shlex.split(record["rerun"])
    assert words[:4] == ["opcheck", "run", "--check", "derived"]
    again = cli(*words[1:], *REPORTS)
    assert (again.code, again.outcomes) == (first.code, first.outcomes)


def test_a_case_that_needs_a_named_check_is_left_out_by_the_selection(cli):
    run = cli("run", "specs/good.toml::demo.double::compile[cpu-float64]")
    assert 'leaves out "demo.double::compile[cpu-float64]"' in run.err
    assert run.code == 2


def test_a_subfolder_of_the_project_will_do_as_the_current_folder(cli, project, monkeypatch):
    monkeypatch.chdir(project.folder / "specs")
    run = cli("run", "--check=backward", "--report-json", "../report.json")
    assert run.outcomes == BACKWARD
    assert "run just this: opcheck run 'bad.toml::demo.wrong::backward[cpu-float64]'" in run.out or (
        f"run just this: opcheck run '{project.folder}/specs/bad.toml::demo.wrong::backward[cpu-float64]'" in run.out
    )
