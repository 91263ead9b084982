"""Outcomes as data."""

from __future__ import annotations

import json
import math

import pytest
import torch

from opcheck.run import Outcome
from opcheck.run.outcome import BAD, KINDS, rerun_command


def test_the_outcomes_that_fail_a_run_are_these():
    assert {kind for kind in KINDS if kind in BAD} == {"failed", "error", "xpassed", "inconclusive"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_knows_whether_it_fails_a_run(case_of, kind):
    assert Outcome.of(case_of(), kind).is_bad == (kind not in ("passed", "skipped", "xfailed"))


def test_a_record_is_plain_data(case_of):
    fields = {
        "row": 1, "worst": math.nan, "bound": -math.inf, "error": 0.5, "ok": True, "none": None,
        "place": (1, [2.0]), "tensor": torch.tensor(3), "by": {1: torch.float64},
    }  # fmt: skip
    record = Outcome.of(case_of(), "failed", "why", "all", **fields).record()
    assert record == {
        "id": "operators.right.square::backward[cpu-float64]", "operator": "operators.right.square",
        "variant": "function", "check": "backward", "device": "cpu", "dtype": "float64", "family": "spec",
        "outcome": "failed", "reason": "why", "seconds": 0.0, "message": "all",
        "fields": {
            "row": 1, "worst": "nan", "bound": "-inf", "error": 0.5, "ok": True, "none": None,
            "place": [1, [2.0]], "tensor": "tensor(3)", "by": {"1": "torch.float64"},
        },
    }  # fmt: skip
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_the_command_that_runs_a_case_alone_survives_a_shell():
    assert rerun_command("a b.toml", "x[y]::z[cpu-int8]") == "opcheck run 'a b.toml::x[y]::z[cpu-int8]'"
    assert rerun_command("a.toml", "x::z", "torch") == "opcheck run --engine torch a.toml::x::z"
