"""What a spec claims about dtypes: that the operator is right in some and, if the spec says so, refuses all others."""

import pytest

SAMPLES = "samples = [{ args = [{ shape = [2, 3], low = 0.5 }] }]"


def statuses(outcomes, name, keys):
    found = outcomes(f'[[operator]]\nname = "{name}"\n{keys}\n{SAMPLES}\n', checks=("dtypes",))
    return {outcome.dtype: outcome for outcome in found.values()}


def test_exact_claims_pass_for_every_standard_dtype(outcomes):
    found = statuses(
        outcomes, "torch.sin", 'dtypes = { forward = ["all"], backward = ["floating", "complex"], exact = true }'
    )
    assert len(found) == 12
    assert {outcome.outcome for outcome in found.values()} == {"passed"}
    assert not any(outcome.fields for outcome in found.values())  # nor is there a remark


@pytest.mark.parametrize("missing", ["int64", "float16", "complex128"])
def test_a_dtype_that_works_but_is_not_claimed_fails(outcomes, missing):
    keys = f'dtypes = {{ forward = ["all", "-{missing}"], exact = true }}'
    found = statuses(outcomes, "torch.sin", keys)
    assert found[missing].outcome == "failed"
    assert f'add "{missing}" to dtypes.forward, or take dtypes.exact out' in found[missing].message
    assert {name for name, outcome in found.items() if outcome.outcome != "passed"} == {missing}


@pytest.mark.parametrize("extra", ["bool", "complex64"])
def test_a_claimed_dtype_that_is_refused_fails(outcomes, extra):
    # torch.floor knows neither complex numbers nor booleans.
    found = statuses(outcomes, "torch.floor", f'dtypes = {{ forward = ["integral", "floating", "{extra}"] }}')
    assert found[extra].outcome == "failed"
    assert f"forward is claimed for {extra}, but the operator refuses the sample" in found[extra].reason
    assert {name for name, outcome in found.items() if outcome.outcome != "passed"} == {extra}


def test_a_sample_that_no_claimed_dtype_accepts_is_an_error_as_in_other_checks(outcomes):
    bad = "{ args = [{ shape = [2, 3] }, { shape = [2, 3] }] }"
    samples = f"samples = [{bad}, {bad.replace('[2, 3]', '[3, 3]')}]"
    found = outcomes(
        f'[[operator]]\nname = "torch.mm"\ndtypes = "floating"\n{samples}\n', checks=("dtypes", "backward")
    )
    assert {outcome.outcome for outcome in found.values()} == {"error"}
    assert len({outcome.reason for outcome in found.values()}) == 1  # so that reports show it once
    assert not any("dtypes.forward" in outcome.message for outcome in found.values())


@pytest.mark.parametrize(
    ("name", "args", "hint"),
    [
        ("torch.gather", "{ shape = [2, 3] }, 0, { shape = [2, 3] }", 'dtype = "int64", low = 0, high = 2'),
        ("torch.nn.functional.embedding", "{ shape = [2] }, { shape = [3, 2] }", 'dtype = "int64", low = 0, high = 2'),
        ("operators.diagnosed.triple_weight", "{ shape = [2, 3] }", "kwargs = { dim = 1 }"),
    ],
)
def test_a_refused_sample_has_a_hint_if_the_message_says_what_is_missing(outcomes, name, args, hint):
    found = outcomes(
        f'[[operator]]\nname = "{name}"\nsamples = [{{ args = [{args}] }}]\n', checks=("dtypes", "backward")
    )
    assert {outcome.outcome for outcome in found.values()} == {"error"}
    assert all(hint in outcome.message for outcome in found.values())


def test_a_backward_that_works_but_is_not_claimed_fails(outcomes):
    found = statuses(outcomes, "torch.sin", 'dtypes = { forward = ["all"], backward = ["floating"], exact = true }')
    assert {name for name, outcome in found.items() if outcome.outcome == "failed"} == {"complex64", "complex128"}


def test_where_a_spec_says_nothing_about_dtypes_only_the_default_is_tested(outcomes):
    assert set(statuses(outcomes, "torch.sin", "")) == {
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128"
    }  # fmt: skip


def test_without_a_claim_about_backward_forward_is_tried_with_inputs_that_do_not_require_grad(outcomes):
    claims = (
        'dtypes = { forward = ["floating", "complex", "integral", "bool"], '
        'backward = ["floating", "complex", "-float32"] }'
    )
    found = statuses(outcomes, "operators.partial.no_leaves_in_single", claims)
    assert found["float32"].outcome == "passed", found["float32"].message
    assert found["float64"].outcome == "passed"


def test_outputs_that_do_not_require_grad_are_passed_over(outcomes):
    keys = 'dtypes = { forward = ["all"], backward = ["floating", "complex"] }'
    found = statuses(outcomes, "operators.partial.value_and_copy", keys)
    assert found["float64"].outcome == "passed", found["float64"].message


def test_unless_a_spec_says_exact_other_dtypes_are_nobodys_business(outcomes):
    found = statuses(outcomes, "torch.sin", 'dtypes = { forward = ["floating"], backward = ["float64"] }')
    assert set(found) == {"float16", "bfloat16", "float32", "float64"}
    assert {outcome.outcome for outcome in found.values()} == {"passed"}


