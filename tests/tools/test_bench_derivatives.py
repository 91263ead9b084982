"""The benchmark: who is asked what, and what its ratios are made of."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from opcheck.derivatives import Numbers
from opcheck.settings import Settings

PATH = Path(__file__).resolve().parent.parent.parent / "tools" / "bench_derivatives.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_derivatives", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(bench, function):
    leaf = torch.rand(3, dtype=torch.float64, requires_grad=True)
    return bench.Asked(function, (leaf,), Numbers(1e-6, 1e-5, 1e-3))


def test_all_three_are_timed_for_each_check(bench):
    times = defaultdict(float)
    assert bench.measure(asked(bench, lambda x: (x.sin(),)), list(bench.CHECKS), "float64", times)
    assert set(times) == {("float64", check, who) for check in bench.CHECKS for who in ("slow", "fast", "opcheck")}
    assert min(times.values()) > 0


def test_what_anybody_objects_to_is_not_compared(bench):
    times = defaultdict(float)
    assert not bench.measure(asked(bench, lambda x: (x.detach() * x,)), ["backward"], "float64", times)
    assert times == {}


def test_ratios_are_those_of_sums(bench):
    times = {("a", "backward", "slow"): 8.0, ("a", "backward", "fast"): 2.0, ("a", "backward", "opcheck"): 1.0}
    times |= {("b", "backward", "slow"): 8.0, ("b", "backward", "fast"): 2.0, ("b", "backward", "opcheck"): 3.0}
    assert bench.ratios(times)["opcheck_over_fast"] == 1.0
    assert bench.ratios(times)["opcheck_over_slow"] == 0.25
    assert bench.ratios(times, lambda label, check: label == "a")["opcheck_over_fast"] == 0.5


def test_samples_of_the_library_come_with_their_checks(bench):
    dtype, checks, sample = next(bench.shipped(Settings.find()))
    assert dtype in bench.DTYPES
    assert set(checks) <= set(bench.CHECKS)
    assert all(str(leaf.dtype) == f"torch.{dtype}" for leaf in sample.leaves)


@pytest.mark.nightly
def test_a_run_prints_an_object_with_all_its_parts(bench, monkeypatch, capsys):
    monkeypatch.setattr(bench, "PART", 1)
    monkeypatch.setattr(bench, "SIZES", (4,))
    monkeypatch.setattr(sys, "argv", ["bench", "--json"])
    threads = torch.get_num_threads()
    try:
        bench.main()
    finally:
        torch.set_num_threads(threads)
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == {"float64": 1, "complex128": 1}
    assert {"opcheck_over_fast", "opcheck_over_slow"} <= set(found["total"])
    assert set(found["dtype"]) == {"float64", "complex128"}
    assert set(found["check"]) == set(bench.CHECKS)
    assert set(found["size"]) == {"4 float64", "4 complex128"}
