"""What a device gives is held against the CPU. The device is that of examples/backend, in a process of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from backends import needs_python_backend
from demo_project import shared  # noqa: F401

TESTS = Path(__file__).resolve().parent.parent
EXAMPLE = TESTS.parent / "examples" / "backend"

pytestmark = needs_python_backend

FAULTS = {
    "value": ("output 0[", "those on the CPU for the same inputs"),
    "place": ("output 0 is on cpu, not on sim:0",),
    "dtype": ("output 0 has the dtype torch.", ", on the CPU torch."),
    "shape": ("output 0 has the shape [1, 2, 3], on the CPU [2, 3]",),
    "gradient": ("gradient of x[", "those on the CPU for the same inputs"),
    "tangent": ("tangent of output 0[", "those on the CPU for the same inputs"),
    "whole": ("output 0[", "those on the CPU for the same inputs"),
}
STRIDES = {
    "strides": "output 0 has the strides [1, 2], on the CPU [3, 1]",
    "gradient_strides": "the gradient of x has the strides [1, 2], on the CPU [3, 1]",
    "random_strides": "output 0 has the strides [1, 2], on the CPU [3, 1]",
}
RIGHT = ("right", "rounded", "noise", "eigenvectors", "unchecked")
KEYS = {
    "noise": "reseed = true",
    "random_strides": "reseed = true",
    "eigenvectors": 'outputs = { apply = "abs" }',
    **dict.fromkeys(("whole", "signs", "signs_of_blocks"), "supports = { backward = false, forward_ad = false }"),
    "on_sim": 'target = "on_device.only_elsewhere"\ndevices = ["sim"]',
    "beyond": 'devices = ["sim"]',
}

VARIED = ("unchecked", "beyond", "blocks", "signs", "signs_of_blocks")

FIRST = "{ shape = [3, 3], low = 0.6, high = 2 }"
ARGS = {
    "eigenvectors": FIRST,
    "unchecked": f"{FIRST}, {{ values = [0, 2], dtype = 'int64' }}",
    "beyond": f"{FIRST}, {{ shape = [3] }}",
}


def operator(name):
    samples = f"samples = [{{ args = [{ARGS.get(name, '{ shape = [2, 3], low = 0.6, high = 2 }')}] }}]"
    vary = "" if name in VARIED else "vary = false"
    return f'[[operator]]\nname = "on_device.{name}"\n{vary}\n{KEYS.get(name, "")}\n{samples}\n'


@pytest.fixture(scope="module")
def finished(shared):  # noqa: F811
    def run(project):
        shutil.rmtree(project.folder / "specs")
        shutil.copytree(EXAMPLE / "torch_sim", project.folder / "torch_sim")
        shutil.copy(TESTS / "operators" / "on_device.py", project.folder)
        names = (
            *FAULTS,
            *STRIDES,
            *RIGHT,
            "only_elsewhere",
            "on_sim",
            "beyond",
            "inference",
            "blocks",
            "signs",
            "signs_of_blocks",
        )
        project.write("specs/all.toml", "\n".join(map(operator, sorted(names))))
        devices = 'devices = ["torch_sim/profiles"]'
        project.write(
            "pyproject.toml", f'[tool.opcheck]\nspecs = ["specs"]\nmodules = ["torch", "on_device"]\n{devices}\n'
        )
        select = (
            "--device=cpu,sim",
            "--dtype=float64,complex128",
            "--check=device_consistency,backward,accuracy,context,derived",
        )
        return project.run("opcheck", "run", *select, "--report-json", "report.json")

    return shared("device_consistency", run)


def record_of(finished, name, check="device_consistency", dtype="float64"):
    return finished.records[f"on_device.{name}::{check}[sim-{dtype}]"]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", FAULTS)
def test_what_differs_from_the_cpu_fails(finished, name, dtype):
    if (name, dtype) == ("whole", "complex128"):
        dtype = "float64"  # complex numbers are not ordered
    record = record_of(finished, name, dtype=dtype)
    assert record["outcome"] == "failed", record["reason"]
    assert all(text in record["reason"] for text in FAULTS[name])


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_differs_by_rounding_chance_or_phase_alone_passes(finished, name, dtype):
    record = record_of(finished, name, dtype=dtype)
    assert record["outcome"] == "passed", record["reason"]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", STRIDES)
def test_other_strides_are_noted_and_no_failure(finished, name, dtype):
    record = record_of(finished, name, dtype=dtype)
    assert record["outcome"] == "passed", record["reason"]
    assert STRIDES[name] in record["fields"]["notes"]["0"]
    assert f"note on_device.{name}: {STRIDES[name]}" in finished.out


def test_on_the_cpu_there_is_nothing_to_compare(finished):
    devices = {record["device"] for record in finished.records.values() if record["check"] == "device_consistency"}
    assert devices == {"sim"}


def test_what_follows_from_another_value_is_blocked(finished):
    record = record_of(finished, "gradient", "accuracy")
    assert record["outcome"] == "blocked"
    assert record["fields"]["blocked_by"] == "device_consistency"


def test_what_differs_under_no_grad_is_no_matter_of_the_device(finished):
    """Outputs computed with a graph are not compared with those that the CPU computes without one."""
    own = {check: record_of(finished, "inference", check) for check in ("device_consistency", "context", "backward")}
    assert {check: record["outcome"] for check, record in own.items()} == {
        "device_consistency": "passed", "context": "failed", "backward": "blocked",
    }  # fmt: skip
    assert own["backward"]["fields"]["blocked_by"] == "context"


def test_an_operator_that_the_cpu_refuses_is_an_error(finished):
    record = record_of(finished, "only_elsewhere")
    assert record["outcome"] == "error"
    assert "is refused on the CPU: NotImplementedError: no kernel for the CPU" in record["reason"]
    assert 'write devices = ["sim"]' in record["message"]


def test_an_operator_that_is_not_meant_for_the_cpu_is_not_compared(finished):
    own = {record["check"] for record in finished.records.values() if record["operator"] == "on_device.on_sim"}
    assert own == {"backward", "accuracy", "context"}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        pytest.param("unchecked", "refused", id="the CPU refuses it"),
        pytest.param("beyond", "not called", id="nothing else would refuse it, and equal sizes do not stay equal"),
    ],
)
def test_what_a_kernel_does_not_check_is_not_tried_on_a_device(finished, name, answer, dtype):
    """It would read beyond the end, or stop the device for the whole process."""
    record = record_of(finished, name, "derived", dtype)
    assert record["outcome"] == "passed", record["message"]
    assert record["fields"]["derived"][answer] > 0
    assert record["fields"]["derived"]["hold"] > 0


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_values_that_differ_at_a_derived_sample_alone_fail_there(finished, dtype):
    assert record_of(finished, "blocks", dtype=dtype)["outcome"] == "passed"
    record = record_of(finished, "blocks", "derived", dtype)
    assert record["outcome"] == "failed"
    assert record["reason"].startswith(
        "derived: sizes 2 -> 17, 3 -> 18: device_consistency: results differ from those on the CPU"
    )
    assert "passes with size 16, fails with size 17" in record["message"]
    assert "{ args = [{ shape = [1, 17]" in record["message"].split("add this sample: ")[1].splitlines()[0]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_values_of_a_kernel_without_a_derivative_are_compared_at_derived_samples(finished, dtype):
    right, wrong = (record_of(finished, name, dtype=dtype) for name in ("signs", "signs_of_blocks"))
    assert right["outcome"] == "passed", right["message"]
    assert right["fields"]["derived"]["hold"] > 5
    assert wrong["outcome"] == "failed"
    assert wrong["reason"].startswith("derived: sizes 2 -> 17, 3 -> 18: device_consistency: results differ from those")
