"""Each condition holds for a call that meets it, and not for one beside it."""

from __future__ import annotations

import warnings

import pytest
import torch

from opcheck.mutation import conditions as table
from opcheck.mutation.call import Call
from opcheck.mutation.conditions import CONDITIONS, Condition, conditions, register_condition
from opcheck.samples.arguments import Signature

PLAIN = Signature(("input", "other"), {})
SCALED = Signature(("input", "factor", "flip"), {"factor": 2.0, "flip": False})


def call(*args, signature=PLAIN, outputs=None, **kwargs):
    return Call(args, kwargs, signature, outputs or (torch.ones(2, requires_grad=True),))


def some(*shape):
    return torch.full(shape, 0.5, dtype=torch.float64, requires_grad=True)


def named(name, signature=PLAIN, dtypes=()):
    return next(one for one in conditions((), signature, dtypes) if one.name == name)


MEETING = {
    "a dim of 1": ([some(1, 3)], [some(2, 3)]),
    "more than 16 elements": ([some(17)], [some(16)]),
    "more than 32 elements": ([some(3, 11)], [some(32)]),
    "more than 256 elements": ([some(257)], [some(16, 16)]),
    "a last dim that is not a multiple of 4": ([some(4, 3)], [some(3, 4)]),
    "rank 0": ([some(3), some()], [some(3), some(1)]),
    "rank above 3": ([some(2, 2, 2, 2)], [some(2, 2, 2)]),
    "a non-contiguous input": ([some(2, 3).T], [some(2, 3)]),
    "a broadcast input": ([some(2, 3), some(3)], [some(2, 3), some(3, 2)]),
    "an element that is 0": ([torch.tensor([0.0, 1.0])], [torch.tensor([1e-300, 1.0], dtype=torch.float64)]),
    "an element beyond 10": ([torch.tensor([-11.0])], [torch.tensor([10.0])]),
    "a repeated index": ([some(3), torch.tensor([1, 0, 1])], [some(3), torch.tensor([1, 0, 2])]),
    "an empty input": ([some(0)], [some(1)]),
    "one input alone requires grad": ([some(2), some(2)], [some(2), some(2).detach()]),
}


@pytest.mark.parametrize("name", MEETING)
def test_a_condition_holds_where_it_is_met_and_not_beside(name):
    meeting, beside = MEETING[name]
    assert named(name).met_by(call(*meeting))
    assert not named(name).met_by(call(*beside))


def test_conditions_of_outputs():
    one, two = (some(2),), (some(2), some())
    assert named("an expanded cotangent").met_by(call(some(2), outputs=one))
    assert not named("an expanded cotangent").met_by(call(some(2), outputs=(some(),)))
    assert named("one output alone").met_by(call(some(2), outputs=two))
    assert not named("one output alone").met_by(call(some(2), outputs=one))


def test_each_of_the_table_is_tested_here():
    here = {*MEETING, "an expanded cotangent", "one output alone"}
    assert {condition.name for condition in CONDITIONS} == here


def test_complex_elements_count_by_their_magnitude():
    assert named("an element beyond 10").met_by(call(torch.tensor([8 + 8j])))
    assert not named("an element that is 0").met_by(call(torch.tensor([1j])))


def test_a_keyword_is_set_where_it_differs_from_its_default_by_name_or_by_position():
    factor, flip = named("factor set", SCALED), named("flip set", SCALED)
    assert factor.met_by(call(some(2), factor=3.0, signature=SCALED))
    assert factor.met_by(call(some(2), 3.0, signature=SCALED))
    assert not factor.met_by(call(some(2), factor=2.0, signature=SCALED))
    assert not flip.met_by(call(some(2), 3.0, signature=SCALED))
    both = named("two keywords set", SCALED)
    assert both.met_by(call(some(2), 3.0, flip=True, signature=SCALED))
    assert not both.met_by(call(some(2), flip=True, signature=SCALED))


def test_nothing_but_emptiness_is_met_without_a_number():
    assert not named("a last dim that is not a multiple of 4").met_by(call(some(0, 3)))
    assert named("an empty input").met_by(call(some(0, 3)))


def test_a_nested_tensor_has_no_one_shape():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nested tensors are a prototype
        nested = torch.nested.nested_tensor([torch.ones(1, 3), torch.ones(2, 3)])
    assert call(nested, some(2, 3)).inputs[0].shape == (2, 3)
    assert not named("a dim of 1").holds(call(nested, some(2, 3)))


def test_there_is_one_for_each_dtype():
    assert named("dtype float16", dtypes=("float16",)).checks == ("backward", "low_precision_grad")


def test_arguments_have_the_defaults_of_those_that_are_not_passed():
    one = call(some(2), 3.0, signature=SCALED)
    assert {name: one.arguments[name] for name in ("factor", "flip")} == {"factor": 3.0, "flip": False}
    assert call(some(2), signature=SCALED).arguments["factor"] == 2.0


def test_an_exception_of_a_condition_names_it():
    own = Condition("k above 2", lambda call: call.arguments["k"] > 2)
    with pytest.raises(RuntimeError, match="the condition \"k above 2\" raised KeyError: 'k'"):
        own.met_by(call(some(2)))


def test_people_add_their_own(monkeypatch):
    monkeypatch.setattr(table, "REGISTERED", {})

    @register_condition("for more than 2 rows")
    def more_than_2_rows(call):
        return any(len(x) > 2 for x in call.inputs)

    own = named("more than 2 rows")
    assert isinstance(own, Condition)
    assert own.met_by(call(some(3, 1)))
    assert not own.met_by(call(some(2, 1)))
    with pytest.raises(ValueError, match='the condition "rank 0" is one of opcheck itself'):
        register_condition("for rank 0", name="rank 0")(more_than_2_rows)
    with pytest.raises(ValueError, match='the condition "more than 2 rows" is registered twice'):
        register_condition("for many rows", name="more than 2 rows")(lambda call: True)
    with pytest.raises(
        TypeError, match='register_condition expects words, as in @register_condition\\("for long rows"'
    ):
        register_condition(more_than_2_rows)
