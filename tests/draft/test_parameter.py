"""What is tried for a parameter follows from its name, its annotation and its default."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import pytest
import torch

from opcheck.draft.parameter import INDEX, MASK, NONE, REQUIRED, TENSOR, TENSORS, Parameter


class Mode(Enum):
    FAST = 1
    SLOW = 2


def options(name, annotation="", default=REQUIRED):
    return list(Parameter.of(name, annotation, default).options)


@pytest.mark.parametrize(
    ("name", "annotation", "first"),
    [
        ("x", "Tensor", TENSOR),
        ("x", "torch.Tensor", TENSOR),
        ("xs", "list[Tensor]", TENSORS),
        ("x", "", TENSOR),
        ("mask", "Tensor", MASK),
        ("dim", "int", -1),
        ("n_iter", "int", 2),
        ("p", "float", 0.5),
        ("alpha", "float", 1.5),
        ("flag", "bool", False),
        ("size", "Tuple[int, int]", {"tuple": [2, 2]}),
        ("size", tuple[int, int, int], {"tuple": [2, 2, 2]}),
        ("sizes", "list[int]", [2, 2]),
        ("mode", Literal["fast", "slow"], "fast"),
        ("mode", Literal[3] | None, 3),
        ("mode", Mode, {"object": f"{__name__}.Mode.FAST"}),
        ("mode", str | int | Mode, {"object": f"{__name__}.Mode.FAST"}),
        ("transform", "Callable[[int, int], Module]", {"object": "torch.tanh"}),
        ("net_create_fn", "", {"object": "torch.tanh"}),
        ("dim", "", -1),
        ("inplace", "", False),
        ("sections", "", [1, 1]),
        ("to", torch.dtype, {"dtype": "float64"}),
        ("to", "str | torch.device", "cpu"),
        ("net", torch.nn.Module, {"call": "torch.nn.Identity"}),
    ],
)
def test_the_likeliest_value_comes_first(name, annotation, first):
    assert options(name, annotation)[0] == first


def test_a_target_may_be_a_tensor_of_classes():
    assert options("target", "Tensor") == [TENSOR, INDEX]


def test_what_may_be_none_is_none_where_nothing_else_is_guessed():
    assert options("config", Mode | None) == options("config", Mode)
    assert options("config", dict | None) == [NONE]
    assert options("weight", torch.Tensor | None) == [TENSOR, NONE]


def test_nothing_is_guessed_for_what_is_no_tensor_and_no_number():
    assert options("config", "Config") == []
    assert options("path", "str") == []
    assert options("type") == []


@pytest.mark.parametrize(
    ("name", "annotation", "first"),
    [
        ("in_features", "int", 3),
        ("num_heads", "", 1),
        ("kernel_size", "", 2),
        ("rows", "", 2),
        ("p", "float", 0.5),
        ("weight", "Tensor", TENSOR),
        ("net", torch.nn.Module, {"call": "torch.nn.Identity"}),
    ],
)
def test_constructors_take_numbers(name, annotation, first):
    assert Parameter.of(name, annotation, constructor=True).options[0] == first


def test_a_constructor_may_take_what_cannot_be_guessed():
    assert Parameter.of("type", "", constructor=True).options == ()


@pytest.mark.parametrize(
    ("name", "default", "tried"),
    [
        ("keepdim", False, [True]),
        ("inplace", False, []),
        ("training", True, []),
        ("reduction", "mean", ["sum", "none"]),
        ("weight", None, [TENSOR]),
        ("eps", 1e-5, []),
        ("mode", Mode.FAST, [{"object": f"{__name__}.Mode.SLOW"}]),
    ],
)
def test_only_flags_reductions_members_and_tensors_are_tried_besides_their_defaults(name, default, tried):
    assert options(name, default=default) == tried
