"""What a user's mistakes look like: one line each, with its place, from every way in."""

from __future__ import annotations

import os
import time

import pytest

SPEC = """
[[operator]]
name    = "torch.sin"
samples = [{ use = "unary" }]
"""


def spec(*lines, name="torch.sin", samples='[{ use = "unary" }]'):
    return "\n".join(["[[operator]]", f'name    = "{name}"', f"samples = {samples}", *lines, ""])


EXPECT = ["[[operator.expect]]", 'when = { check = "backward" }', 'outcome = "{}"', 'reason = "known"']

MISTAKES = {
    "unknown key": (spec("dtype = []"), "4:1: ", 'unknown key "dtype"', 'did you mean "dtypes"?'),
    "wrong type": (spec('tags = "fast"'), "4:8: ", "expected"),
    "unknown template": (spec(samples='[{ use = "unari" }]'), "3:20: ", '"unari"', 'did you mean "unary"?'),
    "unknown dtype": (spec('dtypes = { forward = ["flaot32"] }'), "4:23: ", '"flaot32"', 'did you mean "float32"?'),
    "illegal outcome": (spec(*EXPECT).replace("{}", "fails"), "6:11: ", '"fails"', 'did you mean "fail"?'),
    "unknown check": (
        spec(*EXPECT).replace("{}", "fail").replace("backward", "bakward"),
        "5:18: ", 'unknown check "bakward"', 'did you mean "backward"?',
    ),
    "no such case": (
        spec(*EXPECT, "[operator.supports]", "backward = false").replace("{}", "fail"),
        "5:8: ", "matches no case",
    ),
    "broken": (spec("tags = [", 'notes = "'), "", "invalid TOML"),
    "empty": ("", "1:1: ", 'missing key "operator"; expected at least one [[operator]]'),
    "outside": (spec(name="os.system"), "2:11: ", '"os.system" is outside the allowed modules'),
    "million samples": (
        spec(samples=f"[{{ grid = {{ a = {list(range(1000))}, b = {list(range(1000))} }} }}]"),
        "3:", "too many samples: 1000000", "at most 1000",
    ),
    "huge tensor": (spec(samples="[{ args = [{ shape = [1000000, 1000000] }] }]"), "3:22: ", "1000000000000 elements"),
}  # fmt: skip


def well_formed(line):
    """Tell whether a line reads `file:line:column: what ...`."""
    file, row, column, what = line.split(":", 3)
    return file.endswith(".toml") and row.isdecimal() and column.isdecimal() and what.startswith(" ")


