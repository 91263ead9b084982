"""A derivative of higher order that is wrong fails under its check, and those below it pass; right twins pass all."""

from __future__ import annotations

import inspect

import pytest
import torch
from operators import orders

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
FURTHER = ("rev_over_fwd", "rev_over_rev_over_rev")
BELOW = ("backward", "forward_ad", "rev_over_rev")
FAULTS = [(check, name) for check, names in orders.FAULTS.items() for name in names]


def spec(name, keys=""):
    count = len(inspect.signature(getattr(orders, name)).parameters)
    arguments = ", ".join(["{ shape = [3], low = 0.5, high = 2 }"] * count)
    return f"""
[[operator]]
name     = "operators.orders.{name}"
supports = {{ forward_ad = {str("tangent" in name or name == "cube").lower()}, out = false, vmap = false }}
samples  = [{{ args = [{arguments}] }}]
{keys}
"""


@BOTH
@pytest.mark.parametrize(("check", "name"), FAULTS, ids=[name for _, name in FAULTS])
def test_a_fault_fails_under_its_order_and_no_other(outcomes, check, name, dtype):
    found = {o.check: o for o in outcomes(spec(name), checks=(*BELOW, *FURTHER), dtypes=(dtype,)).values()}
    assert found.pop(check).outcome == "failed"
    assert {one.outcome for one in found.values()} == {"passed"}, {k: one.reason for k, one in found.items()}


@BOTH
@pytest.mark.parametrize(("check", "name"), FAULTS, ids=[name for _, name in FAULTS])
def test_the_whole_jacobian_finds_what_one_direction_finds(outcomes, check, name, dtype):
    (one,) = outcomes(spec(name), checks=(check,), dtypes=(dtype,)).values()
    (whole,) = outcomes(spec(name, f'orders = ["{check}"]'), checks=(check,), dtypes=(dtype,)).values()
    assert (whole.outcome, whole.reason, whole.fields) == (one.outcome, one.reason, one.fields)


@BOTH
@pytest.mark.parametrize("name", orders.TWINS)
def test_a_right_twin_passes(outcomes, name, dtype):
    found = outcomes(spec(name), checks=(*BELOW, *FURTHER), dtypes=(dtype,)).values()
    assert {outcome.outcome for outcome in found} == {"passed"}, [one.message for one in found]


COFACTORS = """
[[operator]]
name    = "torch.linalg.det"
samples = [{ args = [{ shape = [2, 2], structure = "well_conditioned" }] }]

[[operator]]
name    = "operators.orders.det"
samples = [{ args = [{ shape = [2, 2], structure = "well_conditioned" }] }]
"""


@BOTH
def test_forward_over_forward_of_torchs_determinant_was_wrong_before_torch_2_15(outcomes, dtype):
    found = outcomes(COFACTORS, checks=("fwd_over_fwd",), dtypes=(dtype,))
    assert [(one.operator, one.outcome) for one in found.values()] == [
        ("torch.linalg.det", "failed" if torch.__version__ < "2.15" else "passed"),
        ("operators.orders.det", "passed"),
    ]


@pytest.mark.parametrize(
    ("cotangents", "words"),
    [
        ("{ shape = [1] }", "grad_outputs[0] is float64[1], but its output is float64[3]"),
        ("{ shape = [3], dtype = 'complex128' }", "grad_outputs[0] is complex128[3], but its output is float64[3]"),
        ("{ shape = [3] }, { shape = [3] }", "grad_outputs has 2 tensors, expected 1"),
        ("", "grad_outputs has 0 tensors, expected 1"),
    ],
)
@pytest.mark.parametrize("check", ["rev_over_rev", "unsupported"])
def test_cotangents_that_do_not_fit_are_a_mistake_and_no_refusal(verdict_of, check, cotangents, words):
    samples = f"samples = [{{ args = [{{ shape = [3] }}], grad_outputs = [{cotangents}] }}]"
    keys = "supports = { second_order = false }" if check == "unsupported" else ""
    found = verdict_of("torch.square", check, keys=keys, samples=samples)
    assert (found.outcome, found.reason) == ("error", words)
    assert "expected one for each output that requires grad, of its shape and dtype" in found.message
