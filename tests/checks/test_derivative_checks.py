"""Each fault is caught, under the check that it belongs to; the same operator without it passes."""

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])

CLAIMS = (
    "backward", "forward_ad", "batched_grad", "batched_forward_grad", "undefined_grad", "grad_dtypes",
    "nondeterminism", "rev_over_rev", "fwd_over_rev",
)  # fmt: skip


@BOTH
@pytest.mark.parametrize("check", CLAIMS)
def test_a_right_operator_passes_every_derivative_check(verdict_of, check, dtype):
    assert verdict_of("operators.right.square", check, dtype).outcome == "passed"


NO_FORWARD = "supports = { forward_ad = false }"
FAULTS = [
    ("one_wrong_entry", "backward", NO_FORWARD),
    ("wrong_for_noncontiguous_cotangents", "backward", NO_FORWARD),
    ("wrong_sign", "backward", NO_FORWARD),
    ("wrong_jvp", "forward_ad", ""),
    ("forgets_tangent", "forward_ad", ""),
    ("wrong_dtype", "grad_dtypes", NO_FORWARD),
    ("second_order_lost", "rev_over_rev", NO_FORWARD),
    ("second_order_wrong", "rev_over_rev", ""),
    ("nondeterministic", "nondeterminism", NO_FORWARD),
    ("crashes_on_undefined_cotangent", "undefined_grad", NO_FORWARD),
    ("not_batchable", "batched_grad", NO_FORWARD),
    ("not_batchable_forward", "batched_forward_grad", ""),
]


@BOTH
@pytest.mark.parametrize(("operator", "check", "keys"), FAULTS, ids=[f"{name}-{check}" for name, check, _ in FAULTS])
def test_a_fault_is_caught_under_its_check(verdict_of, operator, check, keys, dtype):
    outcome = verdict_of(f"operators.faulty.{operator}", check, dtype, keys)
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith(check)


@BOTH
def test_what_is_wrong_by_both_ways_to_differentiate_the_backward_pass_is_told_once(verdict_of, dtype):
    outcome = verdict_of("operators.faulty.second_order_wrong", "fwd_over_rev", dtype)
    assert (outcome.outcome, outcome.fields["blocked_by"]) == ("blocked", "rev_over_rev")
    assert outcome.reason.startswith("fwd_over_rev: not judged, since rev_over_rev: ")


FIRST_ORDER = ("batched_grad", "undefined_grad", "grad_dtypes", "nondeterminism")


@BOTH
@pytest.mark.parametrize("check", FIRST_ORDER)
def test_a_wrong_number_fails_the_jacobian_and_not_the_claims_beside_it(verdict_of, check, dtype):
    keys = NO_FORWARD
    assert verdict_of("operators.faulty.wrong_sign", "backward", dtype, keys).outcome == "failed"
    assert verdict_of("operators.faulty.wrong_sign", check, dtype, keys).outcome == "passed"


@BOTH
def test_second_order_faults_leave_first_order_right(verdict_of, dtype):
    for operator in ("second_order_lost", "second_order_wrong"):
        assert verdict_of(f"operators.faulty.{operator}", "backward", dtype, NO_FORWARD).outcome == "passed"


def test_a_missing_conjugate_shows_in_complex_dtypes_only(verdict_of):
    for dtype, expected in (("float64", "passed"), ("complex128", "failed")):
        outcome = verdict_of("operators.faulty.missing_conjugate", "backward", dtype, NO_FORWARD)
        assert outcome.outcome == expected


def test_one_wrong_entry_of_a_large_jacobian_is_found_and_named(verdict_of):
    samples = "samples = [{ args = [{ shape = [20, 10] }] }]"
    outcome = verdict_of("operators.faulty.one_wrong_entry", "backward", keys=NO_FORWARD, samples=samples)
    assert outcome.outcome == "failed"
    assert outcome.fields["wrong"] == 1
    assert outcome.fields["entries"] == 200 * 200
    assert (outcome.fields["row"], outcome.fields["column"]) == (199, 199)
    assert "d output 0[19, 9] / d x[19, 9]" in outcome.message


