"""The shipped library on the device of examples/backend, whose kernels are right: nothing is held against them.

What does not hold there is said by the profile of the device, which has reasons.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from backends import needs_python_backend

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "backend"
BAD = {"failed", "error", "blocked", "xpassed"}
FEW = {
    "torch.nn.functional.celu": "reference",  # a function of torch, which computes on the device
    "torch.unbind_copy": "variants",  # out= is a list, which has to grow
    "torch.Tensor.to": "device_consistency",
    "torch.masked_select": "device_consistency",
    "torch.nn.functional.softmax": "unsupported",
}

pytestmark = needs_python_backend


@pytest.fixture
def run(project):
    def do(*options, seconds=240):
        shutil.rmtree(project.folder)
        shutil.copytree(EXAMPLE, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        command = ("opcheck", "run", "builtin", "--device", "sim", "--report-json", "report.json")
        return project.run(*command, *options, seconds=seconds)

    return do


def bad(finished):
    return {case: record["reason"] for case, record in finished.records.items() if record["outcome"] in BAD}


@pytest.mark.nightly
def test_what_differs_on_a_device_is_no_accusation_or_has_a_reason(run):
    select = ("--operator", ",".join(FEW), "--check", ",".join(set(FEW.values())), "--dtype", "float64")
    finished = run(*select, "--derive", "none")
    assert bad(finished) == {}
    assert finished.code == 0
    outcomes = {name: finished.outcomes[f"{name}::{check}[sim-float64]"] for name, check in FEW.items()}
    assert outcomes == {
        "torch.nn.functional.celu": "passed",
        "torch.unbind_copy": "passed",
        "torch.Tensor.to": "passed",
        "torch.masked_select": "passed",
        "torch.nn.functional.softmax": "xfailed",
    }


@pytest.mark.nightly
def test_the_whole_library_holds(run):
    finished = run("-n", "2", seconds=6 * 3600)  # some forty minutes of CPU
    assert bad(finished) == {}
    assert finished.code == 0
    assert len(finished.records) > 35_000
