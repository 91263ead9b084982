"""Memory formats: the same values with the strides that the name promises, and copies that keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
import torch

from opcheck.samples import Inputs
from opcheck.samples.layouts import conjugated_view, in_memory, negated_view, noncontiguous, writable
from opcheck.spec.recipe import Memory

DTYPES = [torch.float64, torch.complex128, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
SHAPES = [(), (0,), (3,), (2, 3), (2, 0, 3), (2, 3, 4), (2, 3, 4, 5), (1, 2, 2, 3, 2)]

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")


def numbers(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory", get_args(Memory))
def test_the_values_stay_the_same(memory: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        dense = numbers(shape, dtype)
        made = in_memory(dense, memory)
        assert made.dtype is dtype
        assert torch.equal(made, dense)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_noncontiguous_tensors_have_gaps(shape: tuple[int, ...]) -> None:
    made = in_memory(numbers(shape), "noncontiguous")
    assert not made.is_contiguous()
    assert made.stride()[-1] == 2


def test_a_noncontiguous_number_does_not_start_its_storage() -> None:
    assert noncontiguous(torch.tensor(1.0)).storage_offset() == 1


def test_what_stands_in_the_gaps_is_not_left_to_chance() -> None:
    assert noncontiguous(torch.tensor([1.0, 2.0])).untyped_storage().tolist() == (
        torch.tensor([0.0, 1.0, 0.0, 2.0]).untyped_storage().tolist()
    )


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_transposed_tensors_have_the_first_dimension_innermost(shape: tuple[int, ...]) -> None:
    made = in_memory(numbers(shape), "transposed")
    assert made.stride()[0] == 1
    assert made.transpose(0, -1).is_contiguous()
    assert not made.is_contiguous()


@pytest.mark.parametrize(("shape", "strides"), [((2, 3, 4, 5), (60, 1, 15, 3)), ((2, 3, 2, 4, 5), (120, 1, 60, 15, 3))])
def test_channels_last_tensors_have_the_second_dimension_innermost(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    assert in_memory(numbers(shape), "channels_last").stride() == strides


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
def test_other_ranks_have_no_channels_and_are_contiguous(shape: tuple[int, ...]) -> None:
    assert in_memory(numbers(shape), "channels_last").is_contiguous()


@pytest.mark.parametrize("memory", ["contiguous", "expanded"])
def test_contiguous_tensors_are_so_whatever_they_were_made_of(memory: str) -> None:
    assert in_memory(numbers((2, 3)).mT, memory).is_contiguous()


@pytest.mark.parametrize("structure", ["orthogonal", "upper_triangular", "hermitian", "well_conditioned"])
def test_structured_tensors_are_contiguous(structure: str, made: Callable[..., Inputs]) -> None:
    assert made(f'{{ shape = [3, 3], structure = "{structure}" }}').leaves[0].is_contiguous()


@pytest.mark.parametrize("memory", get_args(Memory))
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_every_format_is_differentiable_and_can_be_vmapped(memory: str, dtype: torch.dtype) -> None:
    x = torch.randn(2, 2, 1, 2, dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: in_memory(x, memory), (x,), check_forward_ad=True, check_batched_grad=True
    )
    batch = torch.randn(3, 2, 2)
    assert torch.equal(torch.func.vmap(lambda x: in_memory(x, memory))(batch), batch)


class TestLazyViews:
    def test_conjugation_is_lazy_and_leaves_real_tensors_alone(self) -> None:
        x = torch.tensor([1 + 2j])
        assert conjugated_view(x).is_conj()
        assert conjugated_view(x).tolist() == [1 - 2j]
        assert conjugated_view(torch.ones(2)).tolist() == [1, 1]

    @pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float16, torch.int64])
    def test_negation_is_lazy(self, dtype: torch.dtype) -> None:
        x = numbers((3,), dtype)
        assert negated_view(x).is_neg()
        assert torch.equal(negated_view(x), -x)

    def test_vmap_takes_the_negative_itself(self) -> None:
        batch = torch.randn(3, 2)
        assert torch.equal(torch.func.vmap(negated_view)(batch), -batch)

    def test_booleans_have_no_negative(self) -> None:
        assert negated_view(torch.tensor([True, False])).tolist() == [True, False]


class TestWritableCopies:
    @pytest.mark.parametrize("memory", ["contiguous", "noncontiguous", "transposed", "channels_last"])
    @pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3), (3,)])
    def test_the_strides_stay_the_same(self, memory: str, shape: tuple[int, ...]) -> None:
        x = in_memory(numbers(shape), memory)
        copy = writable(x)
        assert copy.stride() == x.stride()
        copy.zero_()
        assert torch.equal(x, numbers(shape))

    def test_expanded_tensors_become_writable(self) -> None:
        copy = writable(torch.ones(1, 3).expand(2, 3))
        copy[0] = 5
        assert copy.tolist() == [[5, 5, 5], [1, 1, 1]]

    @pytest.mark.parametrize("memory", ["contiguous", "noncontiguous"])
    def test_neither_conjugation_nor_negation_stays_lazy(self, memory: str) -> None:
        x = negated_view(in_memory(torch.tensor([1 + 2j, 3 - 1j]), memory).conj())
        copy = writable(x)
        assert (copy.is_conj(), copy.is_neg(), copy.stride()) == (False, False, x.stride())
        assert torch.equal(copy, x)
        copy.mul_(2)
        assert copy.tolist() == [-2 + 4j, -6 - 2j]
        assert x.tolist() == [-1 + 2j, -3 - 1j]

    @pytest.mark.filterwarnings("ignore:Sparse.*beta:UserWarning")
    @pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
    def test_sparse_tensors_are_copied(self, layout: torch.layout) -> None:
        x = torch.eye(2).to_sparse(layout=layout)
        writable(x).mul_(3)
        assert torch.equal(x.to_dense(), torch.eye(2))
