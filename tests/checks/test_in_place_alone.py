"""An operator with an in-place form alone gets a clone, and its derivatives are tested, of zero as well."""

from __future__ import annotations

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
CLOSE = ("backward", "forward_ad", "rev_over_rev", "purity", "linearity", "vmap", "aliasing", "variants", "errors")


def spec(name, keys="inplace = true"):
    samples = "samples = [{ args = [{ shape = [2, 3] }] }]"
    errors = "errors = [{ args = [1], raises = 'Exception', match = '' }]"
    return f'[[operator]]\nname = "{name}"\n{keys}\nsupports = {{ out = false }}\n{samples}\n{errors}\n'


@BOTH
@pytest.mark.parametrize(
    "name", ["torch.Tensor.zero_", "torch.Tensor.sin_", "operators.right.turned_", "operators.right.scaled_"]
)
def test_a_right_one_passes(outcomes, name, dtype):
    found = outcomes(spec(name), checks=CLOSE, dtypes=(dtype,))
    assert {id: one.message for id, one in found.items() if one.outcome != "passed"} == {}
    assert len(found) >= len(CLOSE) - 1


@BOTH
@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("zeroed_behind_autograd_", "backward", "is not the numerical one"),
        ("turned_of_twice_the_gradient_", "backward", "is not the numerical one"),
        ("square_out_of_place_", "variants", "does not return its first argument\n"),
        ("unmarked_double_", "variants", "does not return its first argument\n  it returns another tensor in the same"),
    ],
)
def test_a_wrong_one_is_caught(outcomes, name, check, words, dtype):
    (outcome,) = outcomes(spec(f"operators.faulty.{name}"), checks=(check,), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"
    assert words in outcome.message


def test_the_message_says_which_key_is_missing(outcomes):
    found = outcomes(spec("torch.Tensor.zero_", ""), checks=("backward", "dtypes"), dtypes=("float64",))
    assert {one.outcome for one in found.values()} == {"blocked", "failed"}
    assert all("write inplace = true: it returns its first argument" in one.message for one in found.values())


def test_an_in_place_operator_of_the_dispatcher_is_registered_rightly(outcomes):
    (outcome,) = outcomes(spec("torch.ops.aten.zero_.default"), checks=("registration",), dtypes=("float64",)).values()
    assert outcome.outcome == "passed", outcome.message


@BOTH
def test_what_is_written_to_is_not_passed_twice(outcomes, dtype):
    text = spec("torch.Tensor.mul_").replace("[2, 3] }]", "[2, 3] }, { shape = [2, 3] }]", 1)
    (outcome,) = outcomes(text, checks=("aliasing",), dtypes=(dtype,)).values()
    assert outcome.outcome == "passed", outcome.message


def test_a_batch_is_written_only_into_what_has_a_batch(outcomes):
    text = spec("torch.Tensor.eq_").replace("[2, 3] }]", "[2, 3] }, { shape = [3] }]", 1)
    (outcome,) = outcomes(text, checks=("vmap",), dtypes=("float64",)).values()
    assert outcome.outcome == "passed", outcome.message


def test_the_message_says_how_an_operator_refuses_inputs_that_require_grad(outcomes):
    text = spec("operators.faulty.counts_in_its_second_", "").replace("[2, 3] }]", "[2, 3] }, { shape = [2, 3] }]")
    (outcome,) = outcomes(text, checks=("backward",), dtypes=("float64",)).values()
    assert "it refuses inputs that require grad (RuntimeError: a leaf Variable that requires grad" in outcome.message
