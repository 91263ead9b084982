"""`opcheck.load`, `opcheck.plan` and `opcheck.run`: specs from a script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from operators import right

import opcheck

ROOT = Path(__file__).resolve().parent.parent.parent

SPEC = """
[defaults]
samples  = [{ args = [{ shape = [2] }] }]
supports = { out = false, vmap = false, forward_ad = false, batched_grad = false }

[[operator]]
name = "operators.right.square"
tags = ["quick"]
supports = { vmap = true, forward_ad = true, batched_grad = true }

[[operator]]
name = "operators.faulty.wrong_sign"

[[operator]]
name = "operators.right.sqare"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.opcheck]\nspecs = ["specs"]\nmodules = ["operators"]\nseed = 4\n')
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "own.toml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def library(folder):
    return opcheck.load(project=folder)


def test_specs_are_those_of_the_project_unless_others_are_named(folder, library):
    assert [operator.spec.name for operator in library] == [
        "operators.right.square", "operators.faulty.wrong_sign", "operators.right.sqare",
    ]  # fmt: skip
    assert len(opcheck.load(folder / "specs" / "own.toml", project=folder)) == 3
    assert len(opcheck.load("builtin")) > 400


def test_paths_are_relative_to_the_calling_file():
    library = opcheck.load("../../examples/custom_op/specs", project="examples/custom_op")
    assert len(library) > 0


@pytest.mark.parametrize(
    ("path", "meant", "near"),
    [
        ("../../examples/custom_op/spec", "examples/custom_op/spec", "../../examples/custom_op/specs"),
        ("examples/custom_op/specs", "tests/api/examples/custom_op/specs", "../../examples/custom_op/specs"),
        ("no_such_folder", "tests/api/no_such_folder", ""),
    ],
)
def test_a_path_that_is_not_beside_the_calling_file_is_a_mistake(path, meant, near, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(opcheck.SpecError) as raised:
        opcheck.load("builtin", path)
    (problem,) = raised.value.problems
    assert (problem.file, problem.nearest) == ("tests/api/test_plan.py", near)
    assert problem.what.startswith(f'no such file or folder: "{path}", which means ')
    assert os.path.normpath(problem.what.rpartition(" ")[2]) == meant


def test_code_without_a_file_names_paths_in_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {"opcheck": opcheck}
    exec(compile("library = opcheck.load('specs/own.toml')", "<notebook>", "exec"), names)
    assert len(names["library"]) == 3
    with pytest.raises(opcheck.SpecError, match=r"^specs/on.toml:1:1: no such file or folder; .*specs/own.toml"):
        exec(compile("opcheck.load('specs/on.toml')", "<notebook>", "exec"), names)


def test_mistakes_are_told_with_their_place(folder):
    (folder / "specs" / "own.toml").write_text(
        SPEC + '[[operator.expect]]\nwhen = { check = "bakward" }\noutcome = "fail"\nreason = "x"\n'
    )
    with pytest.raises(opcheck.SpecError, match=r'own.toml:17:18: unknown check "bakward".*did you mean "backward"'):
        opcheck.load(project=folder)


def test_names_select_cases(folder, library):
    cases = opcheck.plan(
        library, tag="quick", check=["backward", "vmap"], device="cpu", dtype="floating", project=folder
    )
    assert [case.id for case in cases] == [
        "operators.right.square::backward[cpu-float64]", "operators.right.square::vmap[cpu-float64]",
    ]  # fmt: skip
    assert {case.base_seed for case in cases} == {4}
    assert {case.base_seed for case in opcheck.plan(library, device="cpu", seed=0, project=folder)} == {0}


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"check": "bakward"}, 'unknown check "bakward".*did you mean "backward"'),
        ({"device": "cud"}, 'unknown device "cud".*did you mean "cuda"'),
        ({"operator": "operators.right.sqre"}, 'no operator matches "operators.right.sqre"; did you mean'),
        ({"tag": "quik"}, 'unknown tag "quik".*did you mean "quick"'),
        ({"check": "backward", "dtype": "int8"}, "^no case is selected$"),
        ({"seed": -1}, "^seed = -1 is not a seed; expected a whole number of at least 0$"),
    ],
)
def test_names_that_select_nothing_are_mistakes(library, selection, message):
    with pytest.raises(ValueError, match=message):
        opcheck.plan(library, **selection)


def test_dtypes_may_be_those_of_torch(library):
    assert {case.dtype for case in opcheck.plan(library, dtype=torch.float64)} == {"float64"}
    assert {case.dtype for case in opcheck.plan(library, dtype=[torch.float16, "int64", "double"])} == {
        "float16", "float64", "complex128",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda library: opcheck.plan(library, operator=3), "^operator expects a name or several, not int$"),
        (lambda library: opcheck.plan(library, check=[None]), "^check expects a name or several, not NoneType$"),
        (lambda library: opcheck.plan(library, dtype=float), "^dtype expects a name or several, not type$"),
        (
            lambda library: opcheck.plan("specs"),
            "^opcheck.plan expects a Library, as opcheck.load returns it, not str$",
        ),
        (lambda library: opcheck.load(["specs"]), "^specs are paths, each an argument of its own, not list$"),
        (lambda library: opcheck.cases(3), "^specs are paths, each an argument of its own, not int$"),
    ],
)
def test_what_is_no_name_no_path_and_no_library_is_refused(library, call, message):
    with pytest.raises(TypeError, match=message):
        call(library)


@pytest.mark.parametrize("key", ["operator", "check", "device", "dtype", "tag"])
def test_no_name_at_all_selects_nothing(library, key):
    with pytest.raises(ValueError, match=f"^{key} has no names: nothing would be selected; expected at least one, or"):
        opcheck.plan(library, **{key: []})


def test_a_project_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(opcheck.SpecError, match=r"^tests/api/test_plan.py:\d+:1: no such folder: .*/none"):
        opcheck.load("builtin", project=tmp_path / "none")


def test_cases_run_to_outcomes_in_their_order(folder, library):
    cases = opcheck.plan(library, check="backward", device="cpu", dtype="float64", project=folder)
    outcomes = opcheck.run(cases, project=folder)
    assert [outcome.id for outcome in outcomes] == [case.id for case in cases]
    assert [outcome.outcome for outcome in outcomes] == ["passed", "failed", "error"]
    assert [outcome.is_bad for outcome in outcomes] == [False, True, True]
    assert 'did you mean "operators.right.square"' in outcomes[2].message
    assert "--seed 4" in outcomes[1].message
    assert {outcome.seed for outcome in outcomes} == {4}


def test_the_process_is_left_as_it_was(folder, library):
    with torch.no_grad():
        opcheck.run(opcheck.plan(library, tag="quick", check="backward", device="cpu"), project=folder)
        assert not torch.is_grad_enabled()


def test_one_case_or_something_else_is_refused(library):
    cases = opcheck.plan(library, tag="quick", device="cpu")
    with pytest.raises(TypeError, match=r"write opcheck.run\(\[case\]\)"):
        opcheck.run(cases[0])
    with pytest.raises(TypeError, match=r"expects cases, as .* returns them, not function"):
        opcheck.run([right.square])
    assert opcheck.run([]) == []


def test_loading_and_planning_do_without_torch():
    script = "opcheck.plan(opcheck.load('builtin'), operator='torch.sin'); print('torch' in sys.modules)"
    command = [sys.executable, "-c", f"import opcheck, sys; {script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
