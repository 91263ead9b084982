"""What the format can say about operators of all kinds, in a project with modules of its own."""

from __future__ import annotations

import pytest

PYPROJECT = """
[tool.opcheck]
specs   = ["mine"]
modules = ["torch", "heldops", "mykernels", "torch.ops.kernels"]
"""

HELD = '''
"""A module without a package."""

from dataclasses import dataclass

import torch


@dataclass
class Rays:
    origin: torch.Tensor
    direction: torch.Tensor


def ends(rays, far):
    return rays.origin + far * rays.direction


def attend(inputs):
    return (inputs["query"] * inputs["key"]).sum(-1)


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return factor * x

    @staticmethod
    def backward(ctx, v):
        return v * (ctx.factor + 1), None


def doubled(x):
    return Wrong.apply(x, 2)


def tripled(x):
    return Wrong.apply(x, 3)


class Gain:
    def __init__(self, factor):
        self.factor = factor

    def apply(self, x, inplace=False):
        return x.mul_(self.factor) if inplace else self.factor * x


gain = Gain(2.5)
'''

KERNELS = """
import torch

torch.library.define("kernels::cube", "(Tensor x) -> Tensor")


@torch.library.impl("kernels::cube", "CompositeImplicitAutograd")
def cube(x):
    return x**3
"""

SPECS = """
[defaults]
imports  = ["mykernels.cube"]
supports = { out = false }

[[operator]]
name     = "torch.ops.kernels.cube"
dtypes   = "real"
samples  = [{ args = [{ shape = [3], std = 0.5 }] }]

[[operator]]
name     = "heldops:ends"
samples  = [{ args = [{ call = "heldops:Rays", args = [{ shape = [2, 3] }, { shape = [2, 3] }] }, 0.5] }]

[[operator]]
name     = "heldops:attend"
samples  = [{ args = [{ mapping = { query = { shape = [2, 3] }, key = { shape = [2, 3] } } }] }]

[[operator]]
name     = "heldops:gain.apply"
variants = [{ kind = "inplace", kwargs = { inplace = true } }]
samples  = [{ args = [{ shape = [2, 3] }] }]
"""


KNOWN = """
[defaults]
expect  = [{ when = { check = "backward" }, outcome = "fail", match = "times", reason = "a draft" }]
samples = [{ args = [{ shape = [3] }] }]

[[operator]]
name = "heldops:doubled"

[[operator]]
name = "heldops:tripled"

[[operator]]
name   = "heldops:gain.apply"
expect = []
"""


@pytest.fixture
def written(project):
    project.write("pyproject.toml", PYPROJECT)
    project.write("heldops.py", HELD)
    project.write("mykernels/__init__.py", "")
    project.write("mykernels/cube.py", KERNELS)
    return project


@pytest.mark.nightly
def test_they_hold_in_a_run_and_their_names_are_found(written):
    written.write("mine/odd.toml", SPECS)
    looked_up = written.run("opcheck", "validate", "--resolve")
    assert (looked_up.code, looked_up.err) == (0, "")
    shown = written.run("opcheck", "run", "--dtype", "float64", "--report-json", "report.json")
    assert shown.code == 0, shown.out + shown.err
    subjects = {record["id"].partition("::")[0] for record in shown.records.values()}
    assert subjects == {
        "torch.ops.kernels.cube", "heldops:ends", "heldops:attend", "heldops:gain.apply", "heldops:gain.apply[inplace]",
    }  # fmt: skip
    assert set(shown.outcomes.values()) == {"passed"}


def test_known_failures_of_a_file_stand_in_its_defaults(written):
    written.write("mine/known.toml", KNOWN)
    shown = written.run("opcheck", "run", "--check", "backward", "--dtype", "float64", "--report-json", "report.json")
    assert shown.code == 0, shown.out + shown.err
    assert {name.partition("::")[0]: outcome for name, outcome in shown.outcomes.items()} == {
        "heldops:doubled": "xfailed", "heldops:tripled": "xfailed", "heldops:gain.apply": "passed",
    }  # fmt: skip
