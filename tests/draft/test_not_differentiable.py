"""What has nothing to differentiate is told by schemas and annotations; what may have something is not."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import pytest
import torch

from opcheck.draft.not_differentiable import (
    NO_KERNEL,
    ONLY_QUANTIZED,
    TAKES_NO_TENSOR,
    reason_not_to_call,
)
from opcheck.samples.resolve import resolve


class Color(Enum):
    RED = 1


def plain(n: int, sizes: tuple[int, ...], how: Literal["a"], color: Color, dtype: torch.dtype | None = None): ...


def listed(parts: list): ...


def partly(n: int, x): ...


def starred(n: int, *rest: int): ...


def unknown(n: Missing): ...  # noqa: F821


def nothing(): ...


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("torch.rand", TAKES_NO_TENSOR),
        ("torch.arange", TAKES_NO_TENSOR),
        ("torch.fft.fftfreq", TAKES_NO_TENSOR),
        ("torch.signal.windows.hann", TAKES_NO_TENSOR),
        ("torch.allclose", ""),  # the first calls show it
        ("torch.int_repr", ONLY_QUANTIZED),
        ("torch.add", ""),
        ("torch.normal", ""),  # one overload takes numbers, others do not
        ("torch.as_tensor", ""),
        ("torch.tensor", ""),
        ("torch.quantize_per_tensor", ""),
        ("torch.cudnn_convolution", NO_KERNEL),
    ],
)
def test_all_overloads_show_it(path, why):
    assert reason_not_to_call(resolve(path, ["torch"]), path) == why


@pytest.mark.parametrize(
    ("function", "why"),
    [(plain, TAKES_NO_TENSOR), (nothing, TAKES_NO_TENSOR), (listed, ""), (partly, ""), (starred, ""), (unknown, "")],
)
def test_annotations_show_it(function, why):
    assert reason_not_to_call(function, "mylib.function") == why


def test_a_builtin_of_another_library_is_not_the_function_of_torch_that_has_its_name():
    assert reason_not_to_call(torch.rand, "mylib.rand") == ""


def test_an_operator_of_others_may_have_any_kernel():
    with torch.library._scoped_library("constants", "FRAGMENT") as library:
        library.define("scale(Tensor x) -> Tensor")
        assert reason_not_to_call(torch.ops.constants.scale, "torch.ops.constants.scale") == ""
