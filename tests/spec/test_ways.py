"""The key `vary`: which ways to vary a list of entries leaves."""

from __future__ import annotations

import pytest

from opcheck.spec.claims import WAYS
from opcheck.spec.operator import ways


@pytest.mark.parametrize(
    ("vary", "expected"),
    [
        (True, WAYS),
        (False, ()),
        ((), ()),
        (("layout", "size"), ("size", "layout")),
        (("-sum",), WAYS[:-1]),
        (("-sum", "-size"), WAYS[1:-1]),
    ],
)
def test_entries_with_a_minus_sign_leave_ways_out(vary, expected):
    assert ways(vary) == expected


def test_an_entry_that_another_makes_idle_is_a_mistake(mistakes):
    text = '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]\nvary = ["size", "-sum"]\n'
    assert mistakes(text) == [
        'spec.toml:4:8: "-sum" has no effect beside entries without a minus sign; expected entries of one kind'
    ]
