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
        (("size", "-sum"), ("size",)),
    ],
)
def test_entries_with_a_minus_sign_leave_ways_out(vary, expected):
    assert ways(vary) == expected
