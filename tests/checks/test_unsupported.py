"""A disclaimed feature must be refused: not work after all, and never give a wrong number."""

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])


@BOTH
def test_what_an_operator_honestly_lacks_is_accepted(verdict_of, dtype):
    keys = "supports = { forward_ad = false, second_order = false, vmap = false }"
    assert verdict_of("operators.right.first_order_only", "unsupported", dtype, keys).outcome == "passed"


@BOTH
def test_a_third_derivative_that_raises_only_for_all_inputs_is_refused(verdict_of, dtype):
    """Autograd skips a function marked `@once_differentiable` if the gradient of some inputs alone is wanted."""
    keys = "supports = { forward_ad = false, third_order = false, vmap = false }"
    operator = "operators.right.second_order_only"
    assert verdict_of(operator, "unsupported", dtype, keys).outcome == "passed"
    assert verdict_of(operator, "rev_over_rev", dtype, keys).outcome == "passed"
    outcome = verdict_of(operator, "rev_over_rev_over_rev", dtype, keys.replace("third_order = false, ", ""))
    assert outcome.outcome == "failed"
    assert "once_differentiable" in outcome.message


@BOTH
@pytest.mark.parametrize(
    "feature",
    [
        "backward", "forward_ad", "batched_grad", "batched_forward_grad", "undefined_grad", "second_order",
        "fwd_over_rev", "vmap",
    ],
)  # fmt: skip
def test_a_disclaimed_feature_that_works_after_all_fails(verdict_of, feature, dtype):
    outcome = verdict_of("operators.right.square", "unsupported", dtype, f"supports = {{ {feature} = false }}")
    assert outcome.outcome == "failed"
    assert f"{feature} is disclaimed, but works on all samples" in outcome.reason


@BOTH
@pytest.mark.parametrize(
    ("operator", "feature"),
    [
        ("forgets_tangent", "forward_ad"),
        ("wrong_sign", "backward"),
        ("wrong_batching_rule", "vmap"),
        ("second_order_lost", "second_order"),
    ],
)
def test_a_wrong_number_instead_of_a_refusal_fails(verdict_of, operator, feature, dtype):
    outcome = verdict_of(f"operators.faulty.{operator}", "unsupported", dtype, f"supports = {{ {feature} = false }}")
    assert outcome.outcome == "failed"
    assert f"{feature} is disclaimed, but gives wrong numbers instead of an error" in outcome.reason


@BOTH
@pytest.mark.parametrize(
    ("operator", "feature"),
    [
        ("crashes_on_undefined_cotangent", "undefined_grad"),
        ("not_batchable", "batched_grad"),
        ("not_batchable_forward", "batched_forward_grad"),
    ],
)
def test_an_error_counts_as_a_refusal(verdict_of, operator, feature, dtype):
    keys = f"supports = {{ {feature} = false }}"
    assert verdict_of(f"operators.faulty.{operator}", "unsupported", dtype, keys).outcome == "passed"


def test_integer_outputs_are_a_refusal_of_backward(verdict_of):
    keys = "supports = { backward = false, forward_ad = false }"
    assert verdict_of("operators.right.integers_only", "unsupported", keys=keys).outcome == "passed"


def test_derivatives_can_be_claimed_for_some_arguments(verdict_of):
    # d igamma / d input exists in no library: torch raises. The derivative with respect to other is claimed.
    keys = 'supports = { backward = ["other"], forward_ad = false, out = true }\ndtypes = { forward = ["float64"] }'
    samples = "samples = [{ args = [{ shape = [2], low = 0.5, high = 2 }, { shape = [2], low = 0.5, high = 2 }] }]"
    assert verdict_of("torch.igamma", "backward", keys=keys, samples=samples).outcome == "passed"
    assert verdict_of("torch.igamma", "unsupported", keys=keys, samples=samples).outcome == "passed"


def test_an_argument_left_out_that_has_a_derivative_fails(verdict_of):
    keys = 'supports = { backward = ["other"] }'
    samples = "samples = [{ args = [{ shape = [2] }, { shape = [2] }] }]"
    outcome = verdict_of("torch.mul", "unsupported", keys=keys, samples=samples)
    assert outcome.outcome == "failed"
    assert "backward is disclaimed, but works" in outcome.reason


def test_who_leaves_out_a_constant_is_told_what_to_write(verdict_of):
    keys = 'supports = { backward = ["x"], forward_ad = false, vmap = false }'
    samples = "samples = [{ args = [{ shape = [2] }, { shape = [2] }] }]"
    outcome = verdict_of("operators.partial.times_constant", "unsupported", keys=keys, samples=samples)
    assert outcome.outcome == "failed"
    assert "if an argument is a constant to the operator, write grad = false in its tensor" in outcome.message
    keys, samples = keys.replace('backward = ["x"], ', ""), samples.replace("[2] }] }", "[2], grad = false }] }")
    for check in ("backward", "unsupported"):
        assert verdict_of("operators.partial.times_constant", check, keys=keys, samples=samples).outcome == "passed"