def test_fast_mode_lets_one_wrong_entry_through_that_the_whole_jacobian_shows(verdict_of):
    samples = "samples = [{ args = [{ shape = [20, 10] }] }]"
    for fast, outcome in (("true", "passed"), ("false", "failed")):
        keys = f"{NO_FORWARD}\ngradcheck = {{ fast_mode = {fast} }}"
        found = verdict_of("operators.faulty.one_wrong_entry", "backward", keys=keys, samples=samples)
        assert found.outcome == outcome


@pytest.mark.parametrize("check", ["backward", "rev_over_rev"])
def test_fast_mode_passes_a_right_operator_and_finds_a_wrong_one(verdict_of, check):
    keys = f"{NO_FORWARD}\ngradcheck = {{ fast_mode = true }}"
    assert verdict_of("operators.right.square", check, keys="gradcheck = { fast_mode = true }").outcome == "passed"
    wrong = {"backward": "wrong_sign", "rev_over_rev": "second_order_wrong"}[check]
    assert verdict_of(f"operators.faulty.{wrong}", check, keys=keys).outcome == "failed"


def test_a_nondeterministic_gradient_passes_within_a_claimed_tolerance(verdict_of):
    keys = f"{NO_FORWARD}\ntolerance = {{ nondeterminism = 1e-6 }}"
    assert verdict_of("operators.faulty.nondeterministic", "nondeterminism", keys=keys).outcome == "passed"


def test_a_random_operator_is_tested_under_a_fixed_seed(verdict_of):
    assert verdict_of("operators.right.noisy", "backward", keys="reseed = true").outcome == "passed"
    assert verdict_of("operators.right.noisy", "rev_over_rev", keys="reseed = true").outcome == "passed"


@BOTH
@pytest.mark.parametrize(("name", "expected"), [("right.dropped", "passed"), ("reproduced.drawn_again", "failed")])
def test_a_random_operator_is_not_the_first_to_draw(verdict_of, name, expected, dtype):
    keys = f"{NO_FORWARD}\nreseed = true"
    assert verdict_of(f"operators.{name}", "backward", dtype, keys=keys).outcome == expected


@BOTH
@pytest.mark.parametrize(
    ("name", "expected"), [("restores_the_generator", "passed"), ("sets_the_generator_back", "failed")]
)
def test_backward_of_a_random_operator_does_not_seed(verdict_of, name, expected, dtype):
    outcome = verdict_of(f"operators.side_effects.{name}", "purity", dtype, keys=f"{NO_FORWARD}\nreseed = true")
    assert outcome.outcome == expected
    assert expected == "passed" or outcome.reason.startswith("purity: backward seeds torch's global random generator")


@BOTH
@pytest.mark.parametrize(
    ("name", "expected"), [("draws", "passed"), ("draws_from_all", "passed"), ("seeds_in_forward", "failed"),
                           ("seeds_numpy", "failed"), ("seeds_python", "failed")]
)  # fmt: skip
def test_forward_of_a_random_operator_does_not_seed(verdict_of, name, expected, dtype):
    assert verdict_of(f"operators.habits.{name}", "purity", dtype, keys="reseed = true").outcome == expected


MAPPING = "samples = [{ args = [{ mapping = { q = { shape = [3] }, k = { shape = [3] } } }] }]"
DIMS = "samples = [{ args = [{ shape = [2, 3, 4] }, [0, 2]] }]"
ITEMS = "samples = [{ args = [[{ shape = [3] }, { shape = [3] }]] }]"


