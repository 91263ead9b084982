"""Leaves moved where they are: values, restoration to the bit, and when copies are not evidence."""

from __future__ import annotations

import pytest
import torch

import opcheck
from opcheck.derivatives.autodiff import Primal
from opcheck.derivatives.coordinates import vector
from opcheck.derivatives.cotangents import directions, steps
from opcheck.derivatives.differences import looped
from opcheck.derivatives.point import Point
from opcheck.derivatives.question import DOUBLE, Coverage, Request
from opcheck.dropin.in_place import InPlace, OutputsChange, first_order, moved

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])


def stencil(size, step):
    return steps(directions(size), step)


def leaf(*shape, dtype=REAL):
    return (torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(1)) + 0.5).requires_grad_()


def bits(tensor):
    plain = tensor.detach().resolve_conj()
    return (torch.view_as_real(plain) if plain.is_complex() else plain).contiguous().view(torch.int64).clone()


def primal(function):
    return Primal(lambda *x: (function(*x),), (0,))


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
def test_values_are_those_of_copies(dtype):
    leaves = (leaf(2, 3, dtype=dtype), leaf(3, dtype=dtype))
    function = primal(lambda x, y: x * y.exp())
    moves = stencil(vector(leaves).numel(), 1e-3)
    expected = looped(function, leaves, vector(leaves) + moves, len(moves))
    assert torch.equal(moved(function, leaves, moves, 1e-3), expected)


@BOTH
def test_the_leaves_keep_their_bits(dtype):
    leaves = awkward(dtype)
    before = [bits(x) for x in leaves]
    versions = [x._version for x in leaves]
    size = vector(leaves).numel()
    moved(primal(lambda *x: torch.stack([y.sum() for y in x])), leaves, stencil(size, 1e-3), 1e-3)
    assert all(torch.equal(bits(x), kept) for x, kept in zip(leaves, before, strict=True))
    assert [x._version for x in leaves] == versions


@BOTH
def test_the_leaves_keep_their_bits_if_the_function_raises(dtype):
    leaves, calls = awkward(dtype), []
    before = [bits(x) for x in leaves]

    def function(*x):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return x[0].sum()

    with pytest.raises(KeyboardInterrupt):
        moved(primal(function), leaves, stencil(vector(leaves).numel(), 1e-3), 1e-3)
    assert all(torch.equal(bits(x), kept) for x, kept in zip(leaves, before, strict=True))


def test_what_is_not_moved_is_not_touched():
    x = torch.tensor([-0.0, 1.0], dtype=REAL, requires_grad=True)
    values = moved(primal(lambda x: 1 / x), (x,), stencil(2, 0.5), 0.5)
    assert values[1].tolist() == [-float("inf"), 1 / 1.5]
    assert values[3].tolist() == [-float("inf"), 2]


def test_a_graph_from_before_remains_valid():
    x = leaf(3)
    y = x.exp() * x
    moved(primal(torch.sin), (x,), stencil(3, 1e-3), 1e-3)
    assert torch.allclose(torch.autograd.grad(y.sum(), x)[0], (x.exp() * (1 + x)).detach())


def test_elements_that_share_memory_move_together():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=REAL).as_strided((2, 2), (1, 1)).requires_grad_()
    values = moved(primal(lambda x: 1 * x), (x,), torch.tensor([[0.0, 0.5, 0.0, 0.0], [0.0] * 4], dtype=REAL), 0.5)
    assert values.tolist() == [[1, 2.5, 2.5, 3], [1, 2, 2, 3]]
    assert x.tolist() == [[1, 2], [2, 3]]


