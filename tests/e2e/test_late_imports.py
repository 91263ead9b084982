"""The clock of a case does not run while torch imports what it imports late: that is there before the first case."""

from __future__ import annotations

import pytest

OPERATOR = '''
import sys

KNOWN = set()


def double(x):
    """Record which modules of torch, and of what torch needs, each call finds imported."""
    found = {name for name in sys.modules if name.partition(".")[0] in ("torch", "sympy")}
    with open("imported.txt", "a") as file:
        file.writelines(f"{name}\\n" for name in sorted(found - KNOWN) if KNOWN)
    KNOWN.update(found)
    return 2 * x
'''

SPEC = """
[[operator]]
name     = "late.double"
dtypes   = { forward = ["float64"] }
supports = { out = false }
samples  = [{ args = [{ shape = [3] }] }]
"""

CHECKS = "--check=backward,forward_ad,batched_grad,vmap,fwd_over_rev,fwd_over_fwd,nondeterminism,accuracy,purity"


@pytest.mark.nightly
def test_no_case_is_charged_for_imports_of_torch(project):
    project.write("late.py", OPERATOR)
    project.write("late.toml", SPEC)
    project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["torch", "late"]\n')
    project.write("imported.txt", "")
    run = project.run("opcheck", "run", "late.toml", CHECKS, "--report-json", "report.json")
    assert set(run.outcomes.values()) == {"passed"}
    assert (project.folder / "imported.txt").read_text() == ""
