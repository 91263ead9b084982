"""opcheck works without NumPy, which torch does not install. Only a reference in NumPy needs it."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest


def output_of(script, *arguments):
    command = [sys.executable, "-c", 'import sys; sys.modules["numpy"] = None\n' + dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_check_runs():
    found = output_of("""
        import opcheck, torch

        class Doubled(torch.autograd.Function):
            forward = staticmethod(lambda ctx, x: 2 * x)
            backward = staticmethod(lambda ctx, v: 3 * v)

        x = torch.linspace(-1, 1, 6, dtype=torch.float64)
        report = opcheck.check(torch.sin, x, dtypes=["float64", "complex128", "bfloat16"])
        print(report.passed, {"low_precision_grad", "dtypes"} <= {one.check for one in report.outcomes})
        report = opcheck.check(Doubled.apply, x, checks="backward", raise_exception=False)
        print(report.failures[0].fields["diagnosis"][0]["text"])
    """)
    assert found == ["True True", "output 0 with respect to x: the gradient is 3/2 times what it should be"]


@pytest.mark.parametrize(
    ("reference", "outcome", "says"),
    [
        ("torch.sin", "passed", ""),
        ("torch.cos", "failed", "reference: output 0 is not that of torch.cos"),
        ("numpy.sin", "error", 'reference: importing "numpy" failed'),
    ],
)
@pytest.mark.nightly
def test_a_reference_in_torch_is_compared_with(tmp_path, reference, outcome, says):
    spec = (
        f'[[operator]]\nname = "torch.sin"\nsamples = [{{ args = [{{ shape = [3] }}] }}]\nreference = "{reference}"\n'
    )
    (tmp_path / "spec.toml").write_text(spec)
    script = """
        import opcheck
        library = opcheck.load(sys.argv[1])
        cases = opcheck.plan(library, check="reference", device="cpu", dtype="float64")
        for one in opcheck.run(cases):
            print(one.outcome, one.reason)
    """
    (found,) = output_of(script, str(tmp_path / "spec.toml"))
    assert found.startswith(f"{outcome} {says}".strip())
