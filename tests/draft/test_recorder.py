"""Calls in tests become samples: small ones, one of each kind."""

from __future__ import annotations

import sys
from enum import Enum

import pytest
import torch

from opcheck.draft.recorder import Recorder, Unwritable, examples
from opcheck.draft.smaller import MOST_ELEMENTS, is_small
from opcheck.spec.operator import Construction, SampleSpec


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
        (torch.arange(50), {"shape": [50], "dtype": "int64", "low": 0, "high": 50}),
        (torch.zeros(50, dtype=torch.bool), {"shape": [50], "dtype": "bool"}),
        (torch.zeros(MOST_ELEMENTS + 1), {"shape": [MOST_ELEMENTS + 1]}),
        (torch.tanh, {"object": "torch.tanh"}),
        (torch.nn.Linear, {"object": "torch.nn.Linear"}),
    ],
)
def test_arguments_as_data(value, written):
    recorder = Recorder([], ("torch",))
    assert recorder.data(value, exact=False) == written
    SampleSpec.model_validate({"args": [recorder.data(value, exact=False)]})
    SampleSpec.model_validate({"args": [recorder.data(value, exact=True)]})


def test_values_are_kept_where_they_are_asked_for():
    assert Recorder([], ()).data(torch.tensor([0.5, 1.0]), exact=True) == {"values": [0.5, 1.0]}


@pytest.mark.parametrize("value", [torch.zeros(2).to_sparse(), object(), float("inf"), {"a": 1}, lambda x: x])
def test_what_a_spec_cannot_state_is_left_out(value):
    recorder = Recorder(["f"], ())
    with pytest.raises(Unwritable):
        recorder.data(value, exact=False)
    recorder.record("f", {}, value)
    assert recorder.calls == {"f": {}}


class Mode(Enum):
    FAST = 1


class Scale(torch.nn.Module):
    """Scales, and wraps another module.

    >>> module = Scale(3)
    >>> module(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, size, inner=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.inner = inner or torch.nn.Identity()

    def forward(self, x):
        return self.inner(x * self.weight)


def shift(x, by):
    """Shift.

    >>> raise ValueError("an example may fail")
    >>> shift(torch.tensor([-1.0, 2.0]), by=3)
    """
    return x + by


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x**3


cube = Cube.apply

NAMES = [f"{__name__}.Scale", f"{__name__}.shift", f"{__name__}.Cube.apply"]


@pytest.fixture
def recorder():
    own = Recorder(NAMES, ("torch", __name__))
    with own.replaced:
        own.replace([sys.modules[__name__]])
        yield own


def test_a_call_is_recorded_once(recorder):
    for _ in range(3):
        assert torch.equal(shift(torch.ones(2), by=2), torch.full((2,), 3.0))
    ((call, exact),) = recorder.calls[NAMES[1]].values()
    assert (call["kwargs"], exact["args"]) == ({"by": 2}, [{"values": [1.0, 1.0]}])


def test_a_large_call_is_kept_for_operators_that_refuse_smaller_ones_unless_it_is_huge(recorder):
    for size in (10, 50):
        shift(torch.randn(size, size), by=2)
    large, huge = recorder.calls[NAMES[1]].values()
    assert [call["args"] for call in (large[0], large[-1])] == [[{"shape": [5, 5]}], [{"shape": [10, 10]}]]
    assert all(is_small(call) for call in (*large[:-1], *huge))


def test_members_of_an_enumeration_go_by_their_names():
    assert Recorder([], ()).data(Mode.FAST, exact=False) == {"object": f"{__name__}.Mode.FAST"}


def test_a_module_is_recorded_with_how_it_is_constructed(recorder):
    Scale(2).eval()(torch.tensor([-1.0, 2.0]))
    ((call, exact),) = recorder.calls[NAMES[0]].values()
    assert call == {"module": {"args": [2], "train": False}, "args": [{"shape": [2]}]}
    assert exact == {**call, "args": [{"values": [-1.0, 2.0]}]}


def test_apply_of_a_function_is_recorded_by_whatever_name_it_is_called(recorder):
    cube(torch.tensor([-1.0, 2.0]))
    ((call, _),) = recorder.calls[NAMES[2]].values()
    assert call == {"args": [{"shape": [2]}]}


def test_modules_may_consist_of_modules(recorder):
    Scale(2, inner=Scale(1))(torch.tensor([-1.0, 2.0]))
    outer = next(call["module"] for call, _ in recorder.calls[NAMES[0]].values())
    assert outer == {"args": [2], "kwargs": {"inner": {"call": NAMES[0], "args": [1]}}}
    Construction.model_validate(outer)


def test_what_was_replaced_is_put_back():
    before = Scale.__init__, Scale.forward, shift
    assert examples(NAMES[0], ("torch", __name__))
    assert (Scale.__init__, Scale.forward, shift) == before


@pytest.mark.parametrize(
    ("name", "call"),
    [
        (NAMES[0], {"module": {"args": [3]}, "args": [{"shape": [2, 3], "low": 0.5, "high": 1.011}]}),
        (NAMES[1], {"args": [{"shape": [2]}], "kwargs": {"by": 3}}),
    ],
)
def test_examples_in_documentation_are_calls(name, call):
    ((first, _),) = examples(name, ("torch", __name__))
    assert first == call


def test_examples_may_be_those_of_forward(monkeypatch):
    def forward(self, x):
        """>>> _ = Scale(2)(torch.rand(2, 4))"""
        return x

    monkeypatch.setattr(Scale, "forward", forward)
    shapes = [call["args"][0]["shape"] for (call, _) in examples(NAMES[0], ("torch", __name__))]
    assert [2, 4] in shapes or shapes == [[2, 3]]


def test_without_examples_there_are_no_calls():
    assert examples("torch.sin", ("torch",)) == []