@pytest.mark.parametrize("backward", ['["input", "other"]', "[0, 1]"])
def test_a_list_of_all_arguments_disclaims_nothing(verdict_of, backward):
    samples = "samples = [{ args = [{ shape = [2] }, { shape = [2] }] }, { args = [{ shape = [0] }, 2.0] }]"
    keys = f"supports = {{ backward = {backward} }}"
    assert verdict_of("torch.mul", "unsupported", keys=keys, samples=samples).outcome == "passed"
    outcome = verdict_of("torch.mul", "unsupported", keys=keys.replace("}", ", vmap = false }"), samples=samples)
    assert outcome.reason == "unsupported: vmap is disclaimed, but works on all samples"


def test_masked_semantics_that_hold_must_not_be_disclaimed(verdict_of):
    keys = 'supports = { masked = false }\noutputs = { apply = "to_dense" }'
    samples = 'samples = [{ args = [{ shape = [2, 3], layout = "sparse_coo" }] }]'
    outcome = verdict_of("operators.right.scale", "unsupported", keys=keys, samples=samples)
    assert outcome.outcome == "failed"
    assert "masked is disclaimed, but works" in outcome.reason


def test_masked_semantics_that_do_not_hold_are_disclaimed_rightly(verdict_of):
    keys = 'supports = { masked = false }\noutputs = { apply = "to_dense" }'
    samples = 'samples = [{ args = [{ shape = [2, 3], layout = "sparse_coo" }] }]'
    outcome = verdict_of("operators.faulty.wrong_sparse", "unsupported", keys=keys, samples=samples)
    assert outcome.outcome == "passed", outcome.message


SPARSE_PRODUCT = """
[[operator]]
name     = "torch.mul"
outputs  = { apply = "to_dense" }
supports = { out = false, forward_ad = false, batched_grad = false, vmap = false, second_order = SECOND }
samples  = [{ args = [{ shape = [2, 3], layout = "LAYOUT" }, { shape = [2, 3], layout = "LAYOUT" }] }]
"""


@pytest.mark.parametrize(("engine", "outcome"), [("batched", "passed"), ("torch", "skipped")])
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_second_order_of_sparse_gradients_is_tried_with_sparse_cotangents(outcomes, layout, engine, outcome):
    # torch's gradgradcheck compares sparse gradients with zero by ==, which torch refuses: it cannot be asked.
    how = {"dtypes": ("float64",), "overrides": {"engine": engine}}
    claimed, disclaimed = (
        outcomes(SPARSE_PRODUCT.replace("LAYOUT", layout).replace("SECOND", supports), checks=checks, **how)
        for supports, checks in (("true", ("rev_over_rev",)), ("false", ("unsupported",)))
    )
    assert [found.outcome for found in claimed.values()] == [outcome]
    assert [found.reason for found in disclaimed.values()] == [
        "unsupported: second_order is disclaimed, but works on all samples"
    ]


@pytest.mark.parametrize("engine", ["batched", "torch"])
def test_one_spec_satisfies_both_engines(outcomes, engine):
    """The vmap of torch's own gradcheck takes an autograd function of the old form, which `torch.func` refuses."""
    spec = """
[[operator]]
name     = "operators.awkward.backward_of_the_old_form"
supports = { batched_grad = false, forward_ad = false, vmap = false, out = false }
samples  = [{ args = [{ shape = [2] }] }]
"""
    found = outcomes(spec, dtypes=("float64",), overrides={"engine": engine})
    left_out = {"rev_over_rev_over_rev": "skipped"} if engine == "torch" else {}  # torch does not test third order
    assert {outcome.check: outcome.outcome for outcome in found.values() if outcome.outcome != "passed"} == left_out
    assert "operators.awkward.backward_of_the_old_form::unsupported[cpu-float64]" in found


def test_what_no_operator_of_torch_library_can_do_is_to_be_expected(verdict_of):
    keys = "registered = true\nsupports = { forward_ad = false, vmap = false }"
    outcome = verdict_of("operators.registered.right_half", "unsupported", "float64", keys)
    assert "forward_ad is disclaimed, but gives wrong numbers instead of an error" in outcome.reason
    assert "torch.library cannot register a forward mode, and torch gives zeros: expect this failure" in outcome.message
    assert "surrogate" not in outcome.message
