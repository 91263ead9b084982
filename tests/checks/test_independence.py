"""The verdict of a check does not depend on which others are selected."""

import pytest

SPEC = """
[[operator]]
name     = "operators.{}"
samples  = [{{ args = [{{ shape = [3] }}] }}]
supports = {{ out = false }}
"""
SELECTIONS = [
    ("backward",),
    ("forward_ad",),
    ("rev_over_rev",),
    ("backward", "rev_over_rev"),
    ("forward_ad", "fwd_over_rev", "vmap"),
    ("batched_grad", "backward", "grad_dtypes"),
]


@pytest.mark.parametrize("operator", ["right.square", "awkward.depends_on_grad_mode"])
def test_a_check_has_the_same_outcome_alone_and_among_others(outcomes, operator):
    def summary(**selection):
        found = outcomes(SPEC.format(operator), dtypes=("float64",), **selection)
        return {id: (outcome.outcome, outcome.reason) for id, outcome in found.items()}

    every = summary()
    assert len(every) > 8
    for checks in SELECTIONS:
        some = summary(checks=checks)
        assert len(some) == len(checks)
        assert some == {id: every[id] for id in some}


def test_what_depends_on_grad_mode_fails_alone_too(verdict_of):
    outcome = verdict_of("operators.awkward.depends_on_grad_mode", "backward")
    assert (outcome.outcome, outcome.is_bad, outcome.fields["blocked_by"]) == ("blocked", True, "context")