def test_a_word_lists_dtypes(outcomes):
    assert set(statuses(outcomes, "torch.sin", 'dtypes = "real"')) == {"float16", "bfloat16", "float32", "float64"}
    assert set(statuses(outcomes, "torch.sin", 'dtypes = "complex"')) == {"complex64", "complex128"}
    assert set(statuses(outcomes, "torch.sin", 'dtypes = ["float32", "int64"]')) == {"float32", "int64"}


SPREAD = "samples = [{ args = [{ shape = [2, 5] }] }, { args = [{ values = [1, 3, 7, 15, 20] }] }]"


@pytest.mark.parametrize(
    ("wrong", "right", "dtypes", "wrong_in"),
    [
        ("tripled_wrongly_in_half", "tripled", "real", {"float16", "bfloat16"}),
        ("tripled_in_half", "centred", "real", {"float32"}),
        ("conjugated_wrongly_in_single", "conjugated", "complex", {"complex64"}),
        ("normalized_in_place", "normalized", ["int64", "float64"], {"int64"}),
        ("halved_overflow", "halved_square", ["uint8", "int8", "int64"], {"uint8", "int8"}),
        ("is_large_but_for_shorts", "is_large", ["integral", "real"], {"int16"}),
        ("position_of_least_in_half", "position", ["real", "int64"], {"float16", "bfloat16"}),
        ("tripled_wrongly_in_half", "squared", ["float16", "float32", "integral"], {"float16"}),
    ],
)
def test_a_value_that_is_wrong_in_one_dtype_is_found(outcomes, wrong, right, dtypes, wrong_in):
    claims = f"dtypes = {dtypes!r}\nsupports = {{ backward = false }}"

    def failing(name):
        text = f'[[operator]]\nname = "operators.coarse.{name}"\n{claims}\n{SPREAD}\n'
        found = list(outcomes(text, checks=("dtypes",)).values())
        assert {outcome.outcome for outcome in found} <= {"passed", "failed"}
        failed = {outcome.dtype: outcome.reason for outcome in found if outcome.outcome == "failed"}
        assert all(f"dtypes: values in {dtype} are not those of" in reason for dtype, reason in failed.items())
        return set(failed)

    assert failing(wrong) == wrong_in
    assert failing(right) == set()


def test_where_double_precision_is_not_claimed_the_finest_dtype_is_the_measure(outcomes):
    found = statuses(outcomes, "operators.coarse.cube_wrong_in_coarse", 'dtypes = ["float16", "float32"]')
    assert {outcome.outcome for outcome in found.values()} == {"passed"}  # both are wrong in the same way
    found = statuses(outcomes, "operators.coarse.tripled_wrongly_in_half", 'dtypes = ["float16", "float32"]')
    assert found["float16"].outcome == "failed"
    assert "not those of the operator in float32" in found["float16"].reason


def test_a_finer_dtype_that_is_claimed_but_refused_is_an_error(outcomes):
    keys = 'dtypes = { forward = ["float32", "float64"] }'
    found = statuses(outcomes, "operators.coarse.refuses_double", keys)
    assert found["float32"].outcome == "error"
    assert "cannot compute the expected values: the operator in float64 raised" in found["float32"].reason
    assert found["float64"].outcome == "failed"


def test_random_operators_are_not_compared(verdict_of):
    assert verdict_of("torch.nn.functional.dropout", "dtypes", "float32", "reseed = true").outcome == "passed"


def test_a_refused_sample_is_told_once(verdict_of):
    found = verdict_of("operators.coarse.refuses_half", "dtypes", "float16")
    assert found.outcome == "failed"
    assert found.message.count("no half precision here") == 1
    assert "forward is claimed for float16, but the operator refuses the sample" in found.reason


def test_a_claim_about_backward_that_no_sample_tests_is_an_error(verdict_of):
    found = verdict_of("torch.argmax", "dtypes", "float32")
    assert found.outcome == "error"
    assert "no sample tests the claim about backward" in found.reason
    assert "no output requires grad" in found.reason
    assert found.fields["remedy"] == {"key": "dtypes.backward", "write": "-float32"}


def test_infinity_is_what_a_dtype_makes_of_too_large_a_number(verdict_of):
    large = "samples = [{ args = [{ values = [1000, 2000.0] }] }]"
    assert verdict_of("torch.square", "dtypes", "float16", samples=large).outcome == "passed"


def test_a_list_of_arguments_without_a_gradient_is_doubted(verdict_of):
    keys = 'supports = { backward = ["y"], out = false }'
    samples = "samples = [{ args = [{ shape = [3] }, { shape = [3] }] }]"
    found = verdict_of("operators.partial.detaches_the_second", "backward", keys=keys, samples=samples)
    assert found.outcome == "failed"
    assert "list the arguments that have a gradient in supports.backward: no output requires grad by y" in found.message
    assert verdict_of("torch.mul", "backward", keys=keys.replace("y", "other"), samples=samples).outcome == "passed"
