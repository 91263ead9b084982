"""Of recorded calls, small ones of each kind become samples; large ones become small in the proportions of sizes."""

from __future__ import annotations

from opcheck.draft.smaller import MOST_SAMPLES, MOST_SMALLER, chosen, is_small, kind, size, smaller
from opcheck.spec.operator import SampleSpec


def test_the_smallest_call_of_each_kind_is_chosen():
    groups = [[{"args": [{"shape": shape}, k]}] for shape, k in (([4, 4], 1), ([2, 2], 1), ([9], 1), ([2, 2], 2))]
    assert chosen(groups) == [groups[1], groups[3], groups[2]]
    assert len(chosen([[{"args": [{"shape": [1]}, k]}] for k in range(20)])) == MOST_SAMPLES


def test_sizes_and_kinds():
    sample = {"args": [{"shape": [2, 3]}, {"values": [1, 0], "dtype": "int64"}], "kwargs": {"dim": 1}}
    assert kind(sample) == {"args": [2, "int64"], "kwargs": {"dim": 1}}
    assert size({"args": [{"shape": [2, 3]}, {"shape": []}]}) == 7


def test_keyword_arguments_are_no_tensor_whatever_their_names():
    sample = {"args": [{"shape": [2, 3]}], "kwargs": {"shape": 5, "values": {"shape": [4]}}}
    assert is_small(sample)
    assert kind(sample) == {"args": [2], "kwargs": {"shape": 5, "values": 1}}


def test_large_calls_become_small_in_the_proportions_of_their_sizes():
    call = {"module": {"args": [512, 256], "kwargs": {"rate": 0.5}}, "args": [{"shape": [64, 512]}]}
    ways = list(smaller(call))
    assert ways[0] == {"module": {"args": [8, 4], "kwargs": {"rate": 0.5}}, "args": [{"shape": [2, 8]}]}
    assert 0 < len(ways) <= MOST_SMALLER
    assert all(map(is_small, ways))
    for way in ways:
        SampleSpec.model_validate({"args": way["args"]})


def test_what_would_have_too_many_elements_is_divided_by_more():
    first, *_ = smaller({"args": [{"shape": [8, 3, 64]}]})
    assert first == {"args": [{"shape": [2, 3, 6]}]}  # not 8 by 3 by 8 elements


def test_empty_indices_have_no_bounds():
    call = {"args": [{"shape": [0], "dtype": "int64"}, {"shape": [100, 10]}]}
    assert next(smaller(call)) == {"args": [{"shape": [0], "dtype": "int64"}, {"shape": [8, 2]}]}


def test_many_small_sizes_are_divided_where_nothing_else_helps():
    example = {"args": [{"shape": [2, 3, 5, 7, 11]}]}
    assert all(map(is_small, smaller(example)))
    assert next(smaller(example))["args"] == [{"shape": [2, 2, 2, 2, 2]}]
    endless = {"args": [{"shape": [2] * 6}]}
    assert list(smaller(endless)) == []
    assert chosen([[], [{"args": [1]}]]) == [[{"args": [1]}]]


def test_small_numbers_stay_and_indices_stay_in_range():
    call = {"args": [{"shape": [100, 3]}, {"shape": [50], "dtype": "int64", "low": 0, "high": 100}, 1, 7]}
    ways = list(smaller(call))
    assert ways[0] == {"args": [{"shape": [8, 3]}, {"shape": [4], "dtype": "int64", "low": 0, "high": 8}, 1, 2]}
    assert {"args": [*ways[0]["args"][:3], 7]} in ways
    for way in ways:
        weight, index, dim, _ = way["args"]
        assert (weight["shape"][1], dim) == (3, 1)
        assert index["high"] <= weight["shape"][0]
