"""Calls in tests become samples: small ones, one of each kind."""

from __future__ import annotations

import pytest
import torch

from opcheck.draft.recorder import MOST_ELEMENTS, MOST_SAMPLES, Recorder, Unwritable, chosen, data, kind, size
from opcheck.spec.operator import SampleSpec


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (torch.randn(2, 3) - 9, {"shape": [2, 3]}),
        (torch.full((2,), 3.0), {"shape": [2], "low": 1.5, "high": 3.031}),
        (torch.tensor([1, 2]), {"values": [1, 2], "dtype": "int64"}),
        (torch.tensor(True), {"values": True, "dtype": "bool"}),
        (torch.zeros(0, 2), {"shape": [0, 2]}),
        (torch.zeros(2, dtype=torch.complex64), {"shape": [2]}),
        (None, {"none": True}),
        ((1, 2.5), {"tuple": [1, 2.5]}),
        ([torch.zeros(0)], [{"shape": [0]}]),
        (1j, {"complex": [0.0, 1.0]}),
        (torch.float32, {"dtype": "float32"}),
    ],
)
def test_arguments_as_data(value, written):
    assert data(value, exact=False) == written
    SampleSpec.model_validate({"args": [data(value, exact=False)]})
    SampleSpec.model_validate({"args": [data(value, exact=True)]})


def test_values_are_kept_where_they_are_asked_for():
    assert data(torch.tensor([0.5, 1.0]), exact=True) == {"values": [0.5, 1.0]}


@pytest.mark.parametrize(
    "value", [torch.zeros(MOST_ELEMENTS + 1), torch.zeros(2).to_sparse(), object(), float("inf"), {"a": 1}]
)
def test_what_a_spec_cannot_state_is_left_out(value):
    with pytest.raises(Unwritable):
        data(value, exact=False)
    recorder = Recorder(["f"], ())
    assert recorder.wrapped("f", lambda x: "called")(value) == "called"
    assert recorder.calls == {"f": []}


def test_a_call_is_recorded_once():
    recorder = Recorder(["mylib.f"], ())
    function = recorder.wrapped("mylib.f", lambda x, k: x * k)
    for _ in range(3):
        assert torch.equal(function(torch.ones(2), k=2), torch.full((2,), 2.0))
    ((call, exact),) = recorder.calls["mylib.f"]
    assert (call["kwargs"], exact["args"]) == ({"k": 2}, [{"values": [1.0, 1.0]}])


def test_the_smallest_call_of_each_kind_is_chosen():
    groups = [[{"args": [{"shape": shape}, k]}] for shape, k in (([4, 4], 1), ([2, 2], 1), ([9], 1), ([2, 2], 2))]
    assert chosen(groups) == [groups[1], groups[3], groups[2]]
    assert len(chosen([[{"args": [{"shape": [1]}, k]}] for k in range(20)])) == MOST_SAMPLES


def test_sizes_and_kinds():
    sample = {"args": [{"shape": [2, 3]}, {"values": [1, 0], "dtype": "int64"}], "kwargs": {"dim": 1}}
    assert kind(sample) == {"args": [2, "int64"], "kwargs": {"dim": 1}}
    assert size({"args": [{"shape": [2, 3]}, {"shape": []}]}) == 7
