"""Samples of thousands of elements: every entry is compared where that is possible, and the record says so."""

import pytest

LARGE = "samples = [{ args = [{ shape = [4097] }], large = true }]"
ROWS = "samples = [{ args = [{ shape = [1024, 8] }, -1], large = true }]"
ALL = "samples = [{ args = [{ shape = [4097] }, 0], large = true }]"
SMALL = "samples = [{ args = [{ shape = [4] }] }]"


@pytest.mark.parametrize(
    ("operator", "samples", "check", "compared"),
    [
        ("torch.sin", LARGE, "backward", {"0": "structured"}),
        ("torch.sin", LARGE, "forward_ad", {"0": "structured"}),
        ("torch.sin", LARGE, "rev_over_rev", {"0": "structured"}),
        ("torch.cumsum", ROWS, "backward", {"0": "structured"}),
        ("torch.cumsum", ALL, "backward", {"0": "projected"}),
        ("torch.sin", SMALL, "backward", None),
        ("torch.sin", LARGE, "nondeterminism", None),
    ],
)
def test_the_record_says_what_was_compared(verdict_of, operator, samples, check, compared):
    outcome = verdict_of(operator, check, samples=samples)
    assert outcome.outcome == "passed", outcome.message
    assert outcome.record()["fields"].get("jacobian") == compared


def test_the_record_of_a_failure_says_it_too(verdict_of):
    samples = 'samples = [{ args = [{ shape = [600], structure = "distinct" }], large = true }]'
    outcome = verdict_of("operators.faulty.wrong_sign", "backward", samples=samples)
    assert outcome.outcome == "failed"
    assert outcome.fields["jacobian"] == "structured"
    assert outcome.fields["wrong"] == outcome.fields["entries"] == 600
    assert outcome.fields["worst"][0]["leaf_index"] == outcome.fields["worst"][0]["output_index"]
