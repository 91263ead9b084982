"""A sample that is too large is an error of the sample, whatever is claimed: no failure, and no refusal either."""

import pytest
import torch
from operators.partial import Exhausts

from opcheck.settings import Settings

LARGE = "samples = [{ args = [{ shape = [4] }, [20_000]] }]"
FULL = 'jacobian = "full"'
WIDE = "samples = [{ args = [{ shape = [64, 64] }] }]"


@pytest.mark.parametrize(
    "check",
    ["backward", "forward_ad", "batched_grad", "rev_over_rev", "grad_dtypes", "nondeterminism", "vmap", "variants"],
)
def test_more_outputs_than_allowed_are_an_error_that_names_the_setting(verdict_of, check):
    outcome = verdict_of("torch.tile", check, samples=LARGE)
    assert outcome.outcome == "error"
    assert "the sample is too large: the outputs have 80,000 elements, at most 65,536 are allowed" in outcome.reason
    assert "max_outputs of [tool.opcheck]" in outcome.reason


@pytest.mark.parametrize("check", ["backward", "forward_ad", "batched_grad", "rev_over_rev", "fwd_over_rev"])
def test_a_whole_jacobian_that_does_not_fit_is_an_error_that_names_the_setting(verdict_of, check):
    outcome = verdict_of("torch.sin", check, keys=FULL, samples=WIDE)
    assert outcome.outcome == "error"
    assert "the sample is too large: the whole Jacobian" in outcome.reason
    assert "batch_memory of [tool.opcheck]" in outcome.reason


@pytest.mark.parametrize("feature", ["backward", "forward_ad", "batched_grad", "second_order"])
@pytest.mark.parametrize(("operator", "keys", "samples"), [("torch.tile", "", LARGE), ("torch.sin", FULL, WIDE)])
def test_it_is_no_refusal_of_what_is_disclaimed(verdict_of, feature, operator, keys, samples):
    disclaimed = f"{keys}\nsupports = {{ {feature} = false }}"
    assert verdict_of(operator, "unsupported", keys=disclaimed, samples=samples).outcome == "error"


@pytest.mark.parametrize("claimed", ['["float32", "float64"]', '["float32"]'])
def test_nor_of_a_dtype(verdict_of, claimed):
    keys = f'dtypes = {{ forward = ["float32", "float64"], backward = {claimed} }}'
    outcome = verdict_of("torch.tile", "dtypes", keys=keys, samples=LARGE)
    assert outcome.is_bad
    assert "max_outputs" in outcome.message


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
@pytest.mark.parametrize("feature", ["backward", "batched_grad", "undefined_grad", "second_order"])
def test_memory_that_is_exhausted_is_none_either(verdict_of, monkeypatch, feature, error):
    monkeypatch.setattr(Exhausts, "error", error)
    keys = f"supports = {{ {feature} = false, forward_ad = false }}"
    outcome = verdict_of("operators.partial.exhausts", "unsupported", keys=keys)
    assert outcome.outcome == "error"
    assert error.__name__ in outcome.reason


def test_the_bound_can_be_set():
    assert Settings.model_validate({"max_outputs": 7}).max_outputs == 7
    assert Settings().max_outputs == 65536
