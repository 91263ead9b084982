"""Arguments as code: what it evaluates to has the same values, dtype and memory."""

from __future__ import annotations

import math
from enum import Enum

import pytest
import torch

from opcheck.samples.function import TestedFunction
from opcheck.samples.inputs import Inputs, Made, Slot, unchanged
from opcheck.samples.source import WRITTEN_OUT, Source, Unwritable, tensor

TENSORS = {
    "float64": torch.tensor([[1.5, -0.1], [1 / 3, 2.0]], dtype=torch.float64),
    "complex128": torch.tensor([1.5 - 2j, 1j / 3], dtype=torch.complex128),
    "bfloat16": torch.tensor([1.5, -0.1], dtype=torch.bfloat16),
    "bool": torch.tensor([True, False]),
    "int64": torch.tensor(3),
    "empty": torch.empty(0, 3),
    "infinite": torch.tensor([math.inf, -math.inf, math.nan]),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "with gaps": torch.arange(8.0).reshape(2, 4)[:, ::2],
    "behind others": torch.arange(5.0)[2:],
    "expanded": torch.arange(3.0)[:, None].expand(3, 4),
    "conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_is_the_same_again(name):
    x = TENSORS[name]
    again = eval(tensor(x), {"torch": torch})
    torch.testing.assert_close(again, x, rtol=0, atol=0, equal_nan=True)
    assert (again.stride(), again.storage_offset(), again.is_conj()) == (x.stride(), x.storage_offset(), x.is_conj())


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.int64, torch.bool])
def test_many_elements_are_drawn_between_the_same_bounds(dtype):
    x = torch.arange(WRITTEN_OUT + 1).to(dtype)
    again = eval(tensor(x), {"torch": torch})
    assert (again.shape, again.dtype) == (x.shape, dtype)
    assert len(tensor(x)) < 120
    if not dtype.is_complex:
        assert x.min() <= again.min()
        assert again.max() <= x.max()


@pytest.mark.parametrize("x", [torch.eye(2).to_sparse(), torch._neg_view(torch.ones(2))])
def test_what_has_no_literal_is_refused(x):
    with pytest.raises(Unwritable):
        tensor(x)


class Color(Enum):
    RED = 1


@pytest.fixture
def source():
    inputs = Inputs((), {}, (torch.ones(2),), (Slot(0, ("args", 0), unchanged),))
    return Source(TestedFunction(torch.sin, inputs), ("x",))


@pytest.mark.parametrize(
    "item",
    [None, True, 2, 0.5, 1j, "a'b", ..., slice(1, None, 2), [1, (2,)], {"a": [3]}, math.inf, torch.float32,
     torch.strided, torch.channels_last, torch.device("cpu"), Color.RED, math.sqrt, torch.nn.functional.relu,
     torch.tanh],
)  # fmt: skip
def test_an_argument_is_the_same_again(source, item):
    code = source.expression(item)
    names = {}
    exec("import torch\n" + "\n".join(f"import {name}" for name in source.imports), names)
    assert eval(code, names) == item


def test_leaves_tensors_and_objects_have_names(source):
    item = Made(dict, [[("a", Slot(0, ("args", 0), unchanged))]], {"b": torch.tensor([1])})
    assert source.expression(item) == "builtins.dict([('a', x)], b=tensor0)"
    assert source.definitions == ["tensor0 = torch.tensor([1], dtype=torch.int64)"]


def test_an_object_that_cannot_be_named_is_refused(source):
    with pytest.raises(Unwritable, match="type function"):
        source.expression(lambda x: x)


@pytest.mark.parametrize(
    ("label", "name"), [("x", "x"), ("module.weight", "module_weight"), ("lambda", "lambda_"), ("torch", "torch_")]
)
def test_names_are_identifiers_that_nothing_else_has(label, name):
    inputs = Inputs((), {}, (torch.ones(2),), ())
    assert Source(TestedFunction(torch.sin, inputs), (label,)).names == [name]
