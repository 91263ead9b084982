"""Layouts: which elements are specified, and with which values. Memory formats: strides, and copies that keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch

from opcheck.samples.inputs import Inputs
from opcheck.samples.layouts import (
    conjugated_view,
    in_layout,
    in_memory,
    jagged_offsets,
    jagged_values,
    negated_view,
    own,
    writable,
)
from opcheck.spec.recipe import SPARSE_LAYOUTS, Layout, Memory, Tensor
from opcheck.strides import with_gaps

COMPRESSED = [layout for layout in SPARSE_LAYOUTS if layout != "sparse_coo"]
BLOCKED = ["sparse_bsr", "sparse_bsc"]
ROWS = ["sparse_csr", "sparse_bsr"]
DTYPES = [torch.float64, torch.complex128, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]

pytestmark = pytest.mark.filterwarnings("ignore:Sparse.*beta:UserWarning", "ignore:.*jit.script:DeprecationWarning")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def laid_out(dense: torch.Tensor, layout: str, **keys: Any) -> torch.Tensor:
    keys = keys if "values" in keys else {"shape": list(dense.shape), **keys}
    return in_layout(dense, Tensor.model_validate({"layout": layout, **keys}))


def index_count(x: torch.Tensor) -> int:
    """Specified elements, or blocks, of a compressed tensor without batch dimensions."""
    return int((x.col_indices() if x.layout in (torch.sparse_csr, torch.sparse_bsr) else x.row_indices()).shape[-1])


def test_every_layout_of_the_format_is_made_and_has_its_name(made: Callable[..., Inputs]) -> None:
    names = {"mkldnn": "_mkldnn"}
    for layout in get_args(Layout):
        inputs = made(f'{{ shape = [2, 3], layout = "{layout}" }}', dtype="float32")
        given = inputs.fill()[0][0]
        assert given.layout is getattr(torch, names.get(layout, layout))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
def test_specified_elements_have_the_values_of_the_dense_tensor(layout: str, dtype: torch.dtype) -> None:
    dense = torch.arange(1, 13).reshape(3, 4).to(dtype)
    made = laid_out(dense, layout)
    assert (made.shape, made.dtype, made.layout) == (dense.shape, dtype, getattr(torch, layout))
    back = made.to_dense()
    assert int((back != 0).sum()) == 6
    assert torch.equal(back, torch.where(back != 0, dense, back))


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
@pytest.mark.parametrize(("nnz", "specified"), [(0, 0), (1, 1), (5, 5), (12, 12), (None, 6)])
def test_nnz_elements_are_specified_or_about_half(layout: str, nnz: int | None, specified: int) -> None:
    made = laid_out(torch.ones(3, 4), layout, nnz=nnz)
    assert int((made.to_dense() != 0).sum()) == specified


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
def test_zeros_that_were_drawn_are_specified_as_ones(layout: str) -> None:
    made = laid_out(torch.zeros(3, 4), layout, nnz=7)
    assert sorted(made.to_dense().flatten().tolist()) == [0] * 5 + [1] * 7


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
def test_explicit_values_keep_their_own_zeros(layout: str) -> None:
    values = [[1.0, 0.0, float("inf")], [0.0, 0.0, -2.0]]
    made = laid_out(torch.tensor(values), layout, values=values)
    assert made.to_dense().tolist() == values
    assert made.values().numel() == 3


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
def test_structures_keep_their_own_zeros(layout: str, made: Callable[..., Inputs]) -> None:
    leaf = made(f'{{ shape = [3, 3], structure = "triangular", layout = "{layout}" }}').leaves[0].detach()
    dense = leaf.to_dense()
    assert torch.equal(dense, dense.tril())
    assert int((dense != 0).sum()) == 6


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
def test_infinite_values_leave_the_others_unspecified(layout: str) -> None:
    made = laid_out(torch.full((2, 2), float("inf")), layout, nnz=1)
    assert sorted(made.to_dense().flatten().tolist()) == [0, 0, 0, float("inf")]


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty_matrices_are_sparse_too(layout: str, shape: tuple[int, int]) -> None:
    made = laid_out(torch.ones(shape), layout)
    assert (made.shape, made.layout) == (shape, getattr(torch, layout))


def test_coordinates_go_with_any_rank() -> None:
    for shape in ((), (3,), (2, 0), (2, 3, 2)):
        made = laid_out(torch.ones(shape), "sparse_coo")
        assert (made.shape, made.sparse_dim(), made.is_coalesced()) == (shape, len(shape), True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.int64])
@pytest.mark.parametrize("keys", [{}, {"nnz": 1}, {"nnz": 0}, {"dense_dim": 1}])
def test_half_of_the_elements_may_be_sums_of_two_values(keys: dict[str, Any], dtype: torch.dtype) -> None:
    dense = torch.arange(1, 13).reshape(3, 4).to(dtype)
    torch.manual_seed(0)
    expected = laid_out(dense, "sparse_coo", **keys)
    torch.manual_seed(0)
    made = laid_out(dense, "sparse_coo", coalesced=False, **keys)
    assert not made.is_coalesced()
    assert torch.equal(made.to_dense(), expected.to_dense())
    assert made._nnz() == expected._nnz() + (expected._nnz() + 1) // 2


@pytest.mark.parametrize("dense_dim", [1, 2])
def test_hybrid_coordinates_specify_whole_dense_parts(dense_dim: int) -> None:
    made = laid_out(torch.ones(2, 3, 4), "sparse_coo", dense_dim=dense_dim, nnz=1)
    assert (made.sparse_dim(), made.dense_dim()) == (3 - dense_dim, dense_dim)
    assert made.values().shape == (1, *(2, 3, 4)[3 - dense_dim :])


@pytest.mark.parametrize("layout", COMPRESSED)
def test_hybrid_compressed_tensors_specify_whole_dense_parts(layout: str) -> None:
    made = laid_out(torch.ones(2, 4, 3), layout, dense_dim=1, nnz=3)
    assert (made.sparse_dim(), made.dense_dim()) == (2, 1)
    assert made.values().numel() == 9


@pytest.mark.parametrize("layout", COMPRESSED)
def test_matrices_of_a_batch_have_as_many_specified_elements_each(layout: str) -> None:
    made = laid_out(torch.ones(2, 3, 3, 4), layout, nnz=5)
    assert (made.to_dense() != 0).sum((-2, -1)).tolist() == [[5] * 3] * 2


@pytest.mark.parametrize("layout", BLOCKED)
def test_blocks_are_of_the_size_asked_for_and_counted_by_nnz(layout: str) -> None:
    made = laid_out(torch.arange(1.0, 25).reshape(4, 6), layout, blocksize=[2, 3], nnz=3)
    assert made.values().shape[-2:] == (2, 3)
    assert index_count(made) == 3
    assert int((made.to_dense() != 0).sum()) == 18


@pytest.mark.parametrize("layout", BLOCKED)
def test_blocks_go_with_batches_and_dense_dimensions(layout: str) -> None:
    made = laid_out(torch.ones(2, 4, 2, 3), layout, blocksize=[2, 1], dense_dim=1, nnz=2)
    assert (made.shape, made.dense_dim()) == ((2, 4, 2, 3), 1)
    assert (made.to_dense() != 0).sum((-3, -2, -1)).tolist() == [12, 12]


def test_which_elements_are_specified_depends_on_the_generator() -> None:
    patterns = {str(laid_out(torch.ones(4, 4), "sparse_coo").indices().tolist()) for _ in range(5)}
    assert len(patterns) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3), (1, 2, 3, 4)])
def test_mkldnn_tensors_hold_the_dense_values(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    dense = torch.randn(shape).to(dtype)
    made = laid_out(dense, "mkldnn")
    assert made.is_mkldnn
    assert torch.equal(made.to_dense(), dense)


class TestJagged:
    @pytest.mark.parametrize(("batch", "longest"), [(1, 1), (3, 4), (5, 2), (2, 0), (0, 3)])
    def test_rows_have_lengths_from_1_to_the_longest(self, batch: int, longest: int) -> None:
        lengths = jagged_offsets(batch, longest).diff().tolist()
        assert len(lengths) == batch
        assert all(min(1, longest) <= length <= longest for length in lengths)
        assert not lengths or max(lengths) == longest

    def test_rows_have_different_lengths(self) -> None:
        assert len(set(jagged_offsets(20, 4).diff().tolist())) > 1

    def test_rows_keep_the_first_elements_of_the_padded_tensor(self) -> None:
        dense = torch.arange(12).reshape(2, 3, 2)
        assert jagged_values(dense, torch.tensor([0, 1, 4])).tolist() == [[0, 1], [6, 7], [8, 9], [10, 11]]

    @pytest.mark.parametrize("shape", [[3, 4], [3, 4, 2], [2, 3, 2, 2]])
    def test_the_shape_is_batch_longest_row_and_the_rest(self, shape: list[int], made: Callable[..., Inputs]) -> None:
        given = made(f'{{ shape = {shape}, layout = "jagged" }}').fill()[0][0]
        assert given.is_nested
        assert list(given.detach().to_padded_tensor(0.0).shape) == shape

    def test_explicit_values_are_cut_to_the_rows(self, made: Callable[..., Inputs]) -> None:
        given = made('{ values = [[[1], [2]], [[3], [4]]], layout = "jagged" }').fill()[0][0].detach()
        rows = [row.flatten().tolist() for row in given.unbind()]
        assert rows in ([[1, 2], [3]], [[1], [3, 4]], [[1, 2], [3, 4]])

    def test_tensors_of_one_sample_have_the_same_rows(self, made: Callable[..., Inputs]) -> None:
        recipe = '{ shape = [4, 5, 2], layout = "jagged" }'
        (x, y), _ = made(recipe, recipe).fill()
        torch.testing.assert_close((x + y).values(), x.values() + y.values())


SHAPES = [(), (0,), (3,), (2, 3), (2, 0, 3), (2, 3, 4), (2, 3, 4, 5), (1, 2, 2, 3, 2)]


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
    assert with_gaps(torch.tensor(1.0)).storage_offset() == 1


def test_what_stands_in_the_gaps_is_not_left_to_chance() -> None:
    assert with_gaps(torch.tensor([1.0, 2.0])).untyped_storage().tolist() == (
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("lazy", [conjugated_view, negated_view, lambda x: negated_view(conjugated_view(x))])
def test_a_copy_of_ones_own_is_as_lazy_and_shares_no_memory(lazy, dtype: torch.dtype) -> None:
    x = lazy(torch.rand(2, 3, dtype=dtype))
    expected = x.resolve_conj().resolve_neg().clone()
    copy = own(x.detach().requires_grad_())
    assert (copy.is_conj(), copy.is_neg(), copy.requires_grad) == (x.is_conj(), x.is_neg(), True)
    assert torch.equal(copy.detach().resolve_conj().resolve_neg(), expected)
    copy.detach().zero_()
    assert torch.equal(x.resolve_conj().resolve_neg(), expected)