@pytest.mark.parametrize("command", ["validate", "run"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(cli, project, command, mistake):
    text, place, *words = MISTAKES[mistake]
    project.write("wrong.toml", text)
    run = cli(command, "wrong.toml")
    (line,) = run.err.splitlines()
    assert line.startswith(f"wrong.toml:{place}")
    assert well_formed(line)
    assert [word for word in words if word not in line] == []
    assert (run.code, run.out) == (2, "")


@pytest.mark.parametrize("command", ["validate", "run", "list"])
def test_a_missing_file_is_told_with_the_nearest_one(cli, command):
    run = cli(command, "specs/god.toml")
    assert run.err.splitlines() == [
        "specs/god.toml:1:1: no such file or folder; expected a TOML file, a folder of them, or builtin; "
        'did you mean "specs/good.toml"?'
    ]
    assert run.code == 2


@pytest.mark.parametrize("command", [["validate", "--resolve"], ["run"]])
def test_a_misspelt_operator_is_told_once_torch_is_asked(cli, project, command):
    project.write("wrong.toml", spec('variants = ["method"]', name="torch.sinn"))
    assert cli("validate", "wrong.toml").code == 0
    run = cli(*command, "wrong.toml")
    assert run.err.splitlines() == [
        'wrong.toml:2:11: "torch.sinn": torch has no attribute "sinn"; did you mean "torch.sin"?'
    ]
    assert run.code == 2


def test_an_operator_whose_import_fails_is_told_with_the_reason(cli, project):
    project.write("demo_broken.py", "raise ValueError('a bad day')")
    project.write("demo_needs.py", "import surely_not_installed")
    project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["demo_broken", "demo_needs"]\n')
    project.write("wrong.toml", spec(name="demo_broken.f") + spec(name="demo_needs.f"))
    run = cli("run", "wrong.toml")
    assert run.err.splitlines() == [
        'wrong.toml:2:11: importing "demo_broken" failed: ValueError: a bad day',
        "wrong.toml:5:11: importing \"demo_needs\" failed: No module named 'surely_not_installed'",
    ]
    assert run.code == 2


def test_an_operator_that_is_not_selected_need_not_be_there(cli, project):
    project.write("specs/other.toml", spec(name="demo.not_there"))
    assert cli("run", "--operator=demo.double", "--check=variants").code == 0
    assert cli("run", "--check=variants").code == 2


def test_a_mistake_in_the_settings_has_its_place(cli, project):
    project.write("pyproject.toml", '[tool.opcheck]\nspec = ["specs"]\n')
    for command in ("run", "validate", "list"):
        run = cli(command)
        assert run.err.startswith('pyproject.toml:2:1: unknown key "spec"; expected one of specs, ')
        assert run.err.endswith('did you mean "specs"?\n')
        assert run.code == 2


@pytest.mark.parametrize("command", ["run", "validate", "list"])
def test_a_folder_that_the_settings_name_and_that_does_not_exist_is_told_at_its_place(cli, project, command):
    project.write("pyproject.toml", '[tool.opcheck]\nspecs = ["specs", "more"]\n')
    run = cli(command)
    assert run.err == (
        'pyproject.toml:2:19: no such file or folder: "more"; expected a TOML file, or a folder of them\n'
    )
    assert (run.code, run.out) == (2, "")
    assert cli(command, "specs/god.toml").err.startswith("specs/god.toml:1:1: ")


@pytest.mark.parametrize("command", ["run", "validate"])
def test_settings_beside_the_specs_that_do_not_apply_are_named_with_a_mistake(cli, project, command):
    (project.folder / "pyproject.toml").unlink()
    project.write("below/pyproject.toml", '[tool.opcheck]\nmodules = ["torch", "mylib"]\n')
    project.write("below/specs/wrong.toml", spec(name="mylib.sin"))
    mistake, note = cli(command, "below/specs").err.splitlines()
    assert mistake.startswith('below/specs/wrong.toml:2:11: "mylib.sin" is outside the allowed modules; ')
    assert note == (
        f"opcheck: the settings of below/pyproject.toml do not apply: {project.folder} and the folders above have no "
        "pyproject.toml; expected opcheck to run in below"
    )
    project.write("pyproject.toml", "")
    _, note = cli(command, "below/specs").err.splitlines()
    assert " do not apply: those of pyproject.toml do; " in note


def test_a_path_that_is_no_text_is_told_before_workers_start(cli, project):
    project.write(os.fsdecode(b"specs/\xff.toml"), spec())
    run = cli("run", "-n", "1")
    assert run.err.startswith("opcheck: specs/\\udcff.toml: the path is no utf-8 text; expected another name, ")
    assert (run.code, run.out, len(run.err.splitlines())) == (2, "", 1)


def test_mistakes_of_several_files_come_all_at_once(cli, project):
    project.write("wrong/a.toml", spec("dtype = []", "tag = []"))
    project.write("wrong/b.toml", spec("dtypes = 3"))
    project.write("wrong/c.toml", spec(*EXPECT).replace("{}", "fail").replace("backward", "bakward"))
    for command in ("run", "validate"):
        run = cli(command, "wrong")
        lines = run.err.splitlines()
        assert [line.split(": ")[0] for line in lines] == [
            "wrong/a.toml:4:1", "wrong/a.toml:5:1", "wrong/b.toml:4:10", "wrong/c.toml:5:18",
        ]  # fmt: skip
        assert run.code == 2


@pytest.mark.nightly
def test_plain_pytest_shows_the_same_lines_and_no_traceback(shared):
    def run(project):
        for name, (text, *_) in MISTAKES.items():
            project.write(f"specs/{name.replace(' ', '_')}.toml", text)
        return project.run("pytest", "specs")

    shown = shared("pytest_mistakes", run)
    lines = [line for line in shown.out.splitlines() if line.startswith("specs/") and well_formed(line)]
    lines = [line for line in lines if '"torch.sin" is described twice' not in line]
    assert {line.split(":")[0] for line in lines} == {f"specs/{name.replace(' ', '_')}.toml" for name in MISTAKES}
    assert len(lines) == len(MISTAKES)
    assert "Traceback" not in shown.out + shown.err
    assert ".py:" not in shown.out + shown.err
    assert "12 errors during collection" in shown.out
    assert shown.code == 2


def test_the_command_answers_to_a_mistake_at_once(shared):
    def run(project):
        project.write("wrong.toml", MISTAKES["million samples"][0] + MISTAKES["huge tensor"][0])
        start = time.monotonic()
        finished = project.run("opcheck", "run", "wrong.toml")
        assert (
            time.monotonic() - start < 60
        )  # a second on a machine that has nothing else to do, hours for a million samples
        return finished

    shown = shared("mistake", run)
    assert len(shown.err.splitlines()) == 2
    assert (shown.code, shown.out) == (2, "")


def test_two_files_that_describe_the_same_operator_are_told_by_pytest_too(pytester):
    for name in ("a", "b"):
        pytester.makefile(".toml", **{name: spec()})
    result = pytester.runpytest("a.toml", "b.toml", "--collect-only", "-q")
    result.stdout.fnmatch_lines(['b.toml:2:11: operator "torch.sin" is described twice; first at a.toml:2; expected*'])
    assert result.ret == 2


CAUSES = """
import torch


class Overwrites(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        gradient = v * 2 * x
        x.data.copy_(gradient.detach())
        return gradient


def needs_a_keyword(x, *, weight):
    return x * weight


overwrites = Overwrites.apply
"""


@pytest.fixture
def reported(cli, project):
    """Return a function that runs an operator of `causes`, and gives headings and the lines that name other cases."""
    settings = (project.folder / "pyproject.toml").read_text()
    project.write("pyproject.toml", settings.replace('"demo"', '"demo", "causes"'))
    project.write("causes.py", CAUSES)

    def run(name):
        entry = f'name = "causes.{name}"\ndtypes = {{ forward = ["float64"] }}\nsupports = {{ forward_ad = false }}\n'
        project.write("one.toml", f"[[operator]]\n{entry}samples = [{{ args = [{{ shape = [2, 2] }}] }}]\n")
        lines = cli("run", "one.toml", "--device", "cpu").out.splitlines()
        headings = [line.strip("─ ") for line in lines if line.startswith("─") and "[cpu-" in line]
        return headings, [line for line in lines if line.startswith(("the same: ", "not judged because of it: "))]

    return run


def test_a_forgotten_keyword_is_one_report_and_names_the_other_cases(reported):
    headings, (others,) = reported("needs_a_keyword")
    assert len(headings) == 2  # the other one is that of `dtypes`, which claims that it works
    assert headings[0] == "error causes.needs_a_keyword::backward[cpu-float64]"
    assert others.startswith("the same: ")
    assert others.endswith(" more")


def test_a_backward_pass_that_overwrites_its_input_is_one_report(reported):
    headings, (others,) = reported("overwrites")
    assert [heading for heading in headings if "purity" in heading]
    assert others.startswith("not judged because of it: ")
    assert "backward[cpu-float64]" in others
    assert "variants" not in others  # that there is no out= is another matter
