"""Arguments with holes for the leaves, and what they look like to a reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from opcheck.samples.inputs import Inputs, Slot, describe
from opcheck.samples.layouts import conjugated_view, negated_view


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@pytest.fixture
def inputs() -> Inputs:
    leaves = (torch.tensor([1.0]).requires_grad_(), torch.tensor([2.0]).requires_grad_())
    first = Slot(0, ("args", 0), lambda x: x)
    second = Slot(1, ("kwargs", "w", 1), double)
    return Inputs((first, 3, None), {"w": (torch.tensor([5.0]), second), "names": ["a", "b"]}, leaves, (first, second))


def test_the_leaves_of_the_sample_fill_its_holes(inputs: Inputs) -> None:
    args, kwargs = inputs.fill()
    assert args[0] is inputs.leaves[0]
    assert args[1:] == (3, None)
    assert kwargs["w"][1].tolist() == [4]


def test_other_leaves_take_their_place(inputs: Inputs) -> None:
    args, kwargs = inputs.fill((torch.tensor([7.0]), torch.tensor([8.0])))
    assert args[0].tolist() == [7]
    assert [x.tolist() for x in kwargs["w"]] == [[5], [16]]


def test_tuples_stay_tuples_and_lists_stay_lists(inputs: Inputs) -> None:
    _, kwargs = inputs.fill()
    assert isinstance(kwargs["w"], tuple)
    assert kwargs["names"] == ["a", "b"]


def test_filling_leaves_the_inputs_as_they_are(inputs: Inputs) -> None:
    inputs.fill()[0][0].detach().add_(0)
    _, kwargs = inputs.fill()
    kwargs["names"].append("c")
    assert inputs.fill()[1]["names"] == ["a", "b"]


def test_detached_inputs_have_the_same_numbers_and_no_gradients(inputs: Inputs) -> None:
    plain = inputs.detached()
    assert [leaf.requires_grad for leaf in plain.leaves] == [False, False]
    assert [leaf.tolist() for leaf in plain.leaves] == [[1], [2]]
    assert all(leaf.requires_grad for leaf in inputs.leaves)
    assert plain.slots == inputs.slots


def test_a_description_names_dtypes_shapes_and_keywords(inputs: Inputs) -> None:
    assert inputs.describe() == "float32[1], 3, None, w=(float32[1], float32[1]), names=['a', 'b']"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.ones((), dtype=torch.float64), "float64[]"),
        (torch.ones(0, 2, dtype=torch.bool), "bool[0, 2]"),
        (torch.ones(2, 3).mT, "float32[3, 2] strides [1, 3]"),
        (torch.ones(1, 3).expand(2, 3), "float32[2, 3] strides [0, 1]"),
        (conjugated_view(torch.ones(2, dtype=torch.complex64)), "complex64[2] conj"),
        (negated_view(torch.ones(2)), "float32[2] neg"),
        (torch.eye(2).to_sparse(), "float32[2, 2] sparse_coo"),
        (torch.float64, "torch.float64"),
        (slice(1, None), "slice(1, None, None)"),
        ([], "[]"),
        ((), "()"),
        ((1, [2.5]), "(1, [2.5])"),
    ],
)
def test_a_value_is_described_by_what_is_special_about_it(value: object, text: str) -> None:
    assert describe(value) == text


def test_jagged_and_mkldnn_tensors_are_described_by_their_layout(made: Callable[..., Inputs]) -> None:
    assert made('{ shape = [2, 3, 2], layout = "jagged" }').describe().endswith(" jagged")
    assert made('{ shape = [2, 3], layout = "mkldnn" }', dtype="float32").describe() == "float32[2, 3] mkldnn"


def test_a_leaf_that_is_passed_twice_is_one_tensor() -> None:
    slot = Slot(0, ("args", 0), double)
    inputs = Inputs((slot, slot), {"again": slot}, (torch.tensor([1.0]),), (slot,))
    (x, y), kwargs = inputs.fill()
    assert x is y is kwargs["again"]
    assert x.tolist() == [2]


def test_tensors_that_are_no_leaves_are_copies() -> None:
    slot, index = Slot(0, ("args", 0), double), torch.tensor([1])
    inputs = Inputs((slot, index), {"dim": 0}, (torch.tensor([1.0]),), (slot,))
    (_, given), kwargs = inputs.fill()
    given.zero_()
    assert (index.tolist(), kwargs) == ([1], {"dim": 0})