@BOTH
@pytest.mark.parametrize(
    ("wrong", "right", "samples", "what"),
    [
        ("takes_out_of_a_mapping", "takes_from_a_mapping", MAPPING, "argument given['q'] is removed"),
        ("sorts_its_dims", "sums_over_sorted_dims", DIMS, "argument dims[0] is another value"),
        ("replaces_an_item", "uses_another_list", ITEMS, "argument items[0] is another object"),
        ("adds_an_item", "uses_another_list", ITEMS, "argument items[2] is added"),
    ],
)
def test_containers_keep_their_items(verdict_of, wrong, right, samples, what, dtype):
    found = verdict_of(f"operators.side_effects.{wrong}", "purity", dtype, samples=samples)
    assert found.reason == f"purity: forward changes what it is given: {what}"
    assert "list it, as in inplace" in found.message
    assert verdict_of(f"operators.side_effects.{right}", "purity", dtype, samples=samples).outcome == "passed"


@BOTH
def test_arguments_stay_as_they_are_where_no_gradient_is_wanted(verdict_of, dtype):
    samples = "samples = [{ args = [{ shape = [2, 3] }, { shape = [3] }] }]"
    found = verdict_of("operators.side_effects.gate_in_place_for_inference", "purity", dtype, samples=samples)
    assert found.outcome == "failed"
    assert found.reason.startswith("purity: forward under torch.no_grad() changes what it is given: argument x")
    assert verdict_of("operators.side_effects.gate", "purity", dtype, samples=samples).outcome == "passed"


def test_a_list_that_is_meant_to_change_is_part_of_the_result(verdict_of):
    keys = 'inplace = ["items"]'
    found = verdict_of("operators.side_effects.adds_an_item", "purity", keys=keys, samples=ITEMS)
    assert found.outcome == "passed", found.message


@BOTH
@pytest.mark.parametrize("check", ["backward", "forward_ad"])
def test_a_function_that_changes_from_call_to_call_has_no_kink(verdict_of, check, dtype):
    found = verdict_of("operators.side_effects.grows_with_each_call", check, dtype)
    assert found.outcome == "failed"
    assert "the function is random: two calls with equal arguments differ by up to" in found.message


@pytest.mark.parametrize(("name", "expected"), [("draws_by_the_host", "passed"), ("draws_by_the_host_again", "failed")])
def test_a_random_operator_may_draw_from_python_and_numpy(verdict_of, name, expected):
    keys = f"{NO_FORWARD}\nreseed = true"
    checks = ("backward", "nondeterminism") if expected == "passed" else ("nondeterminism",)
    for check in checks:
        assert verdict_of(f"operators.side_effects.{name}", check, keys=keys).outcome == expected


def test_a_random_operator_without_reseed_fails(verdict_of):
    assert verdict_of("operators.faulty.random", "backward").outcome == "failed"


@BOTH
@pytest.mark.parametrize("check", CLAIMS)
def test_integer_and_other_outputs_are_passed_over(verdict_of, check, dtype):
    assert verdict_of("operators.right.sum_and_index", check, dtype).outcome == "passed"


@BOTH
@pytest.mark.parametrize("check", CLAIMS)
def test_tensor_lists_and_tensors_in_keyword_arguments_are_inputs(verdict_of, check, dtype):
    samples = (
        "samples = [{ args = [[{ shape = [2] }, { shape = [] }, { shape = [0] }]], "
        "kwargs = { weight = { shape = [] } } }]"
    )
    assert verdict_of("operators.right.weighted_total", check, dtype, samples=samples).outcome == "passed"


@pytest.mark.parametrize("shape", ["[]", "[0]", "[2, 0, 3]"])
@pytest.mark.parametrize("check", CLAIMS)
def test_rank_zero_and_empty_tensors_are_checked(verdict_of, check, shape):
    samples = f"samples = [{{ args = [{{ shape = {shape} }}] }}, {{ args = [{{ shape = [2] }}] }}]"
    assert verdict_of("operators.right.square", check, samples=samples).outcome == "passed"


