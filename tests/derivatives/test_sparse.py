"""Sparse tensors as functions of their elements: the map, its derivatives, and what is said about wrong gradients.

torch's gradcheck, on strided tensors, is the independent source.
"""

import warnings
from dataclasses import replace

import pytest
import torch
from operators.asking import Request, check_claim
from operators.corpus_numbers import one_wrong_entry, spoiled
from operators.corpus_sparse import GIVEN, PATTERN, PULLED, TRIPLE, at, sparse_leaf, square
from torch.autograd.gradcheck import GradcheckError

from opcheck.derivatives.autodiff import dual_level, make_dual
from opcheck.derivatives.gradients import attributes
from opcheck.derivatives.sparse import Pattern, ones_like
from opcheck.derivatives.tolerances import DOUBLE

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch warns of sparse layouts

REAL, COMPLEX = torch.float64, torch.complex128
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["non-masked", "masked"])
COMPRESSED = {"csr": {}, "csc": {}, "bsr": {"blocksize": (2, 3)}, "bsc": {"blocksize": (2, 3)}}


def dense(*shape, dtype=REAL):
    """Return a tensor of which two blocks of four are zero, the same ones in each matrix."""
    generator = torch.Generator().manual_seed(3)
    blocks = torch.tensor([[1, 0], [0, 1]]).repeat_interleave(2, 0).repeat_interleave(3, 1)
    matrices = torch.rand(*shape, 4, 6, dtype=dtype, generator=generator) + 0.5
    return matrices * blocks


def made():
    """Return a sparse tensor of each kind, by name."""
    found = {}
    for name, options in COMPRESSED.items():
        layout = getattr(torch, f"sparse_{name}")
        found[name] = dense().to_sparse(layout=layout, **options)
        found[f"{name} batch"] = dense(2).to_sparse(layout=layout, **options)
        found[f"{name} hybrid"] = dense(2).permute(1, 2, 0).to_sparse(layout=layout, dense_dim=1, **options)
        found[f"{name} nothing specified"] = torch.zeros(4, 6, dtype=REAL).to_sparse(layout=layout, **options)
        found[f"{name} empty"] = torch.zeros(0, 6, dtype=REAL).to_sparse(layout=layout, **options)
    plain = dense().to_sparse()
    twice = [torch.cat([plain.indices()] * 2, 1), torch.cat([plain.values(), plain.values() ** 2])]
    rows = [torch.tensor([[2, 0, 2]]), torch.rand(3, 6, dtype=REAL)]
    return found | {
        "coo": plain,
        "coo of rank 3": dense(2).to_sparse(),
        "coo hybrid": dense().to_sparse(1),
        "coo uncoalesced": torch.sparse_coo_tensor(*twice, plain.shape),
        "coo uncoalesced hybrid": torch.sparse_coo_tensor(*rows, (4, 6)),
        "coo nothing specified": torch.zeros(4, 6, dtype=REAL).to_sparse(),
        "coo empty": torch.zeros(0, 6, dtype=REAL).to_sparse(),
        "coo of rank 0": torch.tensor(2.0, dtype=REAL).to_sparse(),
    }


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of some layouts, once
    MADE = made()
EACH = pytest.mark.parametrize("sparse", MADE.values(), ids=MADE)


def parts(sparse):
    if sparse.layout is torch.sparse_coo:
        return sparse._indices(), sparse._values()
    if sparse.layout in (torch.sparse_csr, torch.sparse_bsr):
        return sparse.crow_indices(), sparse.col_indices(), sparse.values()
    return sparse.ccol_indices(), sparse.row_indices(), sparse.values()


# the map


@EACH
def test_a_sparse_tensor_is_made_of_its_elements_as_it_was(sparse):
    again = Pattern.of(sparse).of_elements(sparse.to_dense())
    assert (again.layout, again.shape, again.dtype) == (sparse.layout, sparse.shape, sparse.dtype)
    *indices, values = parts(sparse)
    *found, elements = parts(again)
    assert all(map(torch.equal, found, indices))
    assert torch.allclose(elements, values, 1e-15, 1e-15)
    if sparse.layout is torch.sparse_coo:
        assert again.is_coalesced() == sparse.is_coalesced()


@EACH
def test_moves_of_specified_elements_and_of_no_others_move_it(sparse):
    elements = sparse.to_dense() + torch.arange(1.0, 1 + sparse.numel(), dtype=REAL).view(sparse.shape)
    mask = Pattern.of_all(sparse).of_elements(torch.ones_like(elements)).to_dense() * 0
    mask.view(-1)[Pattern.of(sparse).places.flatten()] = 1
    assert torch.allclose(Pattern.of(sparse).of_elements(elements).to_dense(), elements * mask)
    torch.testing.assert_close(Pattern.of_all(sparse).of_elements(elements).to_dense(), elements)


