"""Vmapping is held against the loop with all inputs batched, and with each one alone."""

import pytest
from operators.partial import Product


@pytest.mark.parametrize(
    ("wrong_for", "outcome", "words"),
    [
        ((), "passed", ""),
        ((True, True), "failed", "batched over x, y"),
        ((True, False), "failed", "batched over x\n"),
        ((False, True), "failed", "batched over y\n"),
    ],
)
def test_a_batching_rule_must_be_right_whichever_inputs_are_batched(verdict_of, monkeypatch, wrong_for, outcome, words):
    monkeypatch.setattr(Product, "wrong_for", wrong_for)
    samples = "samples = [{ args = [{ shape = [3] }, { shape = [3] }] }]"
    found = verdict_of("operators.partial.product", "vmap", samples=samples)
    assert found.outcome == outcome, found.message
    assert words in found.message


@pytest.mark.parametrize(("name", "outcome"), [("product", "passed"), ("product_along_one_dim", "failed")])
def test_inputs_may_be_batched_along_different_dims(verdict_of, name, outcome):
    samples = "samples = [{ args = [{ shape = [2] }, { shape = [2] }] }]"
    found = verdict_of(f"operators.partial.{name}", "vmap", samples=samples)
    assert found.outcome == outcome, found.message
    assert ("along the last and the first dimension in turns" in found.message) is (outcome == "failed")


def test_an_output_that_does_not_depend_on_the_batch_is_the_same_for_each_row(verdict_of):
    found = verdict_of("operators.partial.value_and_constant", "vmap")
    assert found.outcome == "passed", found.message


@pytest.mark.parametrize("name", ["up_to_one", "from_one_on"])
def test_a_batch_stays_where_the_operator_is_defined(verdict_of, name):
    samples = "samples = [{ args = [{ shape = [3], mean = 1, std = 0 }] }]"
    found = verdict_of(f"operators.partial.{name}", "vmap", samples=samples)
    assert found.outcome == "passed", found.message


def test_where_it_takes_no_other_number_the_check_says_so(verdict_of):
    found = verdict_of(
        "operators.partial.one_only", "vmap", samples="samples = [{ args = [{ shape = [3], mean = 1, std = 0 }] }]"
    )
    assert (found.outcome, found.reason) == ("failed", "vmap raised ValueError: expected 1")


def test_a_batch_that_raises_is_named(verdict_of):
    found = verdict_of("operators.refusing.item", "vmap", samples="samples = [{ args = [{ shape = [3] }] }]")
    assert found.reason.startswith("vmap raised RuntimeError")
    assert "batched over x\n  if this is intended, set supports.vmap = false" in found.message


@pytest.mark.parametrize("single", ["float32", "complex64"])
def test_rounding_where_terms_cancel_in_single_precision_is_no_objection(verdict_of, single):
    shapes = "[5, 10]", "[5, 5, 5]", "[5, 5, 10]"
    samples = (
        f"samples = [{{ args = [{', '.join(f'{{ shape = {shape}, low = -9, high = 9 }}' for shape in shapes)}] }}]"
    )
    found = verdict_of("torch.addbmm", "vmap", single, f'dtypes = ["{single}"]', samples)
    assert found.outcome == "passed", found.message


def test_a_wrong_batching_rule_is_noticed_in_single_precision(verdict_of, monkeypatch):
    monkeypatch.setattr(Product, "wrong_for", (True, True))
    samples = "samples = [{ args = [{ shape = [3] }, { shape = [3] }] }]"
    found = verdict_of("operators.partial.product", "vmap", "float32", 'dtypes = ["float32"]', samples)
    assert found.outcome == "failed"
