"""A feature is rightly disclaimed where one sample at least is refused, and no sample gives a wrong number."""

import pytest
from operators.partial import OfVectors

from opcheck.checks.behavior.unsupported import disclaimed
from opcheck.spec.claims import Supports

BOTH_RANKS = "samples = [{ args = [{ shape = [3] }] }, { args = [{ shape = [2, 3] }] }]"
REFUSED_FIRST = "samples = [{ args = [{ shape = [2, 3] }] }, { args = [{ shape = [3] }] }]"


@pytest.mark.parametrize("samples", [BOTH_RANKS, REFUSED_FIRST], ids=["works first", "refused first"])
def test_what_works_on_one_sample_and_is_refused_on_another_is_disclaimed_rightly(verdict_of, samples):
    keys = "supports = { backward = false, forward_ad = false }"
    outcome = verdict_of("operators.partial.of_vectors", "unsupported", keys=keys, samples=samples)
    assert outcome.outcome == "passed", outcome.message


@pytest.mark.parametrize("samples", [BOTH_RANKS, REFUSED_FIRST], ids=["first", "last"])
def test_a_wrong_number_on_one_sample_is_enough_to_fail(verdict_of, monkeypatch, samples):
    monkeypatch.setattr(OfVectors, "factor", 3.0)
    keys = "supports = { backward = false, forward_ad = false }"
    outcome = verdict_of("operators.partial.of_vectors", "unsupported", keys=keys, samples=samples)
    assert outcome.outcome == "failed"
    assert "wrong numbers" in outcome.reason
    assert outcome.fields["feature"] == "backward"


def test_each_disclaimed_feature_is_probed(verdict_of):
    found = verdict_of("operators.right.square", "unsupported", keys="supports = { forward_ad = false, vmap = false }")
    assert "forward_ad is disclaimed, but works" in found.message
    assert "vmap is disclaimed, but works" in found.message


@pytest.mark.parametrize(
    ("feature", "samples"),
    [("masked", BOTH_RANKS), ("backward", "samples = [{ args = [{ shape = [0] }] }, { args = [{ shape = [2, 0] }] }]")],
)
def test_where_no_sample_can_show_a_refusal_there_is_an_error(verdict_of, feature, samples):
    keys = f"supports = {{ {feature} = false, forward_ad = false }}"
    outcome = verdict_of("operators.right.first_order_only", "unsupported", keys=keys, samples=samples)
    assert outcome.outcome == "error", outcome.message
    assert "no sample shows whether" in outcome.message


@pytest.mark.parametrize(
    ("variant", "disclaimed_by_the_spec", "probed"),
    [
        ("function", {}, set()),
        ("function", {"vmap", "out", "inplace_backward"}, {"vmap"}),
        ("method", {"vmap", "forward_ad"}, {"vmap", "forward_ad"}),
        ("inplace", {"vmap", "inplace_backward", "forward_ad"}, {"inplace_backward"}),
        ("inplace", {"vmap", "forward_ad"}, {"forward_ad"}),
        ("function", {"backward", "batched_grad", "second_order", "undefined_grad", "masked"}, {"backward"}),
        ("function", {"backward", "fwd_over_rev"}, {"backward"}),
        ("function", {"backward", "forward_ad", "batched_forward_grad"}, {"backward", "forward_ad"}),
        ("function", {"forward_ad", "fwd_over_rev"}, {"forward_ad"}),
        ("function", {"second_order", "fwd_over_rev", "batched_grad"}, {"second_order", "batched_grad"}),
        ("function", {"fwd_over_rev"}, {"fwd_over_rev"}),
    ],
)
def test_what_rests_on_something_disclaimed_is_not_probed_apart(variant, disclaimed_by_the_spec, probed):
    supports = Supports.model_validate(dict.fromkeys(disclaimed_by_the_spec, False))
    assert set(disclaimed(supports, variant)) == probed
