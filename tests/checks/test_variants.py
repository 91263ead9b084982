"""Function, method, in-place, out= and aliases agree, or the one that does not is named."""

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
NO_OUT = "supports = { out = false }"


def inplace(target, more=""):
    return f'{NO_OUT}\nvariants = [{{ kind = "inplace", target = "operators.{target}" }}]\n{more}'


@BOTH
def test_all_ways_of_calling_sin_agree(verdict_of, dtype):
    keys = 'variants = ["method", "inplace"]\naliases = ["torch.Tensor.sin"]'
    assert verdict_of("torch.sin", "variants", dtype, keys).outcome == "passed"


@BOTH
def test_an_inplace_variant_with_other_values_is_caught(verdict_of, dtype):
    keys = inplace("faulty.square_other_values_", "devices = ['cpu']")
    outcome = verdict_of("operators.right.square", "variants", dtype, keys)
    assert outcome.outcome == "failed"
    assert "output 0 is not that of the function, called by operators.faulty.square_other_values_" in outcome.reason


@BOTH
@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "square_of_a_copy_",
            "variants: output 0 is not that of the function, called by {} with a slice of a larger buffer",
        ),
        ("square_and_neighbors_", "variants: {} with a slice of a larger buffer writes beside it"),
        (
            "square_of_a_flat_copy_",
            "variants: output 0 is not that of the function, called by {} with a transposed buffer",
        ),
    ],
)
def test_an_inplace_variant_that_is_wrong_in_other_memory_is_caught(verdict_of, dtype, target, words):
    outcome = verdict_of("operators.right.square", "variants", dtype, inplace(f"faulty.{target}"))
    assert outcome.outcome == "failed"
    assert outcome.reason == words.format(f"operators.faulty.{target}")


@BOTH
def test_an_inplace_variant_that_returns_something_else_is_caught(verdict_of, dtype):
    outcome = verdict_of("operators.right.square", "variants", dtype, inplace("faulty.square_out_of_place_"))
    assert outcome.outcome == "failed"
    assert "does not return its first argument" in outcome.reason


@BOTH
def test_a_right_inplace_variant_passes(verdict_of, dtype):
    outcome = verdict_of("operators.right.square", "variants", dtype, inplace("right.square_"))
    assert outcome.outcome == "passed"


def test_an_inplace_call_that_cannot_hold_the_result_must_be_refused(verdict_of):
    samples = "samples = [{ args = [{ shape = [1] }, { shape = [3] }] }]"
    assert verdict_of("torch.add", "variants", keys='variants = ["inplace"]', samples=samples).outcome == "passed"
    keys = 'variants = [{ kind = "inplace", target = "operators.faulty.add_resized_" }]'
    outcome = verdict_of("torch.add", "variants", keys=keys, samples=samples)
    assert outcome.outcome == "failed"
    assert "accepts an input that cannot hold the result" in outcome.message


@BOTH
def test_an_inplace_call_may_change_the_shape_where_the_function_returns_a_view(verdict_of, dtype):
    assert verdict_of("torch.t", "variants", dtype, inplace("right.turned_")).outcome == "passed"
    for wrong in ("turned_negated_", "turned_flat_"):
        outcome = verdict_of("torch.t", "variants", dtype, inplace(f"faulty.{wrong}"))
        assert outcome.outcome == "failed"
        assert f"is not that of the function, called by operators.faulty.{wrong}" in outcome.message


@BOTH
@pytest.mark.parametrize(
    ("target", "expected"), [("right.turned_", "passed"), ("faulty.turned_of_twice_the_gradient_", "failed")]
)
def test_derivatives_of_an_inplace_call_that_changes_the_shape_are_checked(outcomes, target, expected, dtype):
    text = f'[[operator]]\nname = "torch.t"\n{inplace(target)}\nsamples = [{{ args = [{{ shape = [2, 3] }}] }}]\n'
    found = outcomes(text, checks=("backward",), dtypes=(dtype,))
    assert found[f"torch.t[inplace]::backward[cpu-{dtype}]"].outcome == expected


def test_an_empty_tensor_may_take_another_shape_in_place_or_refuse_it(verdict_of):
    samples = "samples = [{ args = [{ shape = [0] }, 1] }, { args = [{ shape = [2] }, 1] }]"
    keys = f'{NO_OUT}\nvariants = ["inplace"]'
    assert verdict_of("torch.unsqueeze", "variants", keys=keys, samples=samples).outcome == "passed"
    samples = (
        "samples = [{ args = [{ shape = [0] }, { shape = [1, 0] }] }, { args = [{ shape = [2] }, { shape = [2] }] }]"
    )
    assert verdict_of("torch.add", "variants", keys='variants = ["inplace"]', samples=samples).outcome == "passed"


def test_an_alias_with_other_values_is_caught(verdict_of):
    outcome = verdict_of("torch.sin", "variants", keys='aliases = ["torch.cos"]')
    assert outcome.outcome == "failed"
    assert "output 0 is not that of the function, called by torch.cos" in outcome.reason


def test_a_claimed_out_that_does_not_exist_fails_with_the_remedy(verdict_of):
    outcome = verdict_of("operators.right.square", "variants", keys="supports = { out = true }")
    assert outcome.outcome == "failed"
    assert "set supports.out = false" in outcome.message


@pytest.mark.parametrize("operator", ["operators.right.square", "torch.t"])
def test_an_out_of_which_spec_and_signature_say_nothing_is_not_expected(verdict_of, operator):
    assert verdict_of(operator, "variants").outcome == "passed"


