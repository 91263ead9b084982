"""The tensors that a callable holds are found wherever it may keep them, and nothing else is looked into."""

from __future__ import annotations

import functools

import torch

from opcheck.samples.captured import MOST, captured, module_call

GLOBAL = torch.ones(1)
TABLE = {"a": torch.ones(1), "b": "no tensor"}
LOOP: list = []
LOOP.append(LOOP)
MANY = [0] * (MOST + 5)


def names(operator):
    return [name for name, _ in captured(operator)]


def test_a_function_without_any_has_none():
    assert names(torch.sin) == []
    assert names(lambda x: x) == []
    assert names(torch.Tensor.sin) == []


def test_globals_that_it_names():
    assert names(lambda x: x * GLOBAL) == ["the global GLOBAL"]
    assert names(lambda x: x * TABLE["a"]) == ["the global TABLE['a']"]


def test_what_it_closes_over():
    weight, weights = torch.ones(1), [torch.ones(1), torch.ones(1)]
    assert names(lambda x: x * weight) == ["the captured weight"]
    assert names(lambda x: x * weights[0]) == ["the captured weights[0]", "the captured weights[1]"]


def test_an_empty_cell_holds_nothing():
    def outer():
        def inner(x):
            return x * later

        found = names(inner)
        later = torch.ones(1)
        return found, later

    assert outer()[0] == []


def test_defaults_and_the_arguments_of_a_partial():
    def scaled(x, weight=torch.ones(1)):  # noqa: B008 - that is what is looked for
        return x * weight

    assert names(scaled) == ["the default 0"]
    assert names(functools.partial(torch.mul, torch.ones(1))) == ["the bound argument 0"]
    assert names(functools.partial(torch.mul, other=torch.ones(1))) == ["the bound argument other"]


def test_attributes_of_objects_and_of_the_owners_of_methods():
    class Scale:
        def __init__(self):
            self.weight = torch.ones(1)

        def __call__(self, x):
            return x * self.weight

        def apply(self, x):
            return x * self.weight

    assert names(Scale()) == ["the attribute weight"]
    assert names(Scale().apply) == ["the attribute weight"]


def test_the_state_of_modules():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    net[0].scale = torch.ones(1)
    state = ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"]
    every = [*state, "0.scale"]
    assert names(net) == names(net.forward) == [f"the attribute {name}" for name in every]
    assert names(lambda x: net(x)) == [f"the captured net.{name}" for name in every]
    assert names(functools.partial(torch.nn.Sequential.forward, net)) == [
        f"the bound argument 0.{name}" for name in every
    ]
    nets = [net]
    assert names(lambda x: nets[0](x))[0] == "the captured nets[0].0.weight"
    assert names(module_call(net)) == ["the attribute 0.scale"]  # the rest is given to it


def test_containers_that_contain_themselves_or_are_large_are_no_trouble():
    assert names(lambda x: (LOOP, MANY, x)) == []
