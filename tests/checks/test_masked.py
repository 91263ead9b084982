"""Derivatives of sparse inputs, under masked and non-masked semantics."""

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
LAYOUTS = pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])


def sample(layout):
    return f'samples = [{{ args = [{{ shape = [2, 3], layout = "{layout}" }}] }}]'


@BOTH
@LAYOUTS
def test_a_right_operator_passes_under_the_semantics_it_claims(verdict_of, layout, dtype):
    # to_dense() drops the gradients of unspecified elements: masked semantics.
    outcome = verdict_of("torch.Tensor.to_dense", "masked", dtype, "masked = true", sample(layout))
    assert outcome.outcome == "passed", outcome.message
    outcome = verdict_of("torch.Tensor.to_dense", "masked", dtype, "", sample(layout))
    assert outcome.outcome == "failed"
    assert "wrong under non-masked semantics" in outcome.reason


@BOTH
def test_an_operator_can_be_right_under_both_semantics(verdict_of, dtype):
    outcome = verdict_of(
        "operators.right.scale", "masked", dtype, 'outputs = { apply = "to_dense" }', sample("sparse_coo")
    )
    assert outcome.outcome == "passed", outcome.message


@BOTH
@LAYOUTS
def test_a_wrong_gradient_is_caught_in_each_layout(verdict_of, layout, dtype):
    outcome = verdict_of("operators.faulty.wrong_sparse", "masked", dtype, "", sample(layout))
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith("masked: the derivative is wrong")


def test_tolerances_that_let_a_wrong_sign_pass_say_nothing(verdict_of):
    keys = "tolerance = { check = { masked = { atol = 1000.0 } } }"
    outcome = verdict_of("operators.faulty.wrong_sparse", "masked", "float64", keys, sample("sparse_coo"))
    assert outcome.outcome == "error"
    assert outcome.reason.startswith("masked: a gradient of the wrong sign would pass")


def test_an_operator_right_only_under_masked_semantics_is_told_how_to_say_so(verdict_of):
    dtype = "float64"  # torch.sparse.sum has no complex derivative
    keys = 'outputs = { apply = "to_dense" }'
    samples = 'samples = [{ args = [{ shape = [2, 3], layout = "sparse_coo", nnz = 3 }], kwargs = { dim = 1 } }]'
    outcome = verdict_of("torch.sparse.sum", "masked", dtype, keys, samples)
    assert outcome.outcome == "failed"
    assert "write masked = true" in outcome.message
    assert verdict_of("torch.sparse.sum", "masked", dtype, f"{keys}\nmasked = true", samples).outcome == "passed"


def test_dense_samples_alone_have_no_case(outcomes):
    text = '[[operator]]\nname = "operators.right.square"\nsamples = [{ args = [{ shape = [2] }] }]\n'
    assert outcomes(text, checks=("masked",)) == {}


def test_the_deprecated_name_of_masked_is_an_alias(outcomes):
    text = (
        '[[operator]]\nname = "torch.sparse.sum"\noutputs = { apply = "to_dense" }\ncheck_sparse_nnz = true\n'
        'samples = [{ args = [{ shape = [2, 3], layout = "sparse_coo", nnz = 3 }], kwargs = { dim = 1 } }]\n'
    )
    found = outcomes(text, checks=("masked", "backward"), dtypes=("float64",))
    assert {outcome.outcome for outcome in found.values()} == {"passed"}
