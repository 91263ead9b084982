"""Each way to lie in memory is the same as a function and as code, and another one than contiguous memory."""

from __future__ import annotations

import pytest
import torch

from opcheck.strides import MEMORIES, laid_out

SHAPES = ((2, 3), (1, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 3, 2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", MEMORIES)
def test_a_function_and_its_code_agree(name, dtype):
    memory = MEMORIES[name]
    for shape in (shape for shape in SHAPES if len(shape) >= memory.dims):
        v = torch.randn(shape, dtype=dtype)
        made, coded = memory.make(v), eval(memory.code, {"torch": torch, "v": v})
        assert torch.equal(made, coded)
        assert (made.stride(), made.storage_offset()) == (coded.stride(), coded.storage_offset())
        assert torch.equal(made, v) or not memory.keeps


@pytest.mark.parametrize("name", MEMORIES)
def test_it_is_no_contiguous_memory_at_the_start_of_a_storage(name):
    v = torch.randn(2, 3, 4, 5)
    made = MEMORIES[name].make(v)
    assert made.stride() != v.stride() or made.storage_offset() > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_strides_are_those_that_were_asked_for_and_gaps_are_zero(dtype):
    values = torch.randn(2, 3, dtype=dtype)
    copy = laid_out(values, (1, 4))
    assert (copy.stride(), torch.equal(copy, values)) == ((1, 4), True)
    memory = copy.as_strided((10,), (1,))
    assert memory[[2, 3, 6, 7]].tolist() == [0] * 4
    assert laid_out(values, (1, 1)).is_contiguous()
