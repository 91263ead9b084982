"""Derivatives in dtypes that finite differences cannot judge: right ones pass, wrong ones fail."""

import pytest
import torch
from operators import scaled

from opcheck.checks.jacobian.low_precision_grad import LARGE_NUMBERS
from opcheck.planning import Selection, load, plan
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile

CHECK = "low_precision_grad"
COARSE = ("float32", "bfloat16", "float16", "complex64")
BFLOAT16_BY_DAY = ["bfloat16", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("float32", "float16"))]
PAIR = "samples = [{ args = [{ shape = [2, 3] }, { shape = [2, 3] }] }]"
NO_DOUBLE = 'dtypes = ["float32", "bfloat16", "float16", "complex64"]'


def judged(outcomes, name, keys="", samples="samples = [{ args = [{ shape = [2, 3], low = 0.5 }] }]", seed=0):
    found = outcomes(f'[[operator]]\nname = "{name}"\n{keys}\n{samples}\n', seed=seed, checks=(CHECK,))
    return {outcome.dtype: outcome for outcome in found.values()}


class TestWrongGradients:
    @pytest.mark.parametrize("dtype", COARSE)
    def test_a_gradient_that_is_wrong_in_a_coarse_dtype_is_found(self, verdict_of, dtype):
        keys = "supports = { forward_ad = false }"
        found = verdict_of("operators.coarse.cube_wrong_in_coarse", CHECK, dtype, keys)
        assert found.outcome == "failed"
        assert f"in {dtype}, the gradient of x[" in found.reason
        finer = "complex128" if dtype == "complex64" else "float64"
        assert f"compared with the operator in {finer}, for the same numbers" in found.message
        assert "the gradient of x as a whole is 0.5" in found.message.replace("0.4999", "0.5000")
        assert verdict_of("operators.coarse.cube", CHECK, dtype, keys).outcome == "passed"

    def test_a_gradient_that_cancels_out_may_be_a_rounding_of_its_terms(self, verdict_of):
        for dtype in ("float32", "complex64", "float16"):
            assert verdict_of("operators.coarse.standardized", CHECK, dtype).outcome == "passed"
        keys = "supports = { forward_ad = false }"
        wrong = verdict_of("operators.coarse.standardized_wrong_in_coarse", CHECK, "float32", keys)
        assert "in float32, the gradient of x[" in wrong.reason

    @pytest.mark.parametrize("check", [CHECK, "dtypes"])
    @pytest.mark.parametrize("dtype", COARSE)
    def test_so_may_a_value_be_that_is_0_up_to_rounding(self, verdict_of, dtype, check):
        assert verdict_of("operators.coarse.off_circle", check, dtype).outcome == "passed"
        wrong = verdict_of("operators.coarse.off_circle_wrong_in_coarse", check, dtype)
        assert wrong.outcome == "failed"
        assert "output 0[" in wrong.reason

    @pytest.mark.parametrize("dtype", COARSE)
    def test_so_is_a_tangent(self, outcomes, dtype):
        wrong = judged(outcomes, "operators.coarse.product_wrong_forward_in_coarse", samples=PAIR)[dtype]
        assert wrong.outcome == "failed"
        assert "the tangent of output 0[" in wrong.reason
        assert judged(outcomes, "operators.coarse.product", samples=PAIR)[dtype].outcome == "passed"

    def test_and_a_value(self, outcomes):
        found = judged(outcomes, "operators.coarse.tripled_wrongly_in_half")
        assert found["float16"].outcome == found["bfloat16"].outcome == "failed"
        assert "output 0[" in found["float16"].reason
        assert found["float32"].outcome == "passed"

    def test_it_is_named_by_its_place_among_all_outputs(self, outcomes):
        found = judged(outcomes, "operators.coarse.place_and_triple_wrongly_in_half")
        assert "in float16, output 1[" in found["float16"].reason

    def test_single_precision_is_held_to_its_own_rounding(self, outcomes):
        assert judged(outcomes, "operators.coarse.tripled_in_half")["float32"].outcome == "failed"
        assert judged(outcomes, "operators.coarse.tripled")["float32"].outcome == "passed"

    @pytest.mark.parametrize("dtype", BFLOAT16_BY_DAY)
    def test_a_few_percent_are_found_in_all_families(self, outcomes, dtype):
        found = outcomes(scaled.spec_of("off"), checks=(CHECK,), dtypes=(dtype,))
        caught = [case for case, outcome in found.items() if outcome.outcome == "failed"]
        assert len(found) == len(scaled.ARGS)
        # Versions before torch 2.13 draw other numbers.
        assert len(caught) >= (30 if torch.__version__ >= "2.13" else 25), sorted(set(found) - set(caught))
        assert all("the gradient of" in found[case].reason for case in caught)
        right = outcomes(scaled.spec_of("right"), checks=(CHECK,), dtypes=(dtype,))
        assert {outcome.outcome for outcome in right.values()} == {"passed"}

    def test_large_numbers_cancelling_is_no_mistake(self, outcomes):
        assert {found.outcome for found in judged(outcomes, "operators.coarse.centred").values()} == {"passed"}


