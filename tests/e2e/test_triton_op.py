"""The example in Triton, on the CPU, in Triton's interpreter: the right kernels pass, the wrong ones fail as told."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "triton_op"
CHECKS = ("reference", "backward", "low_precision_grad")
DTYPES = {"float32", "bfloat16", "float16"}

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]


def run_of(shared, name, *command):
    def copied(project):
        shutil.rmtree(project.folder)
        shutil.copytree(EXAMPLE, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        return project.run("opcheck", "run", *command, "--device=interpreter", "--report-json", "report.json")

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        return shared(name, copied)


@pytest.fixture(scope="module")
def right(shared):
    return run_of(shared, "triton_right", "specs/right.toml")


@pytest.fixture(scope="module")
def wrong(shared):
    return run_of(shared, "triton_wrong", "specs/wrong.toml", *(f"--check={check}" for check in CHECKS))


def records_of(run, name):
    return [record for record in run.records.values() if record["operator"] == f"rowwise.{name}"]


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "cross_entropy"])
def test_a_right_kernel_passes_in_all_its_dtypes(right, name):
    assert right.code == 0, right.out
    own = records_of(right, name)
    assert {record["outcome"] for record in own} == {"passed"}
    assert {record["dtype"] for record in own if record["check"] == "low_precision_grad"} == DTYPES


@pytest.mark.parametrize(
    ("name", "checks", "dtypes", "told"),
    [
        ("wrong_softmax", {"low_precision_grad"}, {"bfloat16", "float16"}, "output 0"),
        ("wrong_layer_norm", set(CHECKS), DTYPES, "output 0 is not that of rowwise.eager.layer_norm"),
        ("wrong_cross_entropy", {"backward", "low_precision_grad"}, DTYPES, "the gradient of x"),
    ],
)
def test_a_wrong_kernel_fails_under_the_checks_that_name_its_mistake(wrong, name, checks, dtypes, told):
    assert wrong.code == 1
    own = records_of(wrong, name)
    failed = [record for record in own if record["outcome"] == "failed"]
    assert {record["check"] for record in failed} == checks
    assert {record["dtype"] for record in failed} == dtypes
    assert any(told in record["reason"] for record in failed), failed
    assert {record["outcome"] for record in own} <= {"passed", "failed"}


def test_it_prints_what_the_readme_shows(wrong):
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^failed (\S+: (?:\w+: in bfloat16, )?\D{10})", shown, re.MULTILINE)
    assert len(lines) == 5
    for line in lines:
        assert f"\nfailed {line}" in wrong.out
    (diagnosis,) = re.findall(r'that "(.*?)"', shown)
    assert diagnosis in wrong.out
