"""`@opcheck.cases`: one's own tests over the cases of specs."""

from __future__ import annotations

import textwrap

import pytest
import torch
from demo_project import plain_pytest, project  # noqa: F401 - fixtures

import opcheck
from opcheck.spec import SpecError

SIN = """
[[operator]]
name     = "torch.sin"
variants = ["method"]
tags     = ["smooth"]
samples  = [{ args = [{ shape = [2] }] }, { args = [{ shape = [] }], dtypes = ["float32"] }]

[[operator]]
name     = "torch.add"
samples  = [{ args = [{ shape = [2] }, 1.5], kwargs = { alpha = 2 } }]
supports = { forward_ad = false }
"""

SKIPPING = """
[[operator]]
name    = "torch.sin"
dtypes  = ["float64"]
samples = [{ name = "slow", args = [{ shape = [3] }] }, { name = "fast", args = [{ shape = [2] }] }]

  [[operator.expect]]
  when    = { %s }
  outcome = "skip"
  reason  = "not now"
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "sin.toml"
    path.write_text(SIN)
    return path


def parameters(*specs, **selection):
    """Return the cases that a test would get, by id."""
    mark = opcheck.cases(*specs, **selection).mark
    assert mark.args[0] == "case"
    assert mark.kwargs["ids"] == [case.id for case in mark.args[1]]
    return {case.id: case for case in mark.args[1]}


class TestSelection:
    def test_ids_are_those_of_the_cases(self, path):
        assert list(parameters(path, check="backward", dtype="float64")) == [
            "torch.sin::backward[cpu-float64]", "torch.sin[method]::backward[cpu-float64]",
            "torch.add::backward[cpu-float64]",
        ]  # fmt: skip

    def test_names_select_alone_and_together(self, path):
        assert {case.case.operator.id for case in parameters(path, tag="smooth").values()} == {"torch.sin"}
        assert {case.case.operator.id for case in parameters(path, operator=["torch.add"]).values()} == {"torch.add"}
        both = parameters(path, check=("backward", "vmap"), operator="torch.add", dtype=["float64"])
        assert list(both) == ["torch.add::backward[cpu-float64]", "torch.add::vmap[cpu-float64]"]

    def test_the_cpu_is_the_device_unless_others_are_named(self, path):
        assert {case.case.device.name for case in parameters(path, check="backward").values()} == {"cpu"}
        both = parameters(path, check="backward", device=("cpu", "cuda"))
        assert {case.case.device.name for case in both.values()} == {"cpu", "cuda"}

    @pytest.mark.parametrize(
        ("selection", "message"),
        [
            ({"check": "bakward"}, 'unknown check "bakward".*did you mean "backward"'),
            ({"device": "cud"}, 'unknown device "cud".*did you mean "cuda"'),
            ({"operator": "torch.sinn"}, 'no operator matches "torch.sinn"; did you mean "torch.sin"'),
            ({"tag": "smoth"}, 'unknown tag "smoth".*did you mean "smooth"'),
            ({"dtype": "flaot32"}, 'unknown dtype "flaot32".*did you mean "float32"'),
            ({"check": "backward", "dtype": "int8"}, "no case is selected"),
        ],
    )
    def test_names_that_select_nothing_are_mistakes(self, path, selection, message):
        with pytest.raises(ValueError, match=message):
            opcheck.cases(path, **selection)

    def test_mistakes_of_specs_are_told_with_their_place(self, path):
        path.write_text(SIN + '[[operator.expect]]\nwhen = { check = "bakward" }\noutcome = "fail"\nreason = "x"\n')
        with pytest.raises(SpecError, match=r'sin.toml:13:18: unknown check "bakward"'):
            opcheck.cases(path)


class TestCase:
    def test_a_test_gets_callable_inputs_and_claims(self, path):
        case = parameters(path, check="backward", dtype="float64")["torch.add::backward[cpu-float64]"]
        (inputs,) = case.inputs()
        args, kwargs = inputs.fill()
        assert case.callable is torch.add
        assert torch.equal(case.callable(*args, **kwargs), args[0] + 3.0)
        assert args[0].dtype == torch.float64
        assert [leaf.requires_grad for leaf in inputs.leaves] == [True]
        assert case.claims.supports.forward_ad is False
        assert "float64" in case.claims.backward

    def test_the_callable_is_that_of_the_variant(self, path):
        cases = parameters(path, check="backward", operator="torch.sin", dtype="float64")
        assert [case.callable for case in cases.values()] == [torch.sin, torch.Tensor.sin]

    def test_samples_are_those_that_go_with_the_dtype(self, path):
        cases = parameters(path, check="dtypes", operator="torch.sin", dtype=("float32", "float64"))
        assert {name.rsplit("-")[-1]: len(case.samples()) for name, case in cases.items()} == {
            "float32]": 2, "float64]": 1,
        }  # fmt: skip
        assert all(len(case.inputs()) == len(case.samples()) for case in cases.values())

    def test_inputs_are_the_same_each_time(self, path):
        first, second = (parameters(path, check="backward")["torch.sin::backward[cpu-float64]"] for _ in range(2))
        assert torch.equal(first.inputs()[0].leaves[0], second.inputs()[0].leaves[0])

    def test_samples_that_the_spec_skips_are_left_out(self, path):
        path.write_text(SKIPPING % 'sample = "slow"')
        (case,) = parameters(path, check="backward").values()
        assert [sample.name for sample in case.samples()] == ["fast"]
        assert [inputs.leaves[0].shape for inputs in case.inputs()] == [(2,)]

    @pytest.mark.parametrize("when", ['check = "backward"', 'sample = ["slow", "fast"]', 'engine = "batched"'])
    def test_a_case_of_which_the_spec_leaves_nothing_is_marked(self, path, when):
        path.write_text(SKIPPING % when)
        ((case,), (mark,), _) = opcheck.cases(path, check="backward").mark.args[1][0]
        assert (case.id, mark.name, mark.kwargs) == ("torch.sin::backward[cpu-float64]", "skip", {"reason": "not now"})

    @pytest.mark.parametrize("when", ['engine = "torch"', 'derive = ["none", "thorough"]'])
    def test_what_is_skipped_in_another_kind_of_run_is_not_skipped(self, path, when):
        path.write_text(SKIPPING % when)
        (case,) = parameters(path, check="backward").values()
        assert len(case.samples()) == 2

    def test_modules_that_register_operators_are_imported(self, path, tmp_path):
        (tmp_path / "registers_triple.py").write_text(
            "import torch\n\n@torch.library.custom_op('registers::triple', mutates_args=())\n"
            "def triple(x: torch.Tensor) -> torch.Tensor:\n    return 3 * x\n"
        )
        (tmp_path / "pyproject.toml").write_text(
            '[tool.opcheck]\nmodules = ["torch", "registers", "registers_triple"]\n'
        )
        path.write_text(
            '[[operator]]\nname = "torch.ops.registers.triple"\nimports = ["registers_triple"]\n'
            "samples = [{ args = [{ shape = [2] }] }]\n"
        )
        (tmp_path / "own.py").touch()  # its project is the folder of the test file
        text = 'mark = opcheck.cases("sin.toml", check="dtypes", dtype="float64").mark'
        scope = {"opcheck": opcheck}
        exec(compile(text, str(tmp_path / "own.py"), "exec"), scope)
        (case,) = scope["mark"].args[1]
        assert torch.equal(case.callable(torch.ones(2)), torch.full((2,), 3.0))

    def test_an_absent_device_skips_the_test(self, path, monkeypatch):
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        case = next(iter(parameters(path, check="backward", device="cuda").values()))
        with pytest.raises(pytest.skip.Exception, match="the device cuda is not present: "):
            case.inputs()


OWN = """
    import opcheck


    @opcheck.cases("../specs", check="backward", device="cpu")
    def test_linear(case):
        (inputs,) = case.inputs()
        args, kwargs = inputs.fill()
        assert (case.callable(*args, **kwargs) == 2 * args[0]).all()


    @opcheck.cases(operator="demo.double", check=["vmap", "variants"])
    def test_of_the_settings(case):
        assert case.claims.supports.out is False