@EACH
def test_all_elements_can_be_specified_in_the_same_layout(sparse):
    full = Pattern.of_all(sparse).of_elements(sparse.to_dense())
    assert (full.layout, full.sparse_dim(), full.dense_dim()) == (
        sparse.layout,
        sparse.sparse_dim(),
        sparse.dense_dim(),
    )
    assert parts(full)[-1].numel() == sparse.numel()
    if sparse.layout in (torch.sparse_bsr, torch.sparse_bsc):
        assert parts(full)[-1].shape[-2:] == parts(sparse)[-1].shape[-2:] or sparse.dense_dim() == 1
    assert torch.equal(full.to_dense(), sparse.to_dense())


def test_what_is_written_to_the_indices_of_one_does_not_reach_the_next():
    pattern = Pattern.of(MADE["coo"])
    pattern.of_elements(dense())._indices().zero_()
    assert torch.equal(pattern.of_elements(dense()).to_dense(), dense())


@EACH
def test_ones_are_where_elements_are_specified(sparse):
    ones = ones_like(sparse)
    assert (ones.layout, ones.shape) == (sparse.layout, sparse.shape)
    assert torch.equal(ones.to_dense(), Pattern.of(sparse).of_change(torch.ones(sparse.shape)).to_dense())
    assert torch.equal(ones_like(sparse.to_dense()), torch.ones_like(sparse.to_dense()))


# its derivatives, which torch's gradcheck and gradgradcheck judge on strided tensors


def elements(request):
    """Return the function of the elements of sparse leaves, with the elements."""
    point = request.point.derived()
    return replace(request, function=point.function.function, leaves=point.leaves)


def elementwise(sparse, masked):
    """Return a function of the elements whose derivatives of any order are torch's own, given a sparse tensor."""
    cube = Request(lambda x: (x.to_dense(masked_grad=masked) ** 3,), (sparse.requires_grad_(),), DOUBLE, masked=masked)
    return elements(cube)


ONCE = ("csr", "csc", "bsr", "bsc", "coo", "coo of rank 3", "coo hybrid", "coo uncoalesced")
"""Kinds whose to_dense() torch can differentiate."""


@MASKED
@pytest.mark.parametrize("kind", ONCE)
def test_its_derivatives_are_those_of_the_elements(kind, masked):
    asked = elementwise(made()[kind], masked)
    # Non-masked semantics without unspecified elements: then torch can move all that there is.
    function = asked.function if masked else asked.function.surrogate
    assert torch.autograd.gradcheck(function, asked.leaves)
    if kind in ("coo", "coo hybrid", "coo uncoalesced", "csr"):  # of the others torch has no second derivative
        assert torch.autograd.gradgradcheck(function, asked.leaves)


@pytest.mark.parametrize("kind", [kind for kind, sparse in MADE.items() if sparse.numel()])
def test_its_derivatives_are_those_of_the_elements_where_gradients_are_dense(kind):
    asked = elements(Request(square(PULLED), (made()[kind].requires_grad_(),), DOUBLE))
    assert torch.autograd.gradcheck(asked.function.surrogate, asked.leaves)
    assert torch.autograd.gradgradcheck(asked.function.surrogate, asked.leaves)


def test_there_is_a_third_derivative():
    asked = elementwise(made()["coo"], False)

    def gradient(x):
        return torch.autograd.grad(asked.function.surrogate(x)[0].sum(), x, create_graph=True)[0]

    assert torch.autograd.gradgradcheck(gradient, asked.leaves)


@BOTH
def test_a_gradient_is_handed_over_with_all_of_its_elements(dtype):
    (x,) = sparse_leaf("coo")(dtype)
    asked = elements(Request(TRIPLE, (x,), DOUBLE, masked=True))
    (given,) = torch.autograd.grad(asked.function(*asked.leaves)[0].real.sum(), asked.leaves)
    assert torch.equal(given, torch.full_like(given, 3))  # also where nothing is specified, where it is wrong


