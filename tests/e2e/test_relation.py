"""A new relation is one row and one module: those of docs/checks.md, in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8").partition("### A check of opcheck itself")[2]

OPERATORS = '''
import torch


class ByAddress(torch.autograd.Function):
    """The double of what lies one after the other in memory from the first element on."""

    @staticmethod
    def forward(ctx, x):
        return 2 * torch.as_strided(x, x.shape, (1,))

    @staticmethod
    def backward(ctx, v):
        return 2 * v


def by_address(x):
    return ByAddress.apply(x)


def double(x):
    return 2 * x
'''
LACKS = {"by_address": "forward_ad = false, vmap = false, ", "double": ""}


@pytest.fixture(scope="module")
def opcheck(tmp_path_factory):
    """Run a command of opcheck with the relation of the guide, and return its exit status and output."""
    home, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "opcheck", home / "opcheck")  # with what is compiled
    row, module = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    rows = home / "opcheck" / "spec" / "checks.py"
    text = rows.read_text(encoding="utf-8")
    assert text.endswith("    ),\n)\n")
    rows.write_text(text.removesuffix(")\n") + row.partition("\n")[2] + ")\n", encoding="utf-8")
    name, _, source = module.removeprefix("# ").partition("\n")
    (home / name).write_text(source, encoding="utf-8")
    (project / "mylib.py").write_text(OPERATORS, encoding="utf-8")
    (project / "pyproject.toml").write_text('[tool.opcheck]\nmodules = ["torch", "mylib"]\n', encoding="utf-8")

    def run(spec, *arguments):
        (project / "spec.toml").write_text(spec, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": f"{home}{os.pathsep}{project}"}
        command = [sys.executable, "-m", "opcheck", *arguments]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def spec(name, memory="true"):
    claims = f"supports = {{ {LACKS[name]}memory = {memory} }}"
    return f'[[operator]]\nname = "mylib.{name}"\n{claims}\nsamples = [{{ args = [{{ shape = [3] }}] }}]\n'


RUN = ("run", "spec.toml", "--in-process", "--dtype", "float64")


def test_a_wrong_operator_fails_by_its_name_with_its_remedy(opcheck):
    status, output = opcheck(spec("by_address"), *RUN, "--check", "memory")
    assert status == 1
    assert "memory: the values of inputs with gaps in memory differ" in output


@pytest.mark.nightly
def test_a_right_one_passes(opcheck):
    assert opcheck(spec("double"), *RUN, "--check", "memory")[0] == 0


@pytest.mark.nightly
def test_the_row_brings_a_key_of_supports_whose_claim_is_tested_both_ways(opcheck):
    status, output = opcheck(spec("by_address", "false"), *RUN, "--check", "unsupported")
    assert status == 0, output
    status, output = opcheck(spec("double", "false"), *RUN, "--check", "unsupported")
    assert status == 1
    assert "memory is disclaimed, but works on all samples" in output
    assert opcheck(spec("double", "3"), "validate", "spec.toml")[0] == 2


def test_the_schema_has_the_key(opcheck):
    status, output = opcheck(spec("double"), "schema")
    assert status == 0
    assert "independence of where inputs lie in memory" in output
