"""The samples that are tried: all of them are valid, and the likeliest come first."""

from __future__ import annotations

from itertools import islice
from typing import Literal

import pytest

from opcheck.draft.guess import first_samples, further_samples
from opcheck.draft.parameters import Parameter
from opcheck.spec.operator import SampleSpec


def parameter(name, annotation="Tensor", **keys):
    return Parameter.of(name, annotation, **keys)


PARAMETERS = [
    [parameter("x")],
    [parameter("x"), parameter("weight"), parameter("bias", default=None)],
    [parameter("logits"), parameter("target", ""), parameter("dim", "int")],
    [parameter("xs", "list[Tensor]"), parameter("keepdim", "bool", default=False)],
]


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_all_samples_are_valid(parameters):
    samples = list(first_samples(parameters))
    assert len(samples) > 20
    for sample in samples:
        SampleSpec.model_validate(sample)
    for sample in (sample for group in further_samples(samples[0], parameters) for sample in group):
        SampleSpec.model_validate(sample)


def test_the_first_ones_are_plain_and_small():
    first = list(islice(first_samples(PARAMETERS[0]), 3))
    assert first == [{"args": [{"shape": shape}]} for shape in ([2, 3], [3], [3, 3])]


def test_an_unlikely_option_of_one_parameter_comes_before_those_of_several():
    parameters = [parameter(name, "") for name in ("q", "k", "cos", "sin")]  # k is mostly a number
    samples = list(first_samples(parameters))
    assert any(all(isinstance(arg, dict) for arg in sample["args"]) for sample in samples)


def test_without_a_tensor_there_is_nothing_to_try():
    assert list(first_samples([parameter("n", "int")])) == []
    assert list(first_samples([parameter("x"), parameter("config", "Config")])) == []


def test_a_module_with_parameters_needs_no_other_tensor():
    assert next(first_samples([parameter("n", "int")], has_tensors=True)) == {"args": [2]}
    assert next(first_samples([], has_tensors=True)) == {"args": []}


def test_further_samples_differ_in_one_respect():
    main = {"args": [{"shape": [2, 3]}]}
    options = parameter("how", Literal["a", "b"], default="a"), parameter("keepdim", "bool", default=False)
    groups = list(further_samples(main, [parameter("x"), *options]))
    near = {"args": [{"shape": [2, 3], "low": -0.5, "high": 0.5}]}
    assert groups == [[near], [{**main, "kwargs": {"how": "b"}}], [{**main, "kwargs": {"keepdim": True}}]]