def test_an_out_that_a_function_in_c_refuses_fails_if_it_is_claimed(verdict_of):
    outcome = verdict_of("torch.t", "variants", keys="supports = { out = true }")
    assert outcome.outcome == "failed"
    assert "set supports.out = false" in outcome.message


def test_an_out_that_a_function_in_c_accepts_is_tested(verdict_of):
    samples = "samples = [{ args = [{ shape = [2, 3, 4] }, 1, 0, 2] }]"
    outcome = verdict_of("torch.narrow_copy", "variants", samples=samples)
    assert outcome.outcome == "failed"  # it ignores the strides of out=
    assert "called by out= a slice of a larger buffer" in outcome.reason


def test_a_disclaimed_out_that_exists_fails(verdict_of):
    outcome = verdict_of("torch.sin", "variants", keys=NO_OUT)
    assert outcome.outcome == "failed"
    assert "out= is disclaimed, but accepted" in outcome.reason


@pytest.mark.parametrize("keys", ["", NO_OUT])
def test_an_out_that_a_function_of_any_keywords_passes_on_is_none_of_its_own(verdict_of, keys):
    assert verdict_of("operators.objects.takes_any_keywords", "variants", keys=keys).outcome == "passed"


@BOTH
def test_an_out_that_is_answered_by_not_implemented_is_refused(verdict_of, dtype):
    samples = "samples = [{ args = [{ shape = [2, 3] }, { shape = [3] }] }]"
    assert verdict_of("torch.Tensor.__radd__", "variants", dtype, NO_OUT, samples).outcome == "passed"
    outcome = verdict_of("torch.Tensor.__radd__", "variants", dtype, "supports = { out = true }", samples)
    assert outcome.outcome == "failed"
    assert "out= raised TypeError: it returned NotImplemented" in outcome.message


@pytest.mark.parametrize("dtype", ["float64", "complex128", "int64"])
@pytest.mark.parametrize("values", ["[[0, 1], [2, 1]]", "[[1, 1], [1, 1]]", "[[0, 0], [0, 0]]"])
@pytest.mark.parametrize("operator", ["ignores_out", "writes_half_of_out"])
def test_an_out_that_is_not_written_to_fails_whatever_was_in_its_memory(verdict_of, operator, values, dtype):
    samples = f"samples = [{{ args = [{{ values = {values} }}] }}]"
    keys = 'dtypes = { forward = ["float64", "complex128", "int64"] }'
    outcome = verdict_of(f"operators.faulty.{operator}", "variants", dtype, keys, samples)
    assert outcome.outcome == "failed"
    assert "output 0 is not that of the function, called by out=" in outcome.reason


@BOTH
@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("fills_a_flat_out", "output 0 is not that of the function, called by out= a transposed buffer"),
        ("writes_beyond_out", "out= a transposed buffer writes beside it"),
        ("returns_another_than_out", "out= is filled, but another tensor is returned"),
    ],
)
def test_an_out_that_is_wrong_if_transposed_or_not_returned_is_caught(verdict_of, operator, reason, dtype):
    outcome = verdict_of(f"operators.faulty.{operator}", "variants", dtype)
    assert (outcome.outcome, outcome.reason) == ("failed", f"variants: {reason}")


@BOTH
@pytest.mark.parametrize("operator", ["square_into", "square_into_a_view", "square_into_contiguous"])
def test_a_right_out_passes(verdict_of, operator, dtype):
    outcome = verdict_of(f"operators.right.{operator}", "variants", dtype)
    assert outcome.outcome == "passed", outcome.message


@pytest.mark.parametrize("shape", [[2, 3], [5, 7]])  # from 16 on, torch draws numbers for contiguous memory in one loop
def test_random_numbers_may_follow_the_order_of_memory(verdict_of, shape):
    samples = f"samples = [{{ args = [{{ shape = {shape} }}, {{ shape = {shape}, low = 0.5 }}] }}]"
    outcome = verdict_of("torch.normal", "variants", keys="reseed = true", samples=samples)
    assert outcome.outcome == "passed", outcome.message


def test_derivatives_of_the_inplace_variant_are_checked_on_a_clone(outcomes):
    text = '[[operator]]\nname = "torch.sin"\nvariants = ["inplace"]\nsamples = [{ args = [{ shape = [2] }] }]\n'
    found = outcomes(text, checks=("backward", "rev_over_rev"), dtypes=("complex128",))
    assert found["torch.sin[inplace]::backward[cpu-complex128]"].outcome == "passed"
    assert found["torch.sin[inplace]::rev_over_rev[cpu-complex128]"].outcome == "passed"


def test_an_inplace_variant_may_change_the_strides(verdict_of):
    samples = "samples = [{ args = [{ shape = [3, 3] }] }]"
    outcome = verdict_of("torch.t", "variants", keys='variants = ["inplace"]', samples=samples)
    assert outcome.outcome == "passed", outcome.message


def test_an_output_in_the_layout_of_onednn_is_no_obstacle(verdict_of):
    keys = 'dtypes = ["float32"]\nsupports = { forward_ad = false, out = false }\noutputs = { apply = "to_dense" }'
    samples = 'samples = [{ args = [{ shape = [2, 3], layout = "mkldnn" }, [3, 2]] }]'
    outcome = verdict_of("torch.reshape", "variants", "float32", keys=keys, samples=samples)
    assert outcome.outcome == "passed", outcome.message