"""


def test_a_test_file_names_specs_beside_itself_or_takes_those_of_the_project(project, plain_pytest):  # noqa: F811
    project.write("tests/test_own.py", textwrap.dedent(OWN))
    run = plain_pytest("-v", "-p", "no:cacheprovider", "tests")
    passed = [line.split("::", 1)[1].split(" PASSED")[0] for line in run.out.splitlines() if " PASSED" in line]
    assert passed == [
        "test_linear[demo.wrong::backward[cpu-float64]]",
        "test_linear[demo.double::backward[cpu-float64]]",
        "test_of_the_settings[demo.double::variants[cpu-float64]]",
        "test_of_the_settings[demo.double::vmap[cpu-float64]]",
    ]
    assert run.code == 1, "the in-place variant changes its argument before it is compared"


def test_what_the_spec_skips_pytest_skips_with_the_reason(project, plain_pytest):  # noqa: F811
    project.write("own/slow.toml", SKIPPING % 'check = "backward"')
    text = 'import opcheck\n\n@opcheck.cases("slow.toml", check=["backward", "vmap"])\ndef test_slow(case): pass\n'
    project.write("own/test_slow.py", text)
    run = plain_pytest("-rs", "-p", "no:cacheprovider", "own/test_slow.py")
    assert run.code == 0
    assert "SKIPPED [1] own/test_slow.py:3: not now" in run.out
    assert "1 passed, 1 skipped" in run.out


def test_a_path_that_is_relative_to_another_folder_is_a_mistake(project, plain_pytest):  # noqa: F811
    text = 'import opcheck\n\n\n@opcheck.cases("specs/good.toml")\ndef test_own(case): pass\n'
    project.write("tests/test_own.py", text)
    run = plain_pytest("-p", "no:cacheprovider", "tests")
    assert run.code == 2
    assert (
        'tests/test_own.py:4:1: no such file or folder: "specs/good.toml", which means tests/specs/good.toml; '
        'expected a path relative to the folder of this file, or builtin; did you mean "../specs/good.toml"?'
    ) in run.out