def test_given_cotangents_are_used_at_second_order(verdict_of):
    samples = "samples = [{ args = [{ shape = [2] }], grad_outputs = [{ values = [1.0, -2.0] }] }]"
    assert verdict_of("operators.right.square", "rev_over_rev", samples=samples).outcome == "passed"
    wrong = verdict_of("operators.faulty.second_order_lost", "rev_over_rev", keys=NO_FORWARD, samples=samples)
    assert wrong.outcome == "failed"
    # d/dx of v * 2x is 2v: the worst entry is the one of the larger cotangent.
    assert wrong.fields["numerical"] == pytest.approx(-4.0, abs=1e-6)


def test_an_operator_that_refuses_its_sample_is_an_error_with_its_words(verdict_of):
    outcome = verdict_of("operators.faulty.raises", "backward")
    assert outcome.outcome == "error"
    assert "the operator refuses the sample: RuntimeError: this operator always raises" in outcome.message


def test_a_sample_without_tensors_to_differentiate_is_an_error(verdict_of):
    samples = 'samples = [{ args = [{ shape = [2], dtype = "int64" }] }]'
    outcome = verdict_of("operators.right.scale", "backward", samples=samples)
    assert outcome.outcome == "error"
    assert "no sample tests the claim" in outcome.message


def test_an_operator_without_double_precision_is_checked_in_single(verdict_of):
    keys = 'dtypes = { forward = ["float32", "complex64"] }'
    for dtype in ("float32", "complex64"):
        assert verdict_of("operators.right.square", "backward", dtype, keys).outcome == "passed"
        faulty = keys + "\n" + NO_FORWARD
        assert verdict_of("operators.faulty.wrong_sign", "backward", dtype, faulty).outcome == "failed"


def test_half_precision_alone_is_none_of_their_business(outcomes):
    keys = 'name = "operators.right.square"\ndtypes = ["float16"]\nreference = "torch.square"'
    found = outcomes(f"[[operator]]\n{keys}\nsamples = [{{ args = [{{ shape = [2] }}] }}]")
    assert {outcome.check for outcome in found.values()} == {"low_precision_grad", "dtypes", "variants", "reference"}


def test_a_failure_shows_operator_sample_jacobians_and_how_to_rerun(verdict_of):
    message = verdict_of("operators.faulty.wrong_sign", "backward", keys=NO_FORWARD).message
    assert message.startswith("operators.faulty.wrong_sign::backward[cpu-float64]: failed")
    for part in (
        "spec.toml:4)", "{ args = [{ shape = [2, 3], low = 0.5 }] }", "realized: float64[2, 3]",
        "the reverse-mode Jacobian is not the numerical one", "6 of 36 entries differ", "numerical", "analytical",
        "run just this: opcheck run ", "::operators.faulty.wrong_sign::backward[cpu-float64]'",
    ):  # fmt: skip
        assert part in message


@pytest.mark.parametrize(("name", "draws"), [("nondeterministic", True), ("alternating", False)])
def test_the_message_says_if_backward_draws_random_numbers(verdict_of, name, draws):
    outcome = verdict_of(f"operators.faulty.{name}", "nondeterminism", keys=NO_FORWARD)
    assert outcome.outcome == "failed"
    assert ("backward draws random numbers" in outcome.message) is draws


@pytest.mark.parametrize("check", ["backward", "forward_ad", "rev_over_fwd"])
def test_where_the_shape_of_an_output_jumps_there_is_no_derivative(verdict_of, check):
    path = "operators.objects.square_of_positive_numbers"
    outcome = verdict_of(path, check, samples="samples = [{ args = [{ values = [0.0, 1.0, -1.0] }] }]")
    assert outcome.outcome == "inconclusive"
    assert "the shapes of the outputs depend on the numbers, and change near the sample" in outcome.reason
    assert verdict_of(path, check, samples="samples = [{ args = [{ values = [0.5, 1.0, -1.0] }] }]").outcome == "passed"
