"""Values written back as TOML: what is read from it is what was written."""

from __future__ import annotations

from typing import Any

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from opcheck.spec.operator import SampleSpec
from opcheck.spec.render import render

PLAIN = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_values_survive(value: Any) -> None:
    assert tomli.loads(f"x = {render(value)}")["x"] == value


@pytest.mark.parametrize(
    "text",
    [
        '{ args = [{ shape = [2, 3], low = 1.0, exclude = [0.0], conj = true }, { none = true }, "same"] }',
        '{ args = [{ values = [[1, 2], [3, 4]] }, { complex = [1.0, -2.0] }, { dtype = "int64" }] }',
        "{ kwargs = { dim = { tuple = [0, 1] }, index = { slice = [{ none = true }, 2] } } }",
        '{ name = "a", args = [{ ellipsis = true }, { object = "torch.strided" }, inf, true] }',
        '{ args = [[{ shape = [] }, { shape = [0], memory = "transposed" }]], grid = { a = [1, 2] } }',
    ],
)
def test_samples_are_written_as_they_were_read_with_defaults_left_out(text: str) -> None:
    sample = SampleSpec.model_validate(tomli.loads(f"x = {text}")["x"])
    assert tomli.loads(f"x = {render(sample)}") == tomli.loads(f"x = {text}")


def test_complex_elements_become_tables() -> None:
    assert render((1 - 2j, 0.5)) == "[{ complex = [1.0, -2.0] }, 0.5]"


def test_keys_are_quoted_where_they_must_be() -> None:
    assert render({"a-b_1": 1, "c d": {}, "": 2, "é": 3}) == '{ a-b_1 = 1, "c d" = {}, "" = 2, "é" = 3 }'
