"""A function may write to the tensors that it is given, and to those that it has handed out: nobody else notices."""

from contextlib import suppress

import pytest
import torch
from operators.asking import Request, check_claim
from operators.closed_forms import leaf, numbers

from opcheck.derivatives import Coverage
from opcheck.derivatives.coordinates import rows_of, tensors_of, vector
from opcheck.derivatives.cotangents import directions, probe
from opcheck.derivatives.differences import stencil
from opcheck.derivatives.tolerances import DOUBLE

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
COVERAGES = pytest.mark.parametrize("coverage", [Coverage(), Coverage("projected")], ids=["full", "projected"])
JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")
BESIDE = ("batched_grad", "batched_forward_grad", "undefined_grad", "grad_dtypes", "nondeterminism")
FURTHER = ("rev_over_fwd", "fwd_over_fwd", "scalarized_second_order")


def spoil(*tensors):
    """Write to tensors, as a kernel does that works in place and should not."""
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(2)


class Spoils(torch.autograd.Function):
    """2x, which spoils its input and what its derivatives are given."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        y = 2 * x
        spoil(x)
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        g = 2 * v
        spoil(v)
        return g

    @staticmethod
    def jvp(ctx, t):
        s = 2 * t
        spoil(t)
        return s


def spoils_plainly(x):
    y = 2 * x
    spoil(x)
    return y


@BOTH
@COVERAGES
@pytest.mark.parametrize("spoiler", [Spoils.apply, spoils_plainly], ids=["all", "input"])
def test_a_function_that_writes_to_what_it_is_given_spoils_no_other(spoiler, coverage, dtype):
    for check in (*JACOBIANS, *BESIDE, *FURTHER):
        spoiling = Request(lambda x: (spoiler(x),), (leaf(5, dtype=dtype),), DOUBLE, coverage=coverage)
        with suppress(Exception):  # whatever becomes of it: the next function is another
            check_claim(check, spoiling)
    for check in (*JACOBIANS, *BESIDE, *FURTHER):
        right = Request(lambda x: (x.sin(),), (leaf(5, dtype=dtype),), DOUBLE, coverage=coverage)
        assert check_claim(check, right) is None


def test_directions_are_made_anew_whenever_they_are_asked_for():
    for make in (
        lambda: probe(5), lambda: directions(5), lambda: directions(5, 3),
        lambda: stencil(torch.zeros(5), directions(5), 0.5),
    ):  # fmt: skip
        before = make().clone()
        make().fill_(7)
        assert torch.equal(make(), before)


LIKE = {
    "one": lambda dtype: [leaf(2, 3, dtype=dtype)],
    "several": lambda dtype: [leaf(2, dtype=dtype), leaf(3, dtype=REAL)],
    "transposed": lambda dtype: [numbers(2, 3, dtype=dtype).t()],
    "expanded": lambda dtype: [numbers(1, dtype=dtype).expand(3)],
    "conjugated": lambda dtype: [numbers(2, dtype=dtype).conj()],
    "rank 0": lambda dtype: [leaf(dtype=dtype)],
}


@BOTH
@pytest.mark.parametrize("like", LIKE.values(), ids=LIKE)
def test_tensors_never_share_memory_with_their_coordinates(like, dtype):
    tensors = like(dtype)
    coordinates = vector(tensors)
    before = coordinates.clone()
    batches = [batch.clone() for batch in tensors_of(coordinates.repeat(2, 1), tensors)]
    rows = rows_of(batches, 2)
    spoil(*tensors_of(coordinates, tensors), *tensors_of(coordinates.unsqueeze(0), tensors), *batches)
    if all(0 not in tensor.stride() for tensor in tensors):
        spoil(*tensors)
    assert torch.equal(coordinates, before)
    assert torch.equal(rows, before.repeat(2, 1))


class IntoOneBuffer(torch.autograd.Function):
    """2x, whose gradients and tangents all lie in the same memory."""

    buffer = torch.zeros(0, dtype=REAL)

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, v):
        return torch.mul(v.detach(), 2, out=IntoOneBuffer.buffer)

    @staticmethod
    def jvp(ctx, t):
        return torch.mul(t.detach(), 2, out=IntoOneBuffer.buffer)


@BOTH
@COVERAGES
@pytest.mark.parametrize("check", ["backward", "forward_ad"])
def test_gradients_that_are_views_of_a_buffer_are_right_although_the_next_one_overwrites_them(
    monkeypatch, check, coverage, dtype
):
    monkeypatch.setattr(IntoOneBuffer, "buffer", torch.zeros(5, dtype=dtype))
    asked = Request(lambda x: (IntoOneBuffer.apply(x),), (leaf(5, dtype=dtype),), DOUBLE, coverage=coverage)
    assert check_claim(check, asked) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gaps_in_the_memory_of_tensors_are_zero_whatever_was_there_before(dtype):
    like = torch.ones(3, 4, dtype=dtype)[:, ::2]
    torch.full((64,), 7.0, dtype=torch.float64)  # freed: the next tensor may have its memory
    (made,) = tensors_of(
        torch.arange(1.0, 1 + like.numel() * (2 if dtype.is_complex else 1), dtype=torch.float64), [like]
    )
    assert made.stride() == like.stride()
    memory = made.as_strided((11,), (1,))
    assert int(memory.count_nonzero()) == like.numel()
