"""The names of `import opcheck`: they are there, cost nothing, and have types."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

import opcheck

SOURCE = Path(opcheck.__file__).read_text()


def output_of(script):
    done = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=True)
    return done.stdout


def test_dir_shows_them_all():
    assert dir(opcheck) == sorted(opcheck.__all__)
    assert set(opcheck.HOMES) | {"__version__"} == set(opcheck.__all__)


@pytest.mark.parametrize("name", sorted(opcheck.HOMES))
def test_each_is_what_type_checkers_see(name):
    guarded = next(node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in guarded.body for alias in node.names}
    assert seen[name] == opcheck.HOMES[name]
    found = getattr(import_module(opcheck.HOMES[name]), name)
    assert getattr(opcheck, name) is found or callable(getattr(opcheck, name))
    assert found.__doc__


def test_importing_opcheck_imports_nothing_else():
    script = """
        import sys
        before = set(sys.modules)
        import opcheck
        dir(opcheck)
        print([name for name in set(sys.modules) - before if name.split(".")[0] not in sys.stdlib_module_names])
    """
    assert output_of(script) == "['opcheck']\n"


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="module 'opcheck' has no attribute 'chekc'"):
        opcheck.chekc  # noqa: B018


USER = '''
from __future__ import annotations

import torch

import opcheck
from opcheck import plan, run
from opcheck.mutation.call import Call


@opcheck.register_check
def finite(subject: opcheck.Subject) -> bool:
    """All outputs are finite."""
    return all(bool(output.isfinite().all()) for output in subject.outputs)


@opcheck.register_check(name="bounded", claim="outputs are at most 1", dtypes="one", needs=["backward"])
def outputs_are_bounded(subject: opcheck.Subject) -> opcheck.Verdict | None:
    return opcheck.Verdict(False, "too large") if any(bool((o > 1).any()) for o in subject.outputs) else None


@opcheck.register_condition("for more than 100 rows")
def has_many_rows(call: Call) -> bool:
    return any(x.dim() == 2 and len(x) > 100 for x in call.inputs)


def checked(x: torch.Tensor) -> str:
    try:
        report: opcheck.CheckReport = opcheck.check(
            torch.sin, x, supports={"out": False}, dtypes=["float32", torch.complex128], checks="backward", seed=1
        )
    except opcheck.CheckError as error:
        report = error.report
    names: list[str] = [outcome.check for outcome in report]
    return f"{report.passed} {names} {report}"


def drop_in(x: torch.Tensor) -> bool:
    try:
        return opcheck.gradcheck(torch.sin, (x,)) and opcheck.gradgradcheck(torch.sin, (x,))
    except opcheck.GradcheckError as error:
        return error.disagreement is None


def scripted() -> list[opcheck.Outcome]:
    try:
        chosen: list[opcheck.Case] = opcheck.plan(opcheck.load("builtin"), operator="torch.sin", check=["vmap"])
    except opcheck.SpecError:
        chosen = plan(opcheck.load())
    bad: list[opcheck.Outcome] = [outcome for outcome in opcheck.run(chosen) if outcome.is_bad]
    return bad + run(chosen)


@opcheck.cases("builtin", check="backward", seed=3)
def test_own(case: object) -> None:
    assert case is not None


version: str = opcheck.__version__
'''

WRONG = """
import torch

import opcheck

opcheck.chekc
opcheck.check(torch.sin, torch.ones(2), checks=3)
opcheck.plan("specs")
opcheck.run(1)
a: int = opcheck.load()


@opcheck.register_check
def takes_nothing() -> bool:
    return True
"""


UNREAD = """
[mypy]
strict = true

# Nothing of it is in the types of opcheck, and it takes as long as all the rest.
[mypy-torch._inductor.*,torch._dynamo.*,torch.ao.*,torch.distributed.*,torch.fx.*,torch.onnx.*,numpy.*]
follow_imports = skip
"""


@pytest.mark.nightly
def test_a_users_file_passes_mypy_and_a_wrong_one_does_not(tmp_path):
    pytest.importorskip("mypy", reason="mypy belongs to the extra dev")
    assert [name for name in opcheck.__all__ if f"opcheck.{name}" not in USER] == []
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "mypy.ini").write_text(UNREAD)
    options = [f"--config-file={tmp_path / 'mypy.ini'}", f"--cache-dir={tmp_path / 'cache'}", "--no-error-summary"]
    # In a process of its own: mypy keeps a gigabyte of objects, which each later collection of garbage would visit.
    command = [sys.executable, "-m", "mypy", *options, str(tmp_path / "user.py"), str(tmp_path / "wrong.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    found = [line.rsplit("wrong.py:", 1)[-1].split(":")[0] for line in done.stdout.splitlines() if ": error:" in line]
    assert (found, done.stderr, done.returncode) == (["6", "7", "8", "9", "10", "13"], "", 1), done.stdout
