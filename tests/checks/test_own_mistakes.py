"""A mistake in opcheck is an error that says so: it is not blamed on an operator, and nothing passes because of it."""

import pytest

SAMPLES = "samples = [{ args = [{ shape = [2, 3] }] }]"


@pytest.mark.parametrize(
    ("check", "missing"),
    [
        ("needs_input_grad", "opcheck.checks.behavior.needs_input_grad.real_size"),
        ("derived", "opcheck.checks.looks.memory_of_cotangents"),
        ("derived", "opcheck.checks.attempts.thread_time"),
        ("backward", "opcheck.derivatives.jacobians.Comparison"),
    ],
)
def test_it_is_an_error_that_says_so(verdict_of, monkeypatch, check, missing):
    monkeypatch.delattr(missing)
    found = verdict_of("torch.sin", check, samples=SAMPLES)
    assert found.outcome == "error"
    name = missing.rpartition(".")[2]
    assert found.reason == f"{check}: opcheck raised NameError: name '{name}' is not defined"
    assert "please report it" in found.message


def test_where_there_are_no_tensors_each_exception_is_one(verdict_of, monkeypatch):
    monkeypatch.setattr("opcheck.samples.derive.sizes.symbols", lambda sample: 3)
    found = verdict_of("torch.sin", "derived", samples=SAMPLES)
    assert found.outcome == "error"
    assert found.reason == "derived: opcheck raised TypeError: 'int' object is not iterable"


def test_it_does_not_show_that_a_dtype_is_refused(verdict_of, monkeypatch):
    keys = 'dtypes = { forward = ["float64", "float32"], backward = ["float64"], exact = true }'
    assert verdict_of("torch.sin", "dtypes", "float32", keys, SAMPLES).outcome == "failed"  # it is not refused
    monkeypatch.delattr("opcheck.checks.values.dtypes.ordinary")
    found = verdict_of("torch.sin", "dtypes", "float32", keys, SAMPLES)
    assert found.outcome == "error"
    assert "name 'ordinary' is not defined" in found.reason


def test_what_an_operator_raises_is_its_own(verdict_of):
    found = verdict_of("operators.mistaken.unknown_name_in_backward", "backward", samples=SAMPLES)
    assert found.outcome == "failed"
    assert found.reason.startswith("backward raised NameError")
