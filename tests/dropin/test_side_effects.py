"""What torch's slow mode objects to in functions that write to tensors, the drop-in objects to, in the same way."""

from __future__ import annotations

import warnings

import pytest
import torch
from operators.side_effects import ONE, TWO
from torch.autograd.gradcheck import GradcheckError

import opcheck

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
PAIRS = {
    "gradcheck": (opcheck.gradcheck, torch.autograd.gradcheck),
    "gradgradcheck": (opcheck.gradgradcheck, torch.autograd.gradgradcheck),
}


def answer(check, function, count, dtype):
    """Return True, or what is raised: a GradcheckError, or another exception as it is."""
    torch.manual_seed(0)
    leaves = tuple((torch.rand(4, dtype=dtype) + 0.5).requires_grad_() for _ in range(count))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check(function, leaves)
    except GradcheckError:
        return GradcheckError
    except Exception as error:
        return type(error)


@DTYPES
@pytest.mark.parametrize("name", [*ONE, *TWO])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_answer_is_that_of_slow_mode(pair, name, dtype):
    function, count = (ONE[name], 1) if name in ONE else (TWO[name], 2)
    ours, torchs = (answer(check, function, count, dtype) for check in PAIRS[pair])
    assert ours is torchs


@DTYPES
@pytest.mark.parametrize("name", ["adds_to_data_after_square", "changes_and_restores_before", "writes_by_numpy"])
def test_what_writes_to_its_input_is_no_longer_passed(name, dtype):
    assert answer(opcheck.gradcheck, ONE[name], 1, dtype) is not True


@DTYPES
def test_what_only_seems_to_write_is_passed(dtype):
    for name in ("writes_to_a_clone", "clears_its_grad", "returns_one_twice", "returns_a_view"):
        assert answer(opcheck.gradcheck, ONE[name], 1, dtype) is True


@DTYPES
def test_several_empty_outputs_are_no_crash(dtype):
    x = torch.zeros(0, dtype=dtype, requires_grad=True)
    for function in (lambda x: (x * 1, x * 2), lambda x: (x.sum(), x * 2)):
        assert opcheck.gradcheck(function, (x,)) is torch.autograd.gradcheck(function, (x,)) is True
        assert opcheck.gradgradcheck(function, (x,)) is torch.autograd.gradgradcheck(function, (x,)) is True