class TestTruth:
    def test_without_double_precision_the_reference_tells(self, outcomes):
        keys = f'{NO_DOUBLE}\nreference = {{ target = "operators.coarse.eager", differentiable = true }}'
        found = judged(outcomes, "operators.coarse.no_double", keys, PAIR)
        assert {dtype: outcome.outcome for dtype, outcome in found.items()} == dict.fromkeys(COARSE, "passed")
        wrong = keys.replace("coarse.eager", "coarse.product_wrong_forward_in_coarse")  # right in double precision
        found = judged(outcomes, "operators.coarse.no_double", wrong, PAIR)
        assert {outcome.outcome for outcome in found.values()} == {"passed"}

    def test_a_wrong_kernel_is_found_by_it(self, outcomes):
        keys = f'{NO_DOUBLE}\nreference = {{ target = "operators.coarse.eager", differentiable = true }}'
        found = judged(outcomes, "operators.coarse.product_wrong_forward_in_coarse", keys, PAIR)
        assert {outcome.outcome for outcome in found.values()} == {"failed"}
        assert "compared with operators.coarse.eager in float64" in found["bfloat16"].message

    def test_a_public_function_of_torch_is_taken_to_be_differentiable(self, outcomes):
        found = judged(outcomes, "operators.coarse.no_double", f'{NO_DOUBLE}\nreference = "torch.mul"', PAIR)
        assert {outcome.outcome for outcome in found.values()} == {"passed"}

    def test_without_either_a_finer_dtype_tells_about_half_precision(self, outcomes):
        found = judged(outcomes, "operators.coarse.no_double", NO_DOUBLE, PAIR)
        assert set(found) == {"bfloat16", "float16"}  # finite differences decide in single precision
        assert {outcome.outcome for outcome in found.values()} == {"passed"}

    def test_nothing_that_tells_is_an_error_with_a_hint(self, outcomes):
        found = judged(outcomes, "operators.coarse.no_double", 'dtypes = ["bfloat16"]', PAIR)
        assert found["bfloat16"].outcome == "error"
        assert "no exact gradients to compare bfloat16 with" in found["bfloat16"].reason
        assert 'reference = { target = "mylib.eager", differentiable = true }' in found["bfloat16"].message

    def test_a_reference_that_does_not_exist_is_no_failure_of_the_operator(self, outcomes):
        missing = 'reference = { target = "operators.coarse.eagr", differentiable = true }'
        for name, outcome in (("tripled", "passed"), ("tripled_wrongly_in_half", "failed")):  # float64 tells
            assert judged(outcomes, f"operators.coarse.{name}", missing)["bfloat16"].outcome == outcome
        found = judged(outcomes, "operators.coarse.no_double", f"{NO_DOUBLE}\n{missing}", PAIR)
        assert {outcome.outcome for outcome in found.values()} == {"error"}
        assert 'did you mean "operators.coarse.eager"?' in found["bfloat16"].message
        assert "supports.backward" not in found["bfloat16"].message

    def test_half_precision_alone_is_decided_by_this_check(self, outcomes):
        keys = 'dtypes = ["float16"]\nreference = "torch.mul"\nsupports.out = false'
        found = outcomes(f'[[operator]]\nname = "operators.coarse.no_double"\n{keys}\n{PAIR}')
        assert {outcome.outcome for outcome in found.values()} == {"passed"}
        assert CHECK in {outcome.check for outcome in found.values()}
        assert "backward" not in {outcome.check for outcome in found.values()}

    def test_a_device_without_double_precision_is_measured_by_the_cpu(self, tmp_path):
        device = DeviceProfile(name="coarse", torch="cpu", lacks=["float64", "complex128"])
        path = tmp_path / "spec.toml"
        for name, expected in (("cube", "passed"), ("cube_wrong_in_coarse", "failed")):
            path.write_text(
                f'[[operator]]\nname = "operators.coarse.{name}"\nsupports = {{ forward_ad = false }}\n'
                "samples = [{ args = [{ shape = [2, 3] }] }]\n"
            )
            settings = Settings(modules=("torch", "operators"))
            cases = plan(load([path], settings), [device], Selection(checks=(CHECK,)))
            found = [run(case, RunSession(settings)) for case in cases]
            assert {case.dtype for case in cases} == set(COARSE)
            assert {outcome.outcome for outcome in found} == {expected}
            if expected == "failed":
                assert "compared with the operator in float64 on the CPU, for the same numbers" in found[0].message


