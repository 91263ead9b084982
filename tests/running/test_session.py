"""What the cases of a process share: names that are looked up before, and commands that run a case again."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

from opcheck.planning import load
from opcheck.running.session import RunSession, unresolved
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile

MODULES = Settings(modules=("torch", "operators"))
SAMPLES = "samples = [{ args = [{ shape = [2] }] }]"


@pytest.fixture
def mistakes(tmp_path):
    """Return a function that gives the mistakes in the names of an operator: line, column and key."""

    def find(*lines):
        path = tmp_path / "spec.toml"
        path.write_text("\n".join(["[[operator]]", *lines, SAMPLES]))
        (operator,) = load([path], MODULES).operators
        return [(problem.line, str(problem).split(": ", 1)[1]) for problem in unresolved(operator, MODULES)]

    return find


def test_an_operator_that_the_installed_torch_does_not_have_is_not_looked_for(mistakes):
    assert mistakes('name = "torch.nowhere"', 'torch = ">=99"') == []
    assert mistakes('name = "torch.nowhere"', 'torch = "<99"') != []


class TestNames:
    def test_that_exist_are_no_mistakes(self, mistakes):
        found = mistakes('name = "torch.sin"', 'variants = ["method", "inplace"]', 'aliases = ["torch.special.expit"]')
        assert found == []

    def test_an_operator_that_is_missing_is_one_whatever_else_is(self, mistakes):
        (only,) = mistakes('name = "torch.sinn"', 'variants = ["method"]', 'aliases = ["torch.coss"]')
        assert only[0] == 2
        assert only[1].endswith('did you mean "torch.sin"?')

    def test_a_target_that_is_missing_is_told_where_it_stands(self, mistakes):
        assert [line for line, _ in mistakes('name = "mine.op"', 'target = "torch.sinn"')] == [3]

    def test_each_variant_and_alias_that_is_missing_is_told(self, mistakes):
        found = mistakes(
            'name = "torch.special.log_ndtr"', "variants = [", '  "method",', '  "inplace",', "]",
            "aliases = [", '  "torch.coss",', '  "torch.sinn",', "]",
        )  # fmt: skip
        assert [line for line, _ in found] == [4, 5, 8, 9]
        assert found[3][1].endswith('did you mean "torch.sin"?')


class TestArguments:
    """The names in `supports.backward` are those of the signature, or of what a sample passes."""

    def test_that_exist_are_no_mistakes(self, mistakes):
        assert mistakes('name = "operators.right.scale"', 'supports.backward = ["x", 0]') == []
        assert mistakes('name = "torch.add"', 'supports.backward = ["input", "alpha"]') == []  # by its schema

    def test_that_do_not_exist_are_told_at_their_place(self, mistakes):
        ((line, words),) = mistakes('name = "torch.add"', 'supports.backward = ["input", "othr"]')
        assert line == 3
        assert words == 'unknown argument "othr"; expected one of input, other, alpha, 0; did you mean "other"?'


class TestImports:
    """`imports` runs modules before the names of an operator are looked up."""

    @pytest.fixture
    def module(self, tmp_path, monkeypatch):
        """Return a function that writes a module of the project."""
        monkeypatch.syspath_prepend(str(tmp_path))

        def write(text):
            (tmp_path / "opregistry.py").write_text(text)
            monkeypatch.delitem(sys.modules, "opregistry", raising=False)

        return write

    def problems(self, tmp_path, *lines):
        path = tmp_path / "spec.toml"
        path.write_text("\n".join(["[[operator]]", *lines, SAMPLES]))
        settings = Settings(modules=("torch", "opregistry"))
        (operator,) = load([path], settings).operators
        return [str(problem) for problem in unresolved(operator, settings)]

    def test_operators_that_a_module_registers_are_found(self, tmp_path, module):
        module("import torch\ntorch.library.define('opregistry::half', '(Tensor x) -> Tensor')\n")
        name = 'name = "torch.ops.opregistry.half"'
        assert "has no attribute" in self.problems(tmp_path, name)[0]
        assert self.problems(tmp_path, name, 'imports = ["opregistry"]') == []

    def test_a_module_that_cannot_be_imported_is_a_mistake_at_its_place(self, tmp_path, module):
        module("raise RuntimeError('no library')")
        (line,) = self.problems(tmp_path, 'name = "torch.sin"', 'imports = ["opregistry"]')
        assert line.endswith('spec.toml:3:12: importing "opregistry" failed: RuntimeError: no library')


class TestSession:
    def test_it_has_the_engine_of_the_project_or_the_one_that_is_asked_for(self):
        assert RunSession(Settings(engine="torch")).engine == "torch"
        assert RunSession(Settings(engine="torch"), "batched").engine == "batched"

    def test_the_modules_of_the_project_are_found(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "path", [*sys.path])
        (tmp_path / "pyproject.toml").write_text("[tool.opcheck]\n")
        RunSession(Settings.find(tmp_path)).prepare([])
        assert str(tmp_path) in sys.path

    def test_the_module_of_a_device_is_imported_before_those_of_operators(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(tmp_path))
        for name in ("first", "second"):
            (tmp_path / f"opcheck_{name}.py").touch()
            monkeypatch.delitem(sys.modules, f"opcheck_{name}", raising=False)
        (tmp_path / "spec.toml").write_text(
            '[[operator]]\nname = "torch.sin"\nimports = ["opcheck_second"]\n' + SAMPLES
        )
        settings = Settings(modules=("torch", "opcheck_second"))
        device = DeviceProfile(name="npu", torch="cpu", module="opcheck_first")
        session = RunSession(settings)
        assert session.prepare(load([tmp_path / "spec.toml"], settings), [device]) == []
        names = [name for name in sys.modules if name in ("opcheck_first", "opcheck_second")]
        assert names == ["opcheck_first", "opcheck_second"]

    @pytest.mark.parametrize(("own_process", "threads"), [(False, 3), (True, 1)])
    def test_only_a_process_without_other_work_is_changed_for_good(self, own_process, threads):
        before = torch.get_num_threads()
        torch.set_num_threads(3)
        try:
            RunSession(Settings(), own_process=own_process)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)

    @pytest.mark.parametrize(
        ("engine", "project", "case", "options"),
        [
            (None, 0, 0, []),
            ("torch", 0, 0, ["--engine", "torch"]),
            (None, 0, 3, ["--seed", "3"]),
            (None, 3, 3, ["--seed", "3"]),
            (None, 3, 0, ["--seed", "0"]),
        ],
    )
    def test_the_command_to_run_a_case_again_says_what_differs(self, case_of, engine, project, case, options):
        session = RunSession(Settings(seed=project), engine)
        command = session.rerun(replace(case_of(), base_seed=case)).split()
        assert command[:2] == ["opcheck", "run"]
        assert command[2:-1] == options
