"""The example in Triton, on the CPU, in Triton's interpreter: the right kernel passes, the wrong ones fail as told."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "triton_op"
CHECK = "low_precision_grad"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]


def run_of(shared, name, *command):
    def copied(project):
        shutil.rmtree(project.folder)
        shutil.copytree(EXAMPLE, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        return project.run("opcheck", "run", *command, "--report-json", "report.json")

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        return shared(name, copied)


@pytest.fixture(scope="module")
def right(shared):
    return run_of(shared, "triton_right", "specs/right.toml")


@pytest.fixture(scope="module")
def wrong(shared):
    return run_of(shared, "triton_wrong", "specs/wrong.toml", "--check", CHECK)


def test_the_right_kernel_passes_in_all_its_dtypes(right):
    assert right.code == 0, right.out
    assert set(right.outcomes.values()) == {"passed"}
    judged = {record["dtype"] for record in right.records.values() if record["check"] == CHECK}
    assert judged == {"float32", "bfloat16", "float16"}


@pytest.mark.parametrize(
    ("name", "dtypes", "told"),
    [
        ("lost_mask", {"float32", "bfloat16", "float16"}, r"the gradient of (x|weight)\["),
        ("lossy_sum", {"bfloat16"}, r"output 0 as a whole is 1\.0\d+ times what it should be"),
        ("lost_blocks", {"bfloat16", "float16"}, r"the gradient of weight\["),
    ],
)
def test_a_wrong_kernel_fails_under_the_check_that_names_it(wrong, name, dtypes, told):
    assert wrong.code == 1
    own = {r["dtype"]: r for r in wrong.records.values() if r["operator"] == f"gated.{name}"}
    assert {dtype for dtype, record in own.items() if record["outcome"] == "failed"} == dtypes
    assert all(re.search(told, own[dtype]["reason"]) for dtype in dtypes), own
    assert {record["outcome"] for record in own.values()} <= {"passed", "failed"}


def test_it_prints_what_the_readme_shows(wrong):
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^failed (\S+): low_precision_grad: in bfloat16, (\D+)", shown, re.MULTILINE)
    assert len(lines) == 3
    for case, told in lines:
        line = f"failed {case}: low_precision_grad: in bfloat16, {told[:10]}"
        assert re.search(f"^{re.escape(line)}", wrong.out, re.MULTILINE)
