"""Vmapping is held against the loop with all inputs batched, and with each one alone; its gradients, too."""

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


BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
TWO = "samples = [{ args = [{ shape = [3] }, { shape = [3] }] }]"


@BOTH
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("product_by_kernel", "is missing: its outputs do not require grad"),
        ("product_by_kernel_of_one", "is not that of the loop"),
    ],
)
def test_a_batching_rule_that_loses_the_gradient_is_caught(verdict_of, name, words, dtype):
    found = verdict_of(f"operators.partial.{name}", "vmap", dtype, samples=TWO)
    assert found.outcome == "failed"
    assert found.reason == f"vmap: the gradient of x through the vmapped operator {words}"
    assert "a vmap rule must" in found.message


@BOTH
def test_gradients_of_rows_that_share_weights_are_compared(verdict_of, dtype):
    samples = "samples = [{ args = [{ shape = [2, 3] }, { shape = [4, 3] }] }]"
    found = verdict_of("operators.partial.linear_by_kernel_of_shared_weights", "vmap", dtype, samples=samples)
    assert found.outcome == "failed"
    assert found.reason.endswith("is missing: its outputs do not require grad, batched over x")
    assert verdict_of("operators.partial.linear", "vmap", dtype, samples=samples).outcome == "passed"


@BOTH
@pytest.mark.parametrize(
    ("name", "keys", "samples"),
    [
        ("operators.partial.product_by_apply", "", TWO),
        ("operators.right.square", "", ""),  # generate_vmap_rule = True
        ("torch.mul", "", TWO),
        ("torch.nn.Linear", "module = { args = [3, 2] }", "samples = [{ args = [{ shape = [4, 3] }] }]"),
    ],
)
def test_right_gradients_of_a_vmapped_call_pass(verdict_of, name, keys, samples, dtype):
    found = verdict_of(name, "vmap", dtype, keys, samples)
    assert found.outcome == "passed", found.message
    assert "notes" not in found.fields


def test_gradients_of_a_vmapped_call_that_raise_are_noted(verdict_of):
    found = verdict_of("operators.partial.product_raises_for_batches", "vmap", samples=TWO)
    assert found.outcome == "passed", found.message
    assert found.fields["notes"]["0"][0].startswith(
        "the gradients of a vmapped call are not compared: NotImplementedError"
    )


@pytest.mark.parametrize("keys", ["supports = { backward = false }", "inplace = true"])
def test_gradients_of_a_vmapped_call_are_compared_only_where_they_are_claimed(verdict_of, keys):
    found = verdict_of("operators.partial.product_by_kernel", "vmap", keys=keys, samples=TWO)
    assert found.outcome == "passed", found.message


def test_a_gradient_that_is_wrong_without_vmap_as_well_is_left_to_its_own_check(verdict_of):
    found = verdict_of("operators.partial.wrong_in_a_loop", "vmap")
    assert found.outcome == "blocked", found.message
    assert "not judged, since backward: " in found.reason