class TestReferenceRule:
    SUMS = "samples = [{ args = [{ shape = [2, 400], low = 0.5, high = 1.5 }] }]"
    EAGER = 'reference = { target = "operators.coarse.eager_sum", differentiable = true }'

    def test_an_error_beyond_that_of_the_reference_fails(self, outcomes):
        keys = f"{self.EAGER}\ntolerance = {{ check.{CHECK} = {{ rtol = 0.5, atol = 1.0 }} }}"
        found = judged(outcomes, "operators.coarse.sum_in_own_precision", keys, self.SUMS)["bfloat16"]
        assert found.outcome == "failed"
        assert "those of the reference operators.coarse.eager_sum by" in found.reason
        assert "allowed: 2 times the error of the reference" in found.message
        assert judged(outcomes, "operators.coarse.eager_sum", keys, self.SUMS)["bfloat16"].outcome == "passed"

    def test_how_far_beyond_is_up_to_the_spec(self, outcomes):
        keys = (
            'reference = { target = "operators.coarse.eager_sum", differentiable = true, times = 1000 }\n'
            f"tolerance = {{ check.{CHECK} = {{ rtol = 0.5, atol = 1.0 }} }}"
        )
        found = judged(outcomes, "operators.coarse.sum_in_own_precision", keys, self.SUMS)
        assert found["bfloat16"].outcome == "passed"


class TestTolerance:
    def test_what_a_spec_states_is_the_last_word(self, outcomes):
        name, keys = "operators.coarse.tripled_wrongly_in_half", f"tolerance = {{ check.{CHECK} = {{ rtol = 0.2 }} }}"
        assert {found.outcome for found in judged(outcomes, name, keys).values()} == {"passed"}
        strict = f"tolerance = {{ check.{CHECK} = {{ rtol = 1e-9 }} }}"
        samples = "samples = [{ args = [{ values = [0.1, 0.7] }] }]"
        assert judged(outcomes, "torch.sin", strict, samples)["bfloat16"].outcome == "failed"

    def test_one_for_a_dtype_of_half_precision_is_about_this_check(self, outcomes):
        name, keys = "operators.coarse.tripled_wrongly_in_half", "tolerance = { dtype.bfloat16 = { rtol = 0.2 } }"
        found = judged(outcomes, name, keys)
        assert found["bfloat16"].outcome == "passed"
        assert found["float16"].outcome == "failed"

    def test_those_for_finite_differences_are_not(self, outcomes):
        keys = (
            "tolerance = { rtol = 1.0, atol = 1.0, dtype.float32 = { rtol = 1.0 } }\nsupports = { forward_ad = false }"
        )
        found = judged(outcomes, "operators.coarse.cube_wrong_in_coarse", keys)
        assert {outcome.outcome for outcome in found.values()} == {"failed"}


class TestWhatIsTested:
    def test_a_gradient_must_be_tested_on_some_sample(self, outcomes):
        found = judged(outcomes, "torch.sin", samples="samples = [{ args = [{ shape = [0] }] }]")
        assert {outcome.outcome for outcome in found.values()} == {"error"}
        assert "inputs or outputs are empty" in found["float32"].reason

    def test_random_operators_have_other_numbers_in_each_dtype(self, outcomes):
        assert not judged(outcomes, "torch.nn.functional.dropout", "reseed = true")

    def test_a_backward_pass_that_is_refused_fails_with_a_remedy(self, outcomes):
        found = judged(outcomes, "operators.coarse.refuses_half")["bfloat16"]
        assert (found.outcome, found.fields["blocked_by"]) == ("blocked", "dtypes")  # forward is refused, too
        found = judged(outcomes, "operators.partial.no_leaves_in_single")["float32"]
        assert (found.outcome, found.fields["blocked_by"]) == ("blocked", "dtypes")

    def test_a_forward_mode_that_is_refused_in_one_dtype_says_so(self, outcomes):
        found = judged(outcomes, "operators.coarse.refuses_forward_mode_in_half")
        assert found["float16"].outcome == "failed"
        assert "forward mode is claimed for float16, but is refused: " in found["float16"].reason
        assert found["float32"].outcome == "passed"

    def test_infinity_is_right_beyond_the_range_of_the_dtype(self, outcomes):
        samples = "samples = [{ args = [{ values = [300.0, 1.5] }] }]"
        assert judged(outcomes, "torch.square", samples=samples)["float16"].outcome == "passed"

    def test_sparse_inputs_are_judged(self, outcomes):
        keys = "supports = { forward_ad = false }"
        samples = 'samples = [{ args = [{ shape = [3, 3], layout = "sparse_coo", nnz = 4 }] }]'
        found = judged(outcomes, "torch.sparse.sum", keys, samples)
        assert {outcome.outcome for outcome in found.values()} == {"passed"}


