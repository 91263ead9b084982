"""What of torch may be named, held against what torch says of its own functions."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest
import torch
from torch.overrides import get_overridable_functions

from opcheck.samples import Unresolved, resolve
from opcheck.samples.members import is_member
from opcheck.spec.names import PARTS, REGISTERED

LOOKED_AT = """
    arange as_strided as_subclass as_tensor asarray assert_int_or_pair bartlett_window blackman_window broadcast_shapes
    can_cast cholesky cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu
    cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable eig empty empty_permuted
    empty_quantized empty_strided eye fftfreq fill from_numpy full grouped_mm hamming_window hann_window hardsigmoid
    hardswish is_vulkan_available kaiser_window linspace logspace lstsq miopen_ctc_loss mkldnn_adaptive_avg_pool2d
    mkldnn_convolution mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer new new_empty
    new_empty_strided new_full new_ones new_tensor new_zeros normal ones promote_types qr rand rand_like randint
    randint_like randn randn_like randperm range reinforce result_type rfftfreq scalar_tensor scaled_grouped_mm
    scaled_mm segment_reduce sigmoid solve sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor
    sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor stride sym_constrain_range sym_constrain_range_for_size
    symeig tanh tensor to_padded_tensor to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr
    tril_indices triu_indices unflatten upsample upsample_bilinear upsample_nearest vander zeros
"""
"""Functions that may be named, and that torch does not let other classes override: mostly since they take no tensor."""


TORCH = [part for part in PARTS if part.startswith("torch") and not part.startswith("torch.ops.")]


def holder(namespace: str) -> object:
    return torch.Tensor if namespace == "torch.Tensor" else importlib.import_module(namespace)


def nameable(namespace: str) -> Iterator[str]:
    for name in dir(holder(namespace)):
        try:
            resolve(f"{namespace}.{name}", ("torch",))
        except Unresolved:
            continue
        yield name


@pytest.mark.parametrize("namespace", ["torch", "torch.Tensor", "torch.nn.functional", "torch.fft", "torch.linalg"])
def test_a_function_that_may_be_named_takes_tensors_or_was_looked_at(namespace: str) -> None:
    """torch lists the functions that take tensors: those that `__torch_function__` can override."""
    take_tensors = {id(function) for functions in get_overridable_functions().values() for function in functions}
    others = {
        name
        for name in nameable(namespace)
        if callable(getattr(holder(namespace), name))
        and id(getattr(holder(namespace), name)) not in take_tensors
        and not name.startswith("_foreach_")
        and not name.endswith("_")
    }
    assert others <= set(LOOKED_AT.split())


@pytest.mark.parametrize("namespace", TORCH)
def test_nothing_that_sets_loads_or_saves_may_be_named(namespace: str) -> None:
    telling = (
        "set_",
        "load",
        "save",
        "register",
        "seed",
        "manual",
        "enable",
        "disable",
        "get_default",
        "use_",
        "from_f",
    )
    assert [name for name in nameable(namespace) if name.startswith(telling)] == []


@pytest.mark.parametrize("namespace", TORCH)
def test_what_may_be_named_is_most_of_what_is_public(namespace: str) -> None:
    """So that the list stays open to operators: refused are modules, classes, and a few functions."""
    public = {
        name
        for name, value in inspect.getmembers(holder(namespace))
        if not name.startswith("_") and callable(value) and not isinstance(value, type)
    }
    assert len(public - set(nameable(namespace))) <= {"torch": 130, "torch.Tensor": 20}.get(namespace, 6)


def test_each_kind_of_the_list_has_a_test() -> None:
    for part, listed in (*PARTS.items(), ("torch.ops.mylib", REGISTERED)):
        assert listed.kinds
        assert not is_member(part, "what", object())
