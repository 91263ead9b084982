"""Tensors that are handed over as they are: copies with the same values, strides and lazy views."""

from __future__ import annotations

import pytest
import torch

from opcheck.samples.leaves import Given


def real(*shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape) + 1


def made(tensor, dtype, own="float64", *, grad=True):
    given = Given(tensor, grad, own)
    leaf, through = given.leaf(given.dtype_in(dtype))
    return leaf, through(leaf)


class TestDtypes:
    @pytest.mark.parametrize(
        ("tensor", "own", "case", "expected"),
        [
            (torch.float64, "float64", "float32", torch.float32),
            (torch.float64, "float64", "complex64", torch.complex64),
            (torch.complex128, "float64", "float32", torch.complex64),
            (torch.float64, "complex128", "complex64", torch.float32),
            (torch.complex128, "complex128", "complex64", torch.complex64),
            (torch.float32, "float64", "bfloat16", torch.float32),
            (torch.int64, "float64", "float32", torch.int64),
            (torch.bool, "float64", "complex64", torch.bool),
            (torch.int64, "int64", "uint8", torch.uint8),
            (torch.float64, "float64", "float64", torch.float64),
        ],
    )
    def test_what_has_the_dtype_of_the_call_follows_the_case(self, tensor, own, case, expected):
        assert Given(torch.ones(2, dtype=tensor), True, own).dtype_in(case) is expected

    def test_leaves_get_imaginary_parts_and_constants_do_not(self):
        _, leaf = made(real(50), "complex64")
        assert torch.equal(leaf.real, real(50).float())
        assert leaf.imag.abs().max() <= 1
        assert len(leaf.imag.unique()) > 40
        _, constant = made(real(50), "complex64", grad=False)
        assert constant.imag.eq(0).all()

    def test_a_sparse_leaf_gets_them_too(self):
        _, leaf = made(torch.eye(2, dtype=torch.float64).to_sparse(), "complex64")
        assert leaf.to_dense()[0, 0].imag != 0


class TestMemory:
    @pytest.mark.parametrize(
        "tensor",
        [
            real(2, 3), real(4, 6)[::2, 1::2], real(2, 3).T, real(), real(0, 3), real(3, 1).expand(3, 4),
            real(1, 3).expand(2, 3)[:, ::2], real(2).to(torch.complex128).conj(), torch._neg_view(real(3)),
            torch._neg_view(torch.complex(real(3), real(3)).conj()), real(2, 1, 3).transpose(0, 2),
            torch.complex(real(3, 1), real(3, 1)).conj().expand(3, 2),
        ],
    )  # fmt: skip
    def test_the_operator_gets_an_equal_tensor_in_equal_memory(self, tensor):
        own = str(tensor.dtype).removeprefix("torch.")
        leaf, got = made(tensor, own, own)
        assert torch.equal(got, tensor)
        assert (got.stride(), got.is_conj(), got.is_neg()) == (tensor.stride(), tensor.is_conj(), tensor.is_neg())
        assert leaf.is_leaf
        assert leaf.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr() or not tensor.numel()

    def test_elements_that_share_memory_are_one_element_of_the_leaf(self):
        leaf, got = made(real(3, 1).expand(3, 4), "float64")
        assert (leaf.shape, got.shape) == ((3, 1), (3, 4))

    def test_windows_that_overlap_become_contiguous(self):
        tensor = real(5).unfold(0, 3, 1)
        leaf, got = made(tensor, "float64")
        assert torch.equal(got, tensor)
        assert leaf.is_contiguous()
        assert leaf.untyped_storage().nbytes() == 9 * 8

    @pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
    def test_other_layouts_are_kept(self, layout):
        tensor = torch.eye(3, dtype=torch.float64).to_sparse(layout=layout)
        leaf, got = made(tensor, "float64")
        assert leaf is got
        assert got.layout is layout
        assert torch.equal(got.to_dense(), tensor.to_dense())

    def test_a_parameter_becomes_a_plain_tensor(self):
        leaf, _ = made(torch.nn.Parameter(real(2)), "float64")
        assert type(leaf) is torch.Tensor
        assert not leaf.requires_grad
