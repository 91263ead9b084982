"""A Jacobian that is NaN is told in one line, with the place."""

from __future__ import annotations

import pytest


def test_the_place_is_in_the_title_and_the_others_are_only_counted(verdict_of):
    samples = "samples = [{ args = [{ values = [[1.0, -1.0], [0.3, 0.2]] }] }]"
    found = verdict_of("operators.awkward.hidden_nan", "backward", samples=samples)
    assert found.outcome == "failed"
    assert found.reason == (
        "backward: the reverse-mode Jacobian is not the numerical one: "
        "d output 0[0, 0] / d x[0, 1] = 0 numerically, nan analytically"
    )
    assert "the analytical Jacobian is NaN or infinite in 12 of 16 entries, as at d output 0[0, 0]" in found.message
    assert "also: d output" not in found.message
    assert max(map(len, found.message.splitlines())) < 320


@pytest.mark.parametrize("check", ["backward", "forward_ad", "rev_over_rev", "fwd_over_rev"])
@pytest.mark.parametrize(("low", "words"), [(-2, "in 4 of 4 entries"), (-1, "entries")])
def test_a_sample_outside_the_domain_tells_nothing(verdict_of, check, low, words):
    samples = f"samples = [{{ args = [{{ shape = [2, 2], low = {low}, high = {low + 1.9} }}] }}]"
    found = verdict_of("torch.sqrt", check, samples=samples)
    assert found.outcome == "inconclusive"
    assert "the function itself is nan at the sample, in " in found.reason
    assert words in found.reason
    assert "entries, as at output 0[" in found.reason
    assert "state numbers in its domain (low, high, exclude)" in found.message


def test_beside_numbers_outside_the_domain_a_wrong_gradient_is_wrong(verdict_of):
    samples = "samples = [{ args = [{ values = [-1.0, 0.5] }] }]"
    assert verdict_of("operators.infinite.wrong_root", "backward", samples=samples).outcome == "failed"