def test_a_leaf_that_is_not_used_has_no_gradient():
    (x,) = sparse_leaf("coo")(REAL)
    y = torch.ones(2, dtype=REAL, requires_grad=True)
    asked = elements(Request(lambda x, y: (2 * y,), (x, y), DOUBLE))
    (output,) = asked.function(*asked.leaves)
    assert torch.autograd.grad(output.sum(), asked.leaves, allow_unused=True)[0] is None


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_torch_has_no_sparse_dual_tensors(layout):
    (x,) = sparse_leaf(layout)(REAL)
    with dual_level(), pytest.raises((NotImplementedError, RuntimeError)):
        make_dual(x.detach(), torch.ones(2, 2, dtype=REAL))
    asked = Request(lambda x: (x.to_dense(),), (x,), DOUBLE)
    with pytest.raises(NotImplementedError, match="Cannot access storage of Sparse"):
        check_claim("forward_ad", asked)
    refused = check_claim("batched_forward_grad", asked)
    assert refused.kind == "refused"
    assert "Cannot access storage of Sparse" in refused.text


# what is said


def found(function, layout="coo", dtype=REAL, check="backward", **fields):
    return check_claim(check, Request(function, sparse_leaf(layout)(dtype), DOUBLE, leaf_names=("x",), **fields))


WRONG = {
    "sign": (TRIPLE, lambda g: -g, REAL),
    "factor": (TRIPLE, lambda g: 2 * g, REAL),
    "zero": (TRIPLE, torch.zeros_like, REAL),
    "conjugated": (GIVEN, lambda g: g * (3 + 1j) / (3 - 1j), COMPLEX),
    "entries": (TRIPLE, one_wrong_entry, REAL),
}


@MASKED
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_sparse_gradient_is_diagnosed_as_a_dense_one(kind, layout, masked):
    formula, spoil, dtype = WRONG[kind]
    take = at(PATTERN if masked else torch.ones(2, 2, dtype=torch.bool), layout)
    told = found(spoiled(formula, "vjp", lambda g: take(spoil(g)), 0), layout, dtype, masked=masked)
    (finding,) = told.findings
    assert finding.kind in (kind, "columns", "rows") if kind == "entries" else finding.kind == kind
    assert told.worst[0].leaf_name == "x"


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc", "uncoalesced"])
def test_the_place_of_a_wrong_entry_is_that_in_the_tensor(layout):
    told = found(spoiled(square(PULLED), "vjp", one_wrong_entry, 0), layout)
    assert [entry.leaf_index for entry in told.worst] == [(1, 1)]
    assert "d output 0[1, 1] / d x[1, 1] = " in told.text


def test_an_entry_that_is_not_specified_is_named_too():
    told = found(TRIPLE, masked=True)
    assert [(entry.leaf_index, entry.numerical, entry.analytical) for entry in told.worst] == [((0, 0), 0.0, 3.0)]


def test_a_wrong_second_derivative_is_told_with_the_names_of_gradient_and_cotangent():
    told = found(square(spoiled(PULLED, "vjp", torch.neg, 0)), check="rev_over_rev")
    assert told.worst[0].name == "gradient of x"
    assert [finding.kind for finding in told.findings] == ["sign"]


def test_outputs_whose_shape_depends_on_what_is_specified_have_no_derivative_under_non_masked_semantics():
    values = lambda x: (x.coalesce().values(),)  # noqa: E731
    for check in ("backward", "masked", "rev_over_rev"):
        told = found(values, check=check)
        assert told.kind == "wrong"
        assert "[(3,)] for the sample, [(4,)] with all elements specified; expected equal shapes" in told.text
    assert found(values, masked=True) is None


def test_a_kink_at_unspecified_zeros_is_told():
    # gradcheck lets it pass: its central difference is zero there, as is the gradient of what is not specified.
    assert torch.autograd.gradcheck(lambda x: x.abs().to_dense(masked_grad=False), sparse_leaf("coo")(REAL))
    told = found(lambda x: (x.abs().to_dense(masked_grad=False),))
    assert told.kind == "inconclusive"
    assert "x[0, 0] = 0" in told.text


class Rows(torch.autograd.Function):
    """x.to_dense(), with a gradient that has rows of dense vectors."""

    @staticmethod
    def forward(ctx, x):
        return x.to_dense()

    @staticmethod
    def backward(ctx, v):
        return v.to_sparse(1)


def test_a_gradient_with_other_sparse_dimensions_is_found():
    asked = Request(lambda x: (Rows.apply(x),), sparse_leaf("coo")(REAL), DOUBLE, leaf_names=("x",))
    assert attributes(asked.point).text == "the gradient of x has 1 sparse dimensions, not 2"
    with pytest.raises(GradcheckError, match="incorrect sparse_dim 1, expected 2"):
        torch.autograd.gradcheck(asked.function, asked.leaves)
    hybrid = Request(asked.function, sparse_leaf("hybrid")(REAL), DOUBLE)
    assert attributes(hybrid.point) is None
