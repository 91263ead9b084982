"""A mistake in opcheck is an error that says so: it is not blamed on an operator, and nothing passes because of it."""

import pytest

SAMPLES = "samples = [{ args = [{ shape = [2, 3] }] }]"


@pytest.mark.parametrize(
    ("check", "missing"),
    [
        ("needs_input_grad", "opcheck.checks.behavior.needs_input_grad.parts"),
        ("derived", "opcheck.checks.looks.memory_of_cotangents"),
        ("derived", "opcheck.checks.looks.perf_counter"),
        ("backward", "opcheck.derivatives.contradiction.Comparison"),
    ],
)
def test_it_is_an_error_that_says_so(verdict_of, monkeypatch, check, missing):
    monkeypatch.delattr(missing)
    found = verdict_of("torch.sin", check, samples=SAMPLES)
    assert found.outcome == "error"
    name = missing.rpartition(".")[2]
    assert found.reason == f"{check}: opcheck raised NameError: name '{name}' is not defined"
    assert "please report it" in found.message


def test_what_an_operator_raises_is_its_own(verdict_of):
    found = verdict_of("operators.mistaken.unknown_name_in_backward", "backward", samples=SAMPLES)
    assert found.outcome == "failed"
    assert found.reason.startswith("backward raised NameError")