class TestLongSums:
    WEIGHED = "samples = [{ args = [{ shape = [2, 3] }, { shape = [] }] }]"
    PLAIN = "samples = [{ args = [{ shape = [2, 3] }] }]"
    KEYS = "supports = { forward_ad = false }"

    SCALED = "ScaledByOneInHalf.apply", WEIGHED, "the gradient of factor as a whole is 0."
    ADDED = "added_one_by_one", PLAIN, "output 0 as a whole is 0."

    @pytest.mark.parametrize(
        ("name", "samples", "words", "dtype"),
        [
            (*SCALED, "float16"),
            pytest.param(*ADDED, "bfloat16", marks=pytest.mark.nightly),
            pytest.param(*SCALED, "bfloat16", marks=pytest.mark.nightly),
            pytest.param(*ADDED, "float16", marks=pytest.mark.nightly),
        ],
    )
    def test_one_that_no_longer_grows_is_caught_and_shrunk(self, verdict_of, name, samples, words, dtype):
        keys = f'{self.KEYS}\ndtypes = ["{dtype}", "float32", "float64"]'
        found = verdict_of(f"operators.coarse.{name}", CHECK, dtype, keys, samples)
        assert found.outcome == "failed"
        assert f" -> 4095: low_precision_grad: in {dtype}, where sums are long, {words}" in found.reason
        assert ", fails with " in found.message
        assert "for cotangents and tangents of one sign, at: { args = [{ shape = [" in found.message
        assert 'if such sizes are not meant, write vary = ["-sum"]' in found.message

    @pytest.mark.parametrize(("name", "samples"), [("ScaledByOne.apply", WEIGHED), ("torch.sum", PLAIN)])
    def test_one_in_single_precision_passes_and_is_counted(self, outcomes, name, samples):
        path = name if name.startswith("torch.") else f"operators.coarse.{name}"
        for seed in range(5):
            found = judged(outcomes, path, self.KEYS, samples, seed)
            assert {outcome.outcome for outcome in found.values()} == {"passed"}
            assert found["bfloat16"].fields["derived"]["hold"] >= 2
            assert found["float32"].fields["derived"] == {"hold": 1}  # under autocast

    @pytest.mark.parametrize("more", ['vary = ["size"]', "vary = false"])
    def test_a_sample_may_not_vary_in_it(self, outcomes, more):
        samples = self.PLAIN.replace("}] }", f"}}], {more} }}")
        found = judged(outcomes, "operators.coarse.added_one_by_one", self.KEYS, samples)
        assert {outcome.outcome for outcome in found.values()} == {"passed"}

    def test_values_beyond_the_range_of_the_dtype_tell_nothing(self, outcomes):
        samples = "samples = [{ args = [{ shape = [2, 3] }], kwargs = { ord = 0.5 } }]"
        found = judged(outcomes, "torch.linalg.vector_norm", 'dtypes = ["float16", "float64"]', samples)["float16"]
        assert found.outcome == "passed"
        assert found.fields["derived"]["inconclusive"] >= 1


class TestLargeNumbers:
    SAMPLES = "samples = [{ args = [{ shape = [2, 3] }] }]"
    KEYS = "supports = { forward_ad = false, second_order = false }"

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("length_in_half", "output 0 is inf for "),
            ("Length.apply", "the gradient of x as a whole is 0 times"),
        ],
    )
    def test_squares_that_exceed_the_range_of_the_dtype_are_caught(self, outcomes, name, words):
        found = judged(outcomes, f"operators.coarse.{name}", self.KEYS, self.SAMPLES)
        assert {dtype: outcome.outcome for dtype, outcome in found.items() if outcome.outcome != "passed"} == {
            "float16": "failed"
        }
        reason = found["float16"].reason
        assert f"derived: numbers about 300: low_precision_grad: in float16, where numbers are large, {words}" in reason
        assert all(line in found["float16"].message for line in LARGE_NUMBERS.remedy.splitlines())

    def test_squares_in_single_precision_pass_and_are_counted(self, outcomes):
        for seed in range(5):
            found = judged(outcomes, "operators.coarse.length", self.KEYS, self.SAMPLES, seed)
            assert {outcome.outcome for outcome in found.values()} == {"passed"}
            assert found["float16"].fields["derived"]["hold"] >= 1

    def test_results_beyond_the_range_of_the_dtype_tell_nothing(self, outcomes):
        found = judged(outcomes, "torch.square", samples=self.SAMPLES)["float16"]
        assert (found.outcome, found.fields["derived"]) == ("passed", {"inconclusive": 1})

    @pytest.mark.parametrize("vary", ['["size"]', "false"])
    def test_a_sample_may_not_vary_in_it(self, outcomes, vary):
        samples = self.SAMPLES.replace("}] }", f"}}], vary = {vary} }}")
        found = judged(outcomes, "operators.coarse.length_in_half", self.KEYS, samples)
        assert {outcome.outcome for outcome in found.values()} == {"passed"}


