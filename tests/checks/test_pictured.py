"""A failed comparison of Jacobians leaves both of them in its record, as data for pictures."""

from __future__ import annotations

import json

import pytest
import torch

from opcheck.checks.pictured import pictured
from opcheck.derivatives.disagreement import Names, Pair


@pytest.fixture
def failed(verdict_of):
    """The windows in the record of a failure, as they come out of JSON."""

    def of(operator, *args, **keywords):
        outcome = verdict_of(operator, *args, **keywords)
        assert outcome.outcome == "failed", outcome.message
        return json.loads(json.dumps(outcome.record(), allow_nan=False))["fields"]["jacobians"]

    return of


def pair_of(numerical, analytical, outputs, leaves):
    excess = (analytical - numerical).abs()
    names = Names(tuple(f"output {k}" for k in range(len(outputs))), tuple("xyz"[: len(leaves)]))
    return Pair(numerical, analytical, excess, outputs, leaves, names)


def doubles(*shape):
    return torch.zeros(shape, dtype=torch.float64)


def test_both_jacobians_are_there_with_their_places(failed):
    (window,) = failed(
        "operators.faulty.one_wrong_entry", "backward", samples="samples = [{ args = [{ shape = [2, 2] }] }]"
    )
    assert window["name"].startswith("output 0 with respect to x")
    assert (window["rows"], window["columns"], window["first_row"], window["first_column"]) == (4, 4, 0, 0)
    assert window["row_labels"] == window["column_labels"] == ["[0, 0]", "[0, 1]", "[1, 0]", "[1, 1]"]
    off = [
        [i, j] for i in range(4) for j in range(4) if abs(window["numerical"][i][j] - window["analytical"][i][j]) > 1e-4
    ]
    assert window["wrong"] == off
    assert off


def test_a_passed_case_has_none(verdict_of):
    outcome = verdict_of("torch.sin", "backward")
    assert outcome.outcome == "passed"
    assert "jacobians" not in outcome.fields


def test_complex_tensors_are_shown_in_real_coordinates(failed):
    (window,) = failed("operators.faulty.wrong_sign", "backward", "complex128")
    assert (window["rows"], window["columns"]) == (12, 12)
    assert window["row_labels"][:3] == ["[0, 0].real", "[0, 0].imag", "[0, 1].real"]


def test_a_slice_of_a_large_jacobian_is_labelled_by_its_places(failed):
    samples = 'samples = [{ args = [{ shape = [600], structure = "distinct" }], large = true }]'
    (window,) = failed("operators.faulty.wrong_sign", "backward", samples=samples)
    assert window["name"].endswith(", in one slice")
    assert (window["rows"], window["columns"], window["wrong"]) == (1, 1, [[0, 0]])
    assert window["row_labels"] == window["column_labels"] != ["[0]"]


def test_a_large_block_is_a_window_around_its_worst_entry():
    numerical = torch.zeros(200, 70, dtype=torch.float64)
    analytical = numerical.clone()
    analytical[150, 3] = 1
    (window,) = pictured(pair_of(numerical, analytical, [doubles(10, 20)], [doubles(70)]))
    assert (window["rows"], window["columns"]) == (200, 70)
    assert (window["first_row"], window["first_column"]) == (118, 0)
    assert len(window["numerical"]) == len(window["row_labels"]) == 64
    assert {len(row) for row in window["analytical"]} == {len(window["column_labels"])} == {64}
    assert window["wrong"] == [[32, 3]]
    assert window["row_labels"][32] == "[7, 10]"


def test_the_worst_block_comes_first_and_others_while_there_is_room():
    outputs, leaves = [doubles(60), doubles(2)], [doubles(60), doubles(3)]
    numerical = torch.zeros(62, 63, dtype=torch.float64)
    analytical = numerical.clone()
    analytical[5, 5] = 1  # output 0, x
    analytical[61, 62] = 7  # output 1, y: the worst
    analytical[61, 2] = 3  # output 1, x
    found = pictured(pair_of(numerical, analytical, outputs, leaves))
    assert [window["name"] for window in found] == [
        "output 1 with respect to y", "output 1 with respect to x", "output 0 with respect to x",
    ]  # fmt: skip
    assert [window["wrong"] for window in found] == [[[1, 2]], [[1, 2]], [[5, 5]]]
    analytical[0, 60] = 0.5  # output 0, y
    whole = torch.ones(62, 128, dtype=torch.float64)
    found = pictured(pair_of(torch.zeros_like(whole), whole, outputs, [doubles(64), doubles(64)]))
    assert [window["rows"] for window in found] == [60, 2, 2], "a second block of 60 x 64 is too much"


def test_numbers_that_are_not_finite_survive(failed):
    samples = "samples = [{ args = [{ values = [[1.0, 0.0]] }] }]"
    (window,) = failed("operators.awkward.hidden_nan", "backward", samples=samples)
    assert [window["analytical"][i][j] for i, j in window["wrong"]] == ["nan", "nan"]
