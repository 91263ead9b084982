"""Leaves are moved where they are: what a function reads in another way moves too, and all keep their bits."""

from __future__ import annotations

import pytest
import torch

import opcheck

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
SIZES = pytest.mark.parametrize("size", [2, 20, 600], ids=["few", "many", "too many"])


def leaf(*shape, dtype=REAL):
    return (torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(1)) + 0.5).requires_grad_()


def bits(tensor):
    plain = tensor.detach().resolve_conj()
    return (torch.view_as_real(plain) if plain.is_complex() else plain).contiguous().view(torch.int64).clone()


def counted(function):
    """Return a function, and the list that has an entry for each call of it."""
    calls = []

    def call(*arguments):
        calls.append(1)
        return function(*arguments)

    return call, calls


def awkward(dtype):
    """Return leaves in every kind of memory: transposed, with gaps, conjugated, empty; zeros with signs and NaN."""
    special = torch.tensor([-0.0, 0.0, float("nan"), float("inf"), 1e-310], dtype=REAL)
    found = [
        leaf(2, 3, dtype=dtype).detach().mT, leaf(3, 4, dtype=dtype).detach()[:, ::2], special.to(dtype),
        leaf(0, 2, dtype=dtype).detach(), leaf(dtype=dtype).detach(),
    ]  # fmt: skip
    if dtype is COMPLEX:
        found.append(leaf(3, dtype=dtype).detach().conj())
    return tuple(x.requires_grad_() for x in found)


@BOTH
@pytest.mark.parametrize("leaves", [awkward, lambda dtype: awkward(dtype)[:1]], ids=["all", "one"])
@pytest.mark.parametrize(
    "function",
    [lambda *x: torch.stack([y.sum() for y in x]), lambda *x: x[0].detach() * x[0]],
    ids=["right", "wrong"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_leaves_keep_their_bits(dtype, leaves, function):
    inputs = leaves(dtype)
    before, versions = [bits(x) for x in inputs], [x._version for x in inputs]
    for check in (opcheck.gradcheck, opcheck.gradgradcheck):
        check(function, inputs, raise_exception=False)
    assert all(torch.equal(bits(x), kept) for x, kept in zip(inputs, before, strict=True))
    assert [x._version for x in inputs] == versions


@BOTH
@pytest.mark.parametrize("last", [1, 2, 4, 60, 61])
def test_the_leaves_keep_their_bits_if_the_function_raises(dtype, last):
    leaves, calls = awkward(dtype), []
    before = [bits(x) for x in leaves]

    def function(*x):
        calls.append(1)
        if len(calls) == last:
            raise KeyboardInterrupt
        return x[0].sum() * float(x[0].detach().real[0, 0])

    with pytest.raises(KeyboardInterrupt):
        opcheck.gradcheck(function, leaves)
    assert all(torch.equal(bits(x), kept) for x, kept in zip(leaves, before, strict=True))


@SIZES
def test_what_is_not_moved_is_not_touched(size):
    """-0.0 + 0.0 would be 0.0, and its inverse another infinity."""
    x, signs = torch.ones(size, dtype=REAL, requires_grad=True), []
    with torch.no_grad():
        x[0] = -0.0

    def function(y):
        signs.append(bool(torch.signbit(x.detach()[0])) or abs(float(x.detach()[0])) > 0)
        return y * 2

    assert opcheck.gradcheck(function, x)
    assert all(signs)


@SIZES
def test_a_graph_from_before_remains_valid(size):
    x = leaf(size)
    y = x.exp() * x
    assert opcheck.gradcheck(torch.sin, x)
    assert torch.allclose(torch.autograd.grad(y.sum(), x)[0], (x.exp() * (1 + x)).detach())


def test_elements_that_share_memory_move_together():
    def shared():
        return torch.tensor([1.0, 2.0, 3.0], dtype=REAL).as_strided((2, 2), (1, 1)).requires_grad_()

    for function in (lambda x: 1 * x, lambda x: x[0] ** 2):
        verdicts = [check(function, shared(), raise_exception=False) for check in (
            opcheck.gradcheck, torch.autograd.gradcheck)]  # fmt: skip
        assert verdicts == [False, False]
    x = shared()
    opcheck.gradcheck(torch.sin, x, raise_exception=False)
    assert x.tolist() == [[1, 2], [2, 3]]


@SIZES
@BOTH
@pytest.mark.parametrize(
    ("function", "right"),
    [
        (lambda x, y: y.exp(), True),
        (lambda x, y: y * y.abs(), True),
        (lambda x, y: x.exp(), True),
        (lambda x, y: y * x, True),
        (lambda x, y: y + 1e-2 * x.detach(), False),
        (lambda x, y: torch.cat([1e3 + 0 * y, y + 1e-1 * x.detach()]), False),
        (lambda x, y: y + 1e-2 * torch.cat([x[:1].detach(), 0 * x[1:].detach()]), False),
    ],
)
def test_what_reads_the_leaf_in_another_way_is_judged_by_the_leaf_itself(function, right, dtype, size):
    x = leaf(size, dtype=dtype)
    assert opcheck.gradcheck(lambda y: function(x, y), x, raise_exception=False) is right
    if not right:
        with pytest.raises(opcheck.GradcheckError, match=r"Jacobian mismatch for output 0 with respect to input 0,"):
            opcheck.gradcheck(lambda y: function(x, y), x)


@pytest.mark.parametrize("shapes", [((0,), (300,)), ((300,), (0,))], ids=["no inputs", "no outputs"])
def test_an_empty_jacobian_takes_few_calls(shapes):
    function, calls = counted(lambda x: x.sum() * torch.ones(shapes[1], dtype=REAL))
    assert opcheck.gradcheck(function, leaf(*shapes[0]), check_forward_ad=True)
    assert len(calls) <= 12


def test_too_many_coordinates_are_moved_along_directions():
    weight = leaf(600)
    function, calls = counted(lambda x: weight * 2)
    assert opcheck.gradcheck(function, weight)
    assert len(calls) < 60
    with pytest.raises(opcheck.GradcheckError, match=r"^Jacobian mismatch for output 0 with respect to input 0,"):
        opcheck.gradcheck(lambda x: weight * weight.detach(), weight)


@pytest.mark.parametrize(
    ("size", "flags", "most"),
    [
        (3, {}, 1 + 2 * 3),
        (40, {}, 1 + 1 + 1),  # the outputs, the batch, and the step that tells whether it is about the leaves
        (40, {"check_forward_ad": True, "check_undefined_grad": False}, 3 + 1 + 1),  # one with all, one random tangent
    ],
)
def test_what_is_right_takes_few_calls(size, flags, most):
    function, calls = counted(torch.sin)
    assert opcheck.gradcheck(function, leaf(size), **flags)
    assert len(calls) <= most


@pytest.mark.parametrize("size", [1, 5, 13, 20])
def test_what_cannot_be_batched_takes_no_more_calls_than_in_slow_mode(size):
    """One call shows that it cannot be batched. What is wrong is called at another step, too."""

    ours, torchs = (counted(lambda y: y * float(y.detach()[0])) for _ in range(2))
    right = counted(lambda y: y * 2 if float(y.detach()[0]) > 0 else y)
    assert opcheck.gradcheck(right[0], leaf(size))
    assert len(right[1]) <= 1 + 1 + 2 * size
    assert opcheck.gradcheck(ours[0], leaf(size), raise_exception=False) is False
    assert torch.autograd.gradcheck(torchs[0], leaf(size), raise_exception=False) is False
    assert len(ours[1]) <= 2 * len(torchs[1]) + 8