class TestMixedDtypes:
    SAMPLES = "samples = [{ args = [{ shape = [5, 3] }, { shape = [3], low = 1.5 }] }]"
    KEYS = 'supports = { forward_ad = false }\nvary = ["dtype"]'

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("weighed_roundly", "WeighedRoundlyBackward returns a gradient of torch.{dtype} for a float32 input"),
            ("weighed_twice_if_mixed", "others in float32"),
        ],
    )
    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_parameters_in_float32_have_gradients_of_their_own(self, verdict_of, name, words, dtype):
        found = verdict_of(f"operators.coarse.{name}", CHECK, dtype, self.KEYS, self.SAMPLES)
        assert found.outcome == "failed"
        assert words.format(dtype=dtype) in found.message

    def test_right_ones_and_those_that_refuse_pass_and_are_counted(self, outcomes):
        found = judged(outcomes, "operators.coarse.weighed", self.KEYS, self.SAMPLES)
        assert {outcome.outcome for outcome in found.values()} == {"passed"}
        assert found["bfloat16"].fields["derived"] == {"hold": 1}
        assert found["float32"].fields["derived"] == {"hold": 1}  # under autocast
        refused = judged(
            outcomes, "torch.mv", 'vary = ["dtype"]', "samples = [{ args = [{ shape = [2, 3] }, { shape = [3] }] }]"
        )
        assert refused["bfloat16"].outcome == "passed"
        assert refused["bfloat16"].fields["derived"] == {"refused": 1}

    def test_a_sample_may_not_vary_in_it(self, outcomes):
        samples = self.SAMPLES.replace("}] }", '}], vary = ["size"] }')
        found = judged(outcomes, "operators.coarse.weighed_twice_if_mixed", self.KEYS, samples)
        assert {outcome.outcome for outcome in found.values()} == {"passed"}
        assert "derived" not in found["bfloat16"].fields


class TestAutocast:
    SAMPLES = "samples = [{ args = [{ shape = [5, 3] }, { shape = [3, 4] }] }]"
    KEYS = "supports = { forward_ad = false }"

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            (
                "uncast_product",
                "backward of a forward pass under torch.autocast raised RuntimeError: expected m1 and m2",
            ),
            ("doubled_product", "under torch.autocast, the gradient of x as a whole is 2"),
        ],
    )
    def test_backward_has_to_fit_what_forward_computed(self, outcomes, name, words):
        found = judged(outcomes, f"operators.coarse.{name}", self.KEYS, self.SAMPLES)["float32"]
        assert found.outcome == "failed"
        assert words in found.reason
        assert "mark forward with torch.amp.custom_fwd and backward with torch.amp.custom_bwd" in found.message
        as_advised = judged(outcomes, f"operators.coarse.{name}", f'{self.KEYS}\nvary = ["size"]', self.SAMPLES)[
            "float32"
        ]
        assert as_advised.outcome == "passed"
        assert "derived" not in as_advised.fields

    @pytest.mark.parametrize("name", ["operators.coarse.cast_product", "torch.mm", "torch.nn.functional.linear"])
    def test_what_is_made_for_it_passes(self, outcomes, name):
        samples = self.SAMPLES.replace("[3, 4]", "[4, 3]") if name.endswith("linear") else self.SAMPLES
        found = judged(outcomes, name, self.KEYS if "operators" in name else "", samples)["float32"]
        assert found.outcome == "passed"
        assert found.fields["derived"] == {"hold": 1}

    def test_what_forward_refuses_is_counted(self, outcomes):
        samples = "samples = [{ args = [{ shape = [5] }] }]"
        found = judged(outcomes, "operators.coarse.refuses_autocast", "", samples)["float32"]
        assert found.outcome == "passed"
        assert found.fields["derived"] == {"refused": 1}
