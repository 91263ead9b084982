"""Nested tensors as arguments and as outputs, in both layouts: tested as what they consist of.

Complex ones have no gradient in torch.
"""

from __future__ import annotations

KEYS = "supports = { forward_ad = false, batched_grad = false, vmap = false, out = false }"
ROWS = """samples = [{ args = [
  { call = "torch.nested.as_nested_tensor", args = [[{ shape = [2, 3] }, { shape = [1, 3] }]] },
] }]"""
JAGGED = 'samples = [{ args = [{ shape = [2, 3, 2], layout = "jagged" }] }]'
BASIC = ("backward", "rev_over_rev", "purity", "needs_input_grad", "saved", "dtypes", "variants", "derived")


def test_a_right_operator_passes(outcomes):
    text = f'[[operator]]\nname = "operators.results.doubled_rows"\n{KEYS}\n{ROWS}'
    found = outcomes(text, checks=BASIC, dtypes=("float64",))
    assert len(found) == len(BASIC)
    assert {outcome.outcome for outcome in found.values()} == {"passed"}


def test_a_wrong_gradient_of_a_part_is_found(verdict_of):
    outcome = verdict_of("operators.results.wrongly_doubled_rows", "backward", keys=KEYS, samples=ROWS)
    assert outcome.outcome == "failed"
    assert outcome.fields["name"] == "output 1"


def test_a_write_to_a_nested_argument_is_found(verdict_of):
    outcome = verdict_of("operators.results.overwritten_rows", "purity", keys=KEYS, samples=ROWS)
    assert outcome.outcome == "failed"
    assert "argument nested[1]" in outcome.reason


def test_so_are_those_of_the_jagged_layout(verdict_of):
    for check in ("backward", "purity", "needs_input_grad"):
        outcome = verdict_of("operators.results.doubled_jagged", check, keys=KEYS, samples=JAGGED)
        assert outcome.outcome == "passed", outcome.message
    keys = KEYS.replace("out =", "context = false, out =")  # inference mode refuses jagged tensors
    outcome = verdict_of("operators.results.wrongly_cubed_jagged", "backward", keys=keys, samples=JAGGED)
    assert outcome.outcome == "failed"
    assert "output.values() with respect to x" in outcome.message, outcome.message