def test_the_function_is_called_with_gradients_enabled_on_the_leaves_themselves():
    x, seen = leaf(3), []
    with torch.no_grad():
        moved(primal(lambda y: seen.append((y is x, torch.is_grad_enabled())) or y * 2), (x,), stencil(3, 1e-3), 1e-3)
    assert set(seen) == {(True, True)}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x: torch.cat([x, x]), r"same shape when .* perturbed by 0.5, but got: shapes torch.Size\(\[2\]\)"),
        (lambda x: x.float(), "same dtype when .* perturbed by 0.5, but got: dtypes torch.float64 and torch.float32"),
    ],
)  # fmt: skip
def test_outputs_that_change_are_refused(change, text):
    x = leaf(2)
    top = float(x.detach().max()) + 0.4
    with pytest.raises(OutputsChange, match=text):
        moved(primal(lambda x: change(x) if float(x.detach().max()) > top else 1 * x), (x,), -stencil(2, 0.5), 0.5)


def captured(function, *leaves, **how):
    return InPlace(primal(function), leaves, **how)


@pytest.mark.parametrize(
    "coverage", [Coverage("full"), Coverage("projected", projections=6)], ids=["full", "projected"]
)
@BOTH
def test_copies_are_evidence_only_if_the_leaves_themselves_agree(coverage, dtype):
    x = leaf(6, dtype=dtype)
    for function, alike in (
        (lambda y: y.exp(), True),
        (lambda y: y * y.abs(), True),
        (lambda y: x.exp(), False),
        (lambda y: y * x, False),
        (lambda y: y + 1e-3 * x.detach(), False),
        (lambda y: torch.cat([1e9 + 0 * y, y + 1e-3 * x.detach()]), False),
    ):
        evidence = captured(function, x, coverage=coverage)
        found = evidence.numerical(1e-6)
        assert (found is not evidence.numerical(1e-6, looped=True)) is alike
        copies = Point(primal(function), (x,), coverage=coverage).numerical(1e-6)
        assert torch.allclose(found.jacobian, copies.jacobian, 1e-6, 1e-6) is alike


def test_an_effect_on_few_elements_is_seen():
    x = leaf(200)
    evidence = captured(lambda y: y * 1 + torch.cat([x[:1].detach(), torch.zeros(199, dtype=REAL)]) * 1e-2, x)
    assert float(evidence.numerical(1e-6).jacobian[0, 0]) == pytest.approx(1.01)


@pytest.mark.parametrize("shapes", [((0,), (300,)), ((300,), (0,))], ids=["no inputs", "no outputs"])
def test_an_empty_jacobian_takes_few_calls(shapes):
    calls = []

    def function(x):
        calls.append(1)
        return x.sum() * torch.ones(shapes[1], dtype=REAL)

    assert opcheck.gradcheck(function, leaf(*shapes[0]), check_forward_ad=True)
    assert len(calls) <= 12


def test_many_coordinates_are_moved_along_directions():
    weight, calls = leaf(600), []

    def function(x):
        calls.append(1)
        return weight * 2

    evidence = first_order(Request(lambda x: (function(x),), (weight,), DOUBLE))
    assert evidence.extent == "structured"
    assert evidence.numerical(1e-6).jacobian.shape == (600, 1)
    assert len(calls) < 30
    assert opcheck.gradcheck(function, weight)
    with pytest.raises(opcheck.GradcheckError, match=r"^Jacobian mismatch for output 0 with respect to input 0,"):
        opcheck.gradcheck(lambda x: weight * weight.detach(), weight)


def test_a_jacobian_takes_no_batch_of_points():
    x, calls = leaf(20), []

    def function(y):
        calls.append(1)
        return y.exp()

    evidence = captured(function, x)
    assert len(evidence.outputs) == 1
    for mode in ("reverse", "forward"):
        assert evidence.analytical(mode).batched == "directions"
        assert torch.allclose(evidence.analytical(mode).jacobian, x.detach().exp().diag())
    # the outputs, whose graph both backward passes use; forward mode takes an ordinary call and one with all directions
    assert len(calls) == 1 + 2


def test_what_cannot_be_batched_at_one_step_is_not_batched_at_the_next():
    x, calls = leaf(5), []

    def function(y):
        calls.append(y.shape)
        return y * float(y.detach()[0])

    evidence = captured(function, x)
    evidence.numerical(1e-6)
    assert len(calls) == 1 + 1 + 10  # the value, the batch, the loop
    evidence.numerical(2e-6)
    assert len(calls) == 1 + 1 + 10 + 10
