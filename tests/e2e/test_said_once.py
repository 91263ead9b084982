"""What an operator does not support is said once, with the line of the spec that says so; and that line is enough."""

from __future__ import annotations

import re

import pytest

ROUND = """
import torch


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.erfc(x) * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.exp(-x * x) * (-4 / torch.pi**0.5)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * torch.exp(-x * x) * (-4 / torch.pi**0.5)

    generate_vmap_rule = True


def scaled(x):
    return Scaled.apply(x)


def half_alone(x):
    if x.dtype in (torch.float16, torch.bfloat16):
        raise TypeError("no half precision here")
    return 3 * x


def cut(x):
    return x.detach() ** 2


def cut_in_half(x):
    return 3 * (x.detach() if x.dtype in (torch.float16, torch.bfloat16) else x)
"""
SPEC = """[[operator]]
name = "{}"
{}
samples = [{{ use = "unary" }}]
"""
LINE = re.compile(r"^failed (\S+:\d+:\d+): \S+: write (.+?): ", re.MULTILINE)
CASES = {
    "torch.special.bessel_j0": [
        'dtypes = { forward = ["float32", "float64"] }', "supports = { backward = false, forward_ad = false }"
    ],
    "once.scaled": ['dtypes = { forward = ["floating"] }'],
    "once.half_alone": ['dtypes = { forward = ["float32", "float64", "complex"] }'],
    "once.cut_in_half": [
        'dtypes = { forward = ["floating", "complex"], backward = ["float32", "float64", "complex"] }'
    ],
    "once.cut": ["supports = { backward = false, forward_ad = false }"],
}  # fmt: skip


@pytest.fixture
def run(project, cli):
    project.write("once.py", ROUND)
    project.write("pyproject.toml", '[tool.opcheck]\nspecs = ["specs"]\nmodules = ["torch", "demo", "once"]\n')

    def run(operator, *keys, options=()):
        project.write("specs/once.toml", SPEC.format(operator, "\n".join(keys)))
        return cli("run", "specs/once.toml", *options)

    return run


BY_DAY = ("once.half_alone",)


@pytest.mark.parametrize(
    "operator", [name if name in BY_DAY else pytest.param(name, marks=pytest.mark.nightly) for name in CASES]
)
def test_it_takes_three_lines_and_what_they_say_is_enough(run, operator):
    first = run(operator)
    assert first.code == 1
    about = [line for line in first.out.splitlines() if "write " in line or "because of it" in line or "same: " in line]
    assert len(about) <= 3
    assert "───" not in first.out.replace(first.out[first.out.index("cases passed by check") :], "")
    place, written = LINE.search(first.out).groups()
    assert place == "specs/once.toml:2:8"
    assert written.split(" and ") == CASES[operator]
    second = run(operator, *written.split(" and "))
    assert second.code == 0, second.out
    assert "failed" not in second.out


def test_a_plain_run_of_pytest_says_it_with_each_case(run, plain_pytest):
    run("once.scaled")
    out = plain_pytest("specs/once.toml").out
    assert "specs/once.toml:2:8: once.scaled: write " in out
    assert "realized:" not in out


def test_claims_that_a_spec_makes_already_stay(run):
    kept = run("once.cut", "supports = { vmap = true, out = false }", options=("--dtype", "float64"))
    assert "write supports = { backward = false, forward_ad = false, out = false, vmap = true }: " in kept.out
    exact = run("once.half_alone", 'dtypes = { forward = ["floating"], exact = true }')
    assert 'write dtypes = { forward = ["float32", "float64"], exact = true }: ' in exact.out


def test_other_faults_beside_it_are_told_as_ever(run):
    found = run("demo.wrong", 'dtypes = { forward = ["floating", "int64"] }')
    assert "backward: the reverse-mode Jacobian is not the numerical one" in found.out
    assert "write dtypes" not in found.out


def test_an_operator_that_works_in_no_dtype_has_no_line_to_write(run):
    found = run("torch.linalg.inv")  # of vectors
    assert "the operator refuses the sample" in found.out
    assert "write dtypes" not in found.out
