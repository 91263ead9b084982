"""Who follows hints to the letter ends with a spec that passes, and has disclaimed no more than the operator lacks."""

from __future__ import annotations

import re

import pytest
import torch
from operators import incomplete

DISCLAIM = re.compile(r"set supports\.(\w+) = false")
CLAIM = re.compile(r"take supports\.(\w+) out of the spec")
ROUNDS = 4


def spec(name, disclaimed):
    arguments = ", ".join(["{ shape = [3] }"] * (1 if name.startswith("square") else 2))
    keys = ", ".join(f"{key} = false" for key in sorted(disclaimed))
    return f"""
[[operator]]
name     = "operators.incomplete.functions.{name}"
dtypes   = {{ forward = ["float64", "complex128"] }}
supports = {{ {keys} }}
samples  = [{{ args = [{arguments}] }}]
"""


def followed(outcomes, name, dtype):
    """Follow hints until there are none. Return what was disclaimed, and what fails in the end."""
    disclaimed = set()
    for _ in range(ROUNDS):
        bad = [outcome for outcome in outcomes(spec(name, disclaimed), dtypes=(dtype,)).values() if outcome.is_bad]
        hints = {key for outcome in bad for key in DISCLAIM.findall(outcome.message)}
        over = {key for outcome in bad for key in CLAIM.findall(outcome.message)}
        if not hints | over:
            break
        disclaimed = (disclaimed | hints) - over
    return disclaimed, {outcome.check: outcome.reason for outcome in bad}


@pytest.mark.parametrize("name", incomplete.NAMES)
def test_hints_lead_to_a_spec_that_passes(outcomes, name):
    disclaimed, left = followed(outcomes, name, "complex128" if "once" in name else "float64")
    assert left == {}
    lacks: set[str] = set()
    lacks |= {"forward_ad"} if "no_jvp" in name else set()
    lacks |= {"second_order"} if "once" in name else set()
    lacks |= {"vmap"} if "old" in name or "once" in name else set()
    lacks |= {"batched_forward_grad"} if "with_jvp" in name and "vmap" in lacks else set()
    assert disclaimed == lacks


@pytest.mark.parametrize("name", incomplete.NAMES[:2])
def test_hints_are_data_too(outcomes, name):
    bad = [outcome for outcome in outcomes(spec(name, set()), dtypes=("float64",)).values() if outcome.is_bad]
    hinted = [outcome for outcome in bad if outcome.outcome == "failed" and DISCLAIM.search(outcome.message)]
    assert hinted
    for outcome in hinted:
        assert outcome.fields["remedy"]["write"] is False
        assert outcome.fields["remedy"]["key"].removeprefix("supports.") in DISCLAIM.findall(outcome.message)


OF_SOFTMAX = "forward mode of torch's softmax"


@pytest.mark.skipif(torch.__version__ < "2.13", reason="the error was about a tensor that is modified in place")
@pytest.mark.parametrize(("name", "is_said"), [("torch.softmax", True), ("torch.nn.functional.glu", False)])
def test_what_torch_writes_in_place_is_not_blamed_on_the_operator(verdict_of, name, is_said):
    outcome = verdict_of(name, "rev_over_fwd", samples="samples = [{ args = [{ shape = [2, 4] }, -1] }]")
    assert outcome.outcome == "failed"
    assert (OF_SOFTMAX in outcome.message) == is_said
    assert outcome.message.count("set supports.rev_over_fwd = false") == 1
