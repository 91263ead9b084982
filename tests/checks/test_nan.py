"""A Jacobian that is NaN is told in one line, with the place."""

from __future__ import annotations


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
