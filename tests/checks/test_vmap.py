"""Vmapping is held against the loop with all inputs batched, and with each one alone."""

import pytest
from operators.partial import Product


@pytest.mark.parametrize(
    ("wrong_for", "outcome", "words"),
    [
        ((), "passed", ""),
        ((True, True), "failed", "batched over inputs [0, 1]"),
        ((True, False), "failed", "batched over inputs [0]"),
        ((False, True), "failed", "batched over inputs [1]"),
    ],
)
def test_a_batching_rule_must_be_right_whichever_inputs_are_batched(verdict_of, monkeypatch, wrong_for, outcome, words):
    monkeypatch.setattr(Product, "wrong_for", wrong_for)
    samples = "samples = [{ args = [{ shape = [3] }, { shape = [3] }] }]"
    found = verdict_of("operators.partial.product", "vmap", samples=samples)
    assert found.outcome == outcome, found.message
    assert words in found.message


def test_an_output_that_does_not_depend_on_the_batch_is_the_same_for_each_row(verdict_of):
    found = verdict_of("operators.partial.value_and_constant", "vmap")
    assert found.outcome == "passed", found.message
