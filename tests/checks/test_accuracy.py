"""Derivatives that lose digits fail `accuracy`, and nothing else, unless the spec says so, with a reason that holds."""

import pytest

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec.problems import SpecError

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
SINGLE = 'tolerance = { accuracy = { rtol = 1e-6, reason = "a kernel in single precision" } }'


@BOTH
@pytest.mark.parametrize("operator", ["right.square", "faulty.nondeterministic"])
def test_full_precision_passes(verdict_of, operator, dtype):
    assert (
        verdict_of(f"operators.{operator}", "accuracy", dtype, "supports = { second_order = false }").outcome
        == "passed"
    )


@BOTH
@pytest.mark.parametrize(
    ("operator", "lost"),
    [("coarse_gradient", "backward"), ("coarse_tangent", "forward_ad"), ("off_by_half_a_thousandth", "backward")],
)
def test_lost_digits_fail_and_are_named_by_the_derivative_that_lost_them(verdict_of, operator, lost, dtype):
    outcome = verdict_of(f"operators.awkward.{operator}", "accuracy", dtype)
    assert outcome.outcome == "failed"
    assert lost in outcome.fields["derivatives"]
    assert verdict_of(f"operators.awkward.{operator}", lost, dtype).outcome == "passed"


@BOTH
def test_a_disclaimer_with_a_reason_is_enough(verdict_of, dtype):
    outcome = verdict_of("operators.awkward.coarse_gradient", "accuracy", dtype, SINGLE)
    assert (outcome.outcome, outcome.fields) == ("passed", {})


def test_a_disclaimer_still_bounds_the_error(verdict_of):
    outcome = verdict_of("operators.awkward.off_by_half_a_thousandth", "accuracy", keys=SINGLE)
    assert outcome.outcome == "failed"


@BOTH
def test_a_stale_disclaimer_fails(verdict_of, dtype):
    outcome = verdict_of("operators.right.square", "accuracy", dtype, SINGLE)
    assert outcome.outcome == "failed"
    assert "no derivative has lost digits" in outcome.reason
    assert "a kernel in single precision" in outcome.message


def test_a_disclaimer_may_be_about_some_dtypes_only(verdict_of):
    keys = SINGLE.replace("rtol", 'dtypes = ["complex"], rtol')
    assert verdict_of("operators.awkward.coarse_gradient", "accuracy", "float64", keys).outcome == "failed"
    assert verdict_of("operators.awkward.coarse_gradient", "accuracy", "complex128", keys).outcome == "passed"


def test_nothing_is_said_of_derivatives_that_are_wrong_altogether(verdict_of):
    keys = "supports = { forward_ad = false, second_order = false }"
    outcome = verdict_of("operators.faulty.wrong_sign", "accuracy", keys=keys)
    assert (outcome.outcome, outcome.fields["blocked_by"]) == ("blocked", "backward")


def test_a_derivative_that_raises_or_is_wrong_is_left_to_its_own_check(verdict_of):
    assert verdict_of("operators.faulty.wrong_jvp", "accuracy").outcome == "passed"


def test_large_jacobians_are_looked_at_by_projections(verdict_of):
    samples = "samples = [{ args = [{ shape = [30, 20], low = 0.5 }] }]"
    keys = 'jacobian = "projected"'
    assert verdict_of("operators.awkward.coarse_gradient", "accuracy", "float64", keys, samples).outcome == "failed"
    assert verdict_of("operators.right.square", "accuracy", "float64", keys, samples).outcome == "passed"


def test_single_precision_is_judged_by_its_own_rounding(verdict_of):
    keys = 'dtypes = { forward = ["float32"] }'
    assert verdict_of("torch.sin", "accuracy", "float32", keys).outcome == "passed"


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_bsc"])
def test_digits_lost_in_the_gradient_of_a_sparse_input_are_found(verdict_of, layout):
    samples = f'samples = [{{ args = [{{ shape = [3, 4], low = 0.5, layout = "{layout}" }}] }}]'
    outcome = verdict_of("operators.faulty.sparse_in_single_precision", "accuracy", "float64", "masked = true", samples)
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith("accuracy: backward lost digits")
    outcome = verdict_of("torch.Tensor.to_dense", "accuracy", "float64", "masked = true", samples)
    assert outcome.outcome == "passed", outcome.message


def test_the_check_is_not_planned_where_inputs_cannot_be_moved(outcomes):
    samples = 'samples = [{ args = [{ shape = [3, 4], layout = "mkldnn" }] }]'
    assert outcomes(f'[[operator]]\nname = "torch.Tensor.to_dense"\n{samples}', checks=("accuracy",)) == {}


# specs


def problems(tmp_path, text):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load([path], Settings())
    return str(caught.value)


OPERATOR = '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }]\n'


def test_a_reason_is_required_and_its_place_is_named(tmp_path):
    text = problems(tmp_path, OPERATOR + "tolerance = { accuracy = { rtol = 1e-6 } }\n")
    assert "spec.toml:4:" in text
    assert "reason" in text


@pytest.mark.parametrize("rtol", ["0.0", "1.0", "-1e-3", '"much"'])
def test_the_error_is_a_number_between_zero_and_one(tmp_path, rtol):
    text = problems(tmp_path, OPERATOR + f'tolerance = {{ accuracy = {{ rtol = {rtol}, reason = "so" }} }}\n')
    assert "spec.toml:4:" in text


def test_a_disclaimer_that_no_case_looks_at_is_a_mistake(tmp_path):
    text = problems(tmp_path, OPERATOR + SINGLE + "\nsupports = { backward = false }\n")
    assert "spec.toml:4:" in text
    assert "matches no case of the check" in text


def test_a_device_claims_no_accuracy_of_its_own(tmp_path):
    from opcheck.spec.device_profile import read_profile

    path = tmp_path / "some.toml"
    path.write_text('[device]\nname = "some"\ntolerance = { accuracy = { rtol = 1e-6, reason = "so" } }\n')
    with pytest.raises(SpecError, match="accuracy"):
        read_profile(path)
