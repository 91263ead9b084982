"""The benchmark beside PyTorch's suites: the same operators on both sides, and tests that can fail."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

PATH = Path(__file__).resolve().parent.parent.parent / "tools" / "bench_suite.py"


@pytest.fixture(scope="module")
def tool():
    path = sys.path[:]
    yield runpy.run_path(str(PATH))
    sys.path[:] = path


@pytest.fixture
def entry(tool, monkeypatch):
    """Return a function that gives the suites an entry of op_db with another function."""
    entries = {one.full_name: one for one in tool["differentiable"]()}

    def replaced(name, function):
        monkeypatch.setattr(entries[name], "op", function)
        return [name]

    return replaced


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sinh()

    @staticmethod
    def backward(ctx, cotangent):
        return 2 * cotangent


@pytest.mark.nightly
def test_a_share_is_the_same_every_time_and_has_specs(tool):
    drawn = tool["drawn"](0.02)
    assert drawn == tool["drawn"](0.02)
    assert 8 <= len(drawn) <= 13
    assert all(specs for specs in drawn.values())


@pytest.mark.nightly
def test_a_right_operator_passes_each_of_their_tests(tool):
    done = tool["run_suites"](["sinh"])
    assert (done["entries"], done["failed"]) == (1, [])
    assert set(done["seconds_of_tests"]) == set(tool["TESTS"])
    assert done["tests"] == 2 * len(tool["TESTS"])  # in float64 and complex128
    assert done["skipped"] == 2  # that the second derivative fails


@pytest.mark.nightly
def test_a_wrong_gradient_fails_theirs(tool, entry):
    failed = tool["run_suites"](entry("sinh", Wrong.apply))["failed"]
    assert "test_fn_grad_sinh_cpu_float64" in failed
    assert "test_fn_grad_sinh_cpu_complex128" in failed
    assert "test_inplace_grad_sinh_cpu_float64" not in failed  # another function


@pytest.mark.nightly
def test_what_has_no_forward_mode_must_refuse_it(tool, monkeypatch):
    (sinh,) = [one for one in tool["differentiable"]() if one.full_name == "sinh"]
    monkeypatch.setattr(sinh, "supports_forward_ad", False)
    assert "test_forward_mode_AD_sinh_cpu_float64" in tool["run_suites"](["sinh"])["failed"]


def test_a_run_prints_an_object_with_all_its_parts(tool, monkeypatch, capsys):
    commands = []

    def run(command, **how):
        commands.append(command[1:])
        answer = {"entries": 1, "tests": 2, "skipped": 0, "failed": [], "seconds_of_tests": {}}
        return SimpleNamespace(returncode=0, stdout=json.dumps(answer))

    case = SimpleNamespace(check="backward", dtype="float64", seconds=1.0, outcome="passed")
    names = tool["main"].__globals__
    monkeypatch.setattr(names["subprocess"], "run", run)
    monkeypatch.setitem(names, "read", lambda path: SimpleNamespace(records=[case]))
    monkeypatch.setitem(names, "_cpu_seconds", iter([0.0, 9.0, 9.0, 12.0]).__next__)
    monkeypatch.setitem(names, "drawn", lambda share: {"sinh": ["torch.sinh"]})
    assert tool["main"](["--share=0.001", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["entries"], done["ratio"]) == (1, 0.333)
    assert done["theirs"]["cpu_seconds"] == 9.0
    assert done["ours"] == {
        "cpu_seconds": 3.0, "specs": 1, "cases": 1, "outcomes": {"passed": 1},
        "wall_seconds_of_cases": {"doubles": {"backward": 1.0}, "other_dtypes": {}},
    }  # fmt: skip
    assert commands[0][1:] == ["--entries", "sinh"]
    assert "--operator=torch.sinh" in commands[1]
