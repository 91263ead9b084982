"""`opcheck.check`: one function through all checks, from Python."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections import namedtuple
from functools import partial

import pytest
import torch
from operators import faulty, habits, mistaken, modules, registered, right, spoiling

import opcheck
from opcheck.planning.kinds import check_kinds
from opcheck.planning.selection import Selection

BARE = {"forward_ad": False, "vmap": False}
"""What an autograd.Function does not support that has a backward pass and nothing else."""


def real(*shape: int) -> torch.Tensor:
    return torch.linspace(0.5, 1.5, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)


def complex_(*shape: int) -> torch.Tensor:
    return torch.complex(real(*shape), real(*shape).flip(0))


def not_in_half(x: torch.Tensor) -> torch.Tensor:
    if x.dtype in (torch.float16, torch.bfloat16):
        raise TypeError("float32 or float64, please")
    return 2 * x


def outcomes(report: opcheck.CheckReport) -> dict[str, str]:
    return {f"{outcome.check}[{outcome.dtype}]": outcome.outcome for outcome in report}


FURTHER = ("rev_over_fwd", "fwd_over_fwd", "rev_over_rev_over_rev")


class TestRightFunctions:
    def test_what_torch_cannot_be_asked_is_no_pass_by_itself(self):
        with pytest.raises(opcheck.CheckError, match="1 skipped") as caught:
            opcheck.check(right.square, real(2), checks="fwd_over_fwd")
        assert "without setup_context raises" in str(caught.value)

    @pytest.mark.parametrize("x", [real(2, 3), complex_(2, 3)], ids=["real", "complex"])
    def test_every_check_that_applies_passes(self, x):
        report = opcheck.check(right.square, x)
        assert report.passed
        assert [outcome.check for outcome in report if outcome.outcome == "skipped"] == ["fwd_over_fwd"]
        always = {
            kind.name
            for kind in Selection(derive="none").kinds()
            if not (kind.applies or kind.of_disclaimers or kind.on_request)
        }
        assert set(report.by_check) == {"accuracy", "variants", *FURTHER} | always
        assert {outcome.dtype for outcome in report} == {str(x.dtype).removeprefix("torch.")}

    def test_what_is_disclaimed_is_tested_as_a_claim(self):
        supports = {**BARE, "second_order": False}
        report = opcheck.check(right.first_order_only, real(3), supports=supports)
        assert report.by_check["unsupported"][0].outcome == "passed"
        assert {"forward_ad", "vmap", "rev_over_rev"}.isdisjoint(report.by_check)

    def test_tensors_in_lists_and_keywords_are_differentiated_too(self):
        report = opcheck.check(right.weighted_total, [real(2), real(3)], weight=real())
        assert report.passed

    def test_arguments_that_are_no_tensors_are_handed_over_as_they_are(self):
        Options = namedtuple("Options", ["factor", "shape"])

        def scaled(x, options, *, slices, how):
            assert (type(options), options.shape) == (Options, torch.Size([2])), how
            return x[slices] * options.factor

        options = Options(3, torch.Size([2]))
        assert opcheck.check(scaled, real(4), options, slices=(slice(0, 2), ...), how=None)

    def test_a_function_of_integers_has_no_derivative_and_is_checked_all_the_same(self):
        report = opcheck.check(torch.bitwise_and, torch.tensor([1, 6]), torch.tensor([3, 2]))
        assert outcomes(report) == {"dtypes[int64]": "passed", "variants[int64]": "passed"}

    def test_out_is_claimed_only_where_the_signature_has_room_for_it(self):
        assert opcheck.check(torch.sin, real(2), checks="variants").passed
        assert opcheck.check(lambda x: 2 * x, real(2), checks="variants").passed
        with pytest.raises(opcheck.CheckError, match="called by out="):
            opcheck.check(faulty.ignores_out, real(2), checks="variants")

    @pytest.mark.parametrize("operator", [registered.right_half, torch.ops.opcheck_tests.right_half])
    def test_operators_of_torch_library_are_known_as_such(self, operator):
        report = opcheck.check(operator, real(3), checks="registration")
        assert report.passed
        assert report.name.startswith("torch.ops.opcheck_tests.right_half")
        with pytest.raises(opcheck.CheckError, match=r"registration: .*failed"):
            opcheck.check(registered.wrong_fake, real(3), checks="registration")


class TestWrongFunctions:
    @pytest.mark.parametrize("x", [real(2, 3), complex_(2, 3)], ids=["real", "complex"])
    def test_a_wrong_gradient_fails_as_it_does_in_a_spec(self, x, verdict_of):
        dtype = str(x.dtype).removeprefix("torch.")
        with pytest.raises(opcheck.CheckError) as caught:
            opcheck.check(faulty.wrong_sign, x, supports=BARE, checks="backward")
        of_spec = verdict_of("operators.faulty.wrong_sign", "backward", dtype, "supports = { forward_ad = false }")
        assert of_spec.outcome == "failed"
        message = str(caught.value)
        assert of_spec.reason in message
        assert f"operators.faulty.<lambda>::backward[cpu-{dtype}]: failed" in message
        assert "numerical" in message
        assert 'run just this: opcheck.check(function, ..., checks="backward")' in message
        assert isinstance(caught.value, AssertionError)

    def test_the_message_names_the_place_of_the_call(self):
        report = opcheck.check(faulty.wrong_sign, real(2), checks="backward", raise_exception=False)
        assert "sample 0 (tests/api/test_check.py:" in report.failures[0].message
        assert "realized: float64[2]" in report.failures[0].message

    @pytest.mark.parametrize(
        ("function", "advice"),
        [
            (lambda x: x.mul_(2), "wrap it as `lambda x: function(x.clone())`: it returns its first argument"),
            (lambda x: x.detach() + 1, "pass supports={'backward': False, 'forward_ad': False}: no output requires"),
            (not_in_half, "pass dtypes=['float32', 'float64']: it refuses float16, bfloat16 (TypeError: "),
        ],
    )
    def test_advice_is_about_the_call_and_not_about_a_spec(self, function, advice):
        report = opcheck.check(function, real(2), dtypes="floating", raise_exception=False)
        assert f": {advice}" in report.failure()
        assert ": write " not in report.failure()

    def test_each_cause_is_told_once(self):
        report = opcheck.check(mistaken.too_few, real(2), real(2), supports=BARE, raise_exception=False)
        assert len(report.failures) > 5
        text = report.failure()
        assert text.count("incorrect number of gradients (expected 2, got 1)\n") == 1
        assert "the same: dtypes[cpu-float64]\nnot judged because of it: accuracy[cpu-float64]" in text

    @pytest.mark.parametrize("operator", ["second_order_wrong", "second_order_lost"])
    def test_a_wrong_second_derivative_fails(self, operator):
        function = getattr(faulty, operator)
        report = opcheck.check(function, real(3), supports=BARE, checks="rev_over_rev", raise_exception=False)
        assert [outcome.outcome for outcome in report.failures] == ["failed"]

    def test_a_disclaimed_feature_that_works_fails(self):
        with pytest.raises(opcheck.CheckError, match="forward_ad is disclaimed, but works on all samples"):
            opcheck.check(torch.sin, real(2), supports={"forward_ad": False})

    def test_an_exception_of_the_function_is_an_error_and_the_cause(self):
        with pytest.raises(
            opcheck.CheckError, match="the operator refuses the sample: RuntimeError: this operator"
        ) as caught:
            opcheck.check(faulty.raises, real(2), checks="backward")
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert [outcome.outcome for outcome in caught.value.report] == ["error"]

    @pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
    def test_a_function_that_ends_the_process_is_an_error(self, ending):
        def ends(x):
            raise ending

        report = opcheck.check(ends, real(2), checks="backward", raise_exception=False)
        assert report.failures[0].reason.startswith("the operator ends the process")

    def test_what_could_not_be_tested_is_an_error(self):
        report = opcheck.check(right.integers_only, real(2), checks="backward", raise_exception=False)
        assert outcomes(report) == {"backward[float64]": "blocked"}
        assert not report.passed
        report = opcheck.check(torch.sin, torch.empty(0, dtype=torch.float64), checks="vmap", raise_exception=False)
        assert outcomes(report) == {"vmap[float64]": "error"}

    def test_half_precision_alone_needs_a_truth(self):
        report = opcheck.check(torch.sin, real(2).half(), raise_exception=False)
        assert "backward" not in report.by_check
        assert "no exact gradients to compare float16 with" in report.by_check["low_precision_grad"][0].reason
        assert report.by_check["dtypes"][0].outcome == "passed"

    @pytest.mark.parametrize("x", [real(2, 3), complex_(2, 3)], ids=["real", "complex"])
    def test_other_numbers_than_the_given_ones_are_tried(self, x):
        with pytest.raises(opcheck.CheckError) as caught:
            opcheck.check(habits.KeepsOnTheClass.apply, x, checks="context")
        assert "when another call runs between forward and backward" in str(caught.value)


class TestLeaves:
    def test_those_that_require_grad_are_the_leaves(self):
        def wrong_in_the_second(x, y):
            return x.sin() + faulty.wrong_sign(y)

        x = real(3).requires_grad_()
        assert opcheck.check(wrong_in_the_second, x, real(3), checks="backward").passed
        assert not opcheck.check(wrong_in_the_second, real(3), x, checks="backward", raise_exception=False).passed
        with pytest.raises(opcheck.CheckError, match="with respect to y"):
            opcheck.check(wrong_in_the_second, real(3), real(3), checks="backward")

    def test_supports_backward_may_name_arguments(self):
        with pytest.raises(opcheck.CheckError, match="backward is disclaimed, but works"):
            opcheck.check(lambda x, y: x * y, real(2), real(2), supports={"backward": ["x"]})

    def test_the_arguments_are_left_as_they_are(self):
        def spoils(x, y):
            return x * y.add_(1)

        x, y = real(3).requires_grad_(), real(3)
        opcheck.check(spoils, x, y, raise_exception=False)
        assert torch.equal(y, real(3))
        assert x.grad is None
        assert x.is_leaf

    @pytest.mark.parametrize(
        "x",
        [
            real(4, 6)[::2, 1::2], real(2, 3).T, real(3, 1).expand(3, 2), real(0, 2), real(), complex_(3).conj(),
            torch._neg_view(real(3)), torch._neg_view(complex_(3).conj()), real(2, 3, 4).transpose(0, 2)[1:],
        ],
        ids=["gaps", "transposed", "expanded", "empty", "rank 0", "conj", "neg", "conj neg", "gaps transposed"],
    )  # fmt: skip
    def test_layout_and_values_are_those_that_were_given(self, x):
        seen = []

        def remember(y):
            seen.append((y.stride(), y.is_conj(), y.is_neg(), torch.equal(y, x)))
            return 2 * y

        opcheck.check(remember, x, checks="dtypes", raise_exception=False)
        assert set(seen) == {(x.stride(), x.is_conj(), x.is_neg(), True)}

    def test_a_sparse_tensor_is_a_leaf(self):
        x = torch.diag(real(3)).to_sparse()
        report = opcheck.check(lambda x: x.to_dense().sum(), x, checks=["masked", "grad_dtypes"], raise_exception=False)
        assert set(report.by_check) == {"masked", "grad_dtypes"}
        assert report.by_check["grad_dtypes"][0].outcome == "passed"
        assert "realized: float64[3, 3] sparse_coo" in report.by_check["masked"][0].message


class TestDtypes:
    def test_the_dtype_of_the_arguments_is_the_default_and_others_come_on_top(self):
        report = opcheck.check(right.square, real(2), dtypes=["float32", torch.bfloat16], checks=["dtypes", "backward"])
        assert set(outcomes(report)) == {
            "backward[float64]", "dtypes[float64]", "dtypes[float32]", "dtypes[bfloat16]",
        }  # fmt: skip

    def test_a_group_stands_for_its_dtypes(self):
        report = opcheck.check(right.square, real(2), dtypes="double", checks="backward")
        assert outcomes(report) == {"backward[float64]": "passed", "backward[complex128]": "passed"}

    def test_a_minus_takes_dtypes_out_of_a_group(self):
        report = opcheck.check(right.square, real(2), dtypes=["floating", "-half"], checks="dtypes")
        assert {outcome.dtype for outcome in report} == {"float64", "float32"}

    def test_a_dtype_that_does_not_work_fails(self):
        def only_double(x):
            if x.dtype != torch.float64:
                raise TypeError("float64, please")
            return 2 * x

        report = opcheck.check(only_double, real(2), dtypes="float32", checks="dtypes", raise_exception=False)
        assert outcomes(report) == {"dtypes[float64]": "passed", "dtypes[float32]": "failed"}

    def test_real_leaves_get_imaginary_parts_so_that_a_missing_conjugation_shows(self):
        forgets = faulty.function(lambda x: x * x, lambda x, v: v * 2 * x)
        assert opcheck.check(forgets, real(3), checks="backward").passed
        report = opcheck.check(forgets, real(3), dtypes="complex128", checks="backward", raise_exception=False)
        assert outcomes(report) == {"backward[float64]": "passed", "backward[complex128]": "failed"}

    def test_what_is_no_leaf_and_indices_stay_as_real_as_they_are(self):
        def gathered(x, index, weight):
            assert index.dtype == torch.int64
            assert weight.imag.eq(0).all() if weight.is_complex() else True
            return x.index_select(0, index) * weight

        x, index = real(3).requires_grad_(), torch.tensor([2, 0])
        report = opcheck.check(gathered, x, index, real(2), dtypes="complex128", checks="backward")
        assert len(report) == 2

    def test_an_integer_function_runs_in_other_integers_too(self):
        report = opcheck.check(torch.bitwise_and, torch.tensor([1, 6]), torch.tensor([3, 2]), dtypes=["int32", "bool"])
        assert {outcome.dtype for outcome in report.by_check["dtypes"]} == {"int64", "int32", "bool"}

    def test_mixed_precisions_keep_what_they_are(self):
        seen = set()

        def mixed(x, y):
            seen.add((x.dtype, y.dtype))
            return x * y

        opcheck.check(mixed, real(2), real(2).float(), dtypes="float32", checks="dtypes")
        assert seen == {(torch.float64, torch.float32), (torch.float32, torch.float32)}


class TestSeed:
    def test_another_seed_draws_other_numbers_and_is_named(self):
        def drawn(seed):
            seen = []

            def remember(x):
                seen.append(x.detach().clone())
                return faulty.wrong_sign(x)

            report = opcheck.check(
                remember, real(2), dtypes="complex128", checks="backward", seed=seed, raise_exception=False
            )
            given = [x for x in seen if x.is_complex()]
            assert given, [(outcome.id, outcome.outcome, outcome.reason) for outcome in report]
            return given[0], report

        (first, _), (again, report) = drawn(None), drawn(0)
        other, named = drawn(5)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert torch.equal(first.real, other.real)
        assert "seed=" not in report.failures[0].message
        assert 'checks="backward", seed=5)' in named.failures[0].message
        assert {outcome.seed for outcome in named} == {5}

    def test_what_is_no_seed_is_refused(self):
        for seed in (-1, "3", 1.5):
            with pytest.raises(ValueError, match="is not a seed; expected a whole number of at least 0"):
                opcheck.check(torch.sin, real(2), seed=seed)


class TestMistakes:
    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (3, '^opcheck.check expects a function: "3" is not a function but int$'),
            (faulty.SecondOrderLost, 'did you mean "SecondOrderLost.apply"'),
            (torch.nn.Linear, "is a class, and a module has to be constructed first"),
            (None, "is not a function but NoneType"),
        ],
    )
    def test_what_is_no_function_is_refused(self, function, message):
        with pytest.raises(TypeError, match=message):
            opcheck.check(function, real(2))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"checks": "bakward"}, 'unknown check "bakward".*did you mean "backward"'),
            ({"supports": {"forwad_ad": False}}, '^supports: unknown key "forwad_ad".*did you mean "forward_ad"'),
            ({"supports": {"vmap": 3}}, "^supports: wrong type for vmap: an integer .3.; expected true or false$"),
            ({"supports": {"backward": ["inptu"]}}, '^supports: unknown argument "inptu".*did you mean "input"'),
            ({"supports": {"backward": [1]}}, '^supports: unknown argument "1"; expected one of input, 0$'),
            ({"dtypes": "flaot32"}, 'unknown dtype "flaot32".*did you mean "float32"'),
            ({"dtypes": int}, "unknown dtype .*int.*; expected a dtype or a group"),
            (
                {"supports": {"vmap": False}, "checks": "vmap"},
                'the check "vmap" has nothing to test: supports sets vmap to False; remove the key, or',
            ),
            ({"checks": ["vmap", "masked"]}, 'the check "masked" has nothing to test: the check does not apply to'),
        ],
    )
    def test_names_that_do_not_exist_are_told_with_the_nearest(self, options, message):
        with pytest.raises(ValueError, match=message):
            opcheck.check(torch.sin, real(2), **options)

    def test_supports_is_a_dict(self):
        with pytest.raises(TypeError, match=r"^supports is a dict such as .*, not list$"):
            opcheck.check(torch.sin, real(2), supports=["vmap"])

    def test_a_tensor_is_needed(self):
        with pytest.raises(ValueError, match="none of the arguments is a tensor: there is nothing to test"):
            opcheck.check(torch.sin, 1.0, [2.0])

    @pytest.mark.parametrize("box", [lambda x: {"x": x}, namedtuple("Box", "x"), lambda x: [{"x": [x]}]])
    def test_a_tensor_that_would_be_a_constant_without_a_word_is_refused(self, box):
        with pytest.raises(ValueError, match=r"cannot differentiate with respect to the tensor at argument 0.*x"):
            opcheck.check(torch.sin, box(real(2)))
        with pytest.raises(ValueError, match=r'with respect to the tensor at argument "box".*x'):
            opcheck.check(torch.sin, real(2), box=box(real(2)))

    def test_complex_arguments_have_no_place_in_a_real_dtype(self):
        with pytest.raises(ValueError, match="complex128 arguments cannot be tested in float32"):
            opcheck.check(torch.sin, complex_(2), dtypes=["float32"])

    def test_a_keyword_of_both_is_refused(self):
        def draws(x, *, seed=0):
            return x * seed

        def raises(x, raise_exception=True):
            return x * raise_exception

        with pytest.raises(ValueError, match='"raise_exception" is a parameter of both'):
            opcheck.check(raises, real(2), raise_exception=False)
        with pytest.raises(ValueError, match=r'"seed" is a parameter of both .* and the function'):
            opcheck.check(draws, real(2), seed=3)
        assert opcheck.check(lambda x: draws(x, seed=3), real(2), checks="backward").passed

    def test_mistakes_in_the_settings_of_the_project_are_told(self, tmp_path):
        (tmp_path / "pyproject.toml").write_text('[tool.opcheck]\nengine = "toch"\n')
        code = compile("opcheck.check(torch.sin, x)", str(tmp_path / "own.py"), "exec")
        (tmp_path / "own.py").touch()
        with pytest.raises(opcheck.SpecError, match=r'pyproject.toml:2:10: unknown engine "toch"'):
            exec(code, {"opcheck": opcheck, "torch": torch, "x": real(2)})


class TestReport:
    def test_it_is_readable(self):
        report = opcheck.check(faulty.wrong_sign, real(2), checks=["backward", "variants"], raise_exception=False)
        first, backward, variants, empty, message = str(report).split("\n", 4)
        assert first == "operators.faulty.<lambda>: 1 passed, 1 failed"
        assert backward.startswith("  failed backward[cpu-float64]: backward: the reverse-mode Jacobian is not")
        assert variants == "  passed variants[cpu-float64]"
        assert (empty, message) == ("", report.failures[0].message)

    def test_it_has_the_outcomes_by_check(self):
        report = opcheck.check(right.square, real(2), dtypes="complex128", checks=["backward", "variants"])
        assert {name: len(found) for name, found in report.by_check.items()} == {"backward": 2, "variants": 2}
        assert list(report) == list(report.outcomes)
        assert len(report) == 4

    def test_a_module_keeps_its_parameters(self):
        module = modules.Recomputed().double()
        before = dict(module.named_parameters())
        supports = dict.fromkeys(("forward_ad", "vmap", "second_order", "batched_grad", "saved"), False)
        assert opcheck.check(module, real(2, 3), supports=supports).passed
        assert all(own is before[name] for name, own in module.named_parameters())

    def test_nothing_tested_is_not_passed(self):
        assert not opcheck.CheckReport("nothing", ()).passed

    @pytest.mark.parametrize(
        ("function", "name"),
        [
            (torch.sin, "torch.sin"), (torch.nn.functional.relu, "torch.nn.functional.relu"),
            (partial(torch.sin), "torch.sin"), (torch.Tensor.sin, "torch.Tensor.sin"),
            (faulty.SecondOrderLost.apply, "operators.faulty.SecondOrderLost.apply"),
            (torch.nn.Sigmoid(), "torch.nn.modules.activation.Sigmoid"),
        ],
    )  # fmt: skip
    def test_the_function_has_a_name(self, function, name):
        assert opcheck.check(function, real(2), checks="backward", raise_exception=False).name == name

    def test_the_exception_survives_the_way_between_processes(self):
        with pytest.raises(opcheck.CheckError) as caught:
            opcheck.check(faulty.wrong_sign, real(2), checks="backward")
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (str(copy), copy.report) == (str(caught.value), caught.value.report)


class TestProcess:
    def test_tensors_of_inference_mode_are_tested_too(self):
        with torch.inference_mode():
            assert opcheck.check(right.square, real(2)).passed
            assert torch.is_inference_mode_enabled()

    def test_what_the_function_leaves_changed_is_a_failure_and_put_back(self):
        with pytest.raises(
            opcheck.CheckError, match="side effect: the operator leaves grad mode False instead of True"
        ):
            opcheck.check(spoiling.no_gradients_from_now_on, real(2), checks="backward")
        assert torch.is_grad_enabled()

    def test_a_random_function_is_seeded_by_a_wrapper(self):
        dropout = torch.nn.functional.dropout

        def seeded(x):
            with torch.random.fork_rng():
                torch.manual_seed(0)
                return dropout(x)

        with pytest.raises(opcheck.CheckError, match=r"let a wrapper call torch[.]manual_seed.* under torch[.]random"):
            opcheck.check(dropout, real(3), checks="backward")
        assert opcheck.check(seeded, real(3), checks=["backward", "purity", "nondeterminism"]).passed

    def test_settings_and_random_numbers_are_as_before(self):
        torch.manual_seed(3)
        expected = torch.rand(2)
        torch.manual_seed(3)
        threads = torch.get_num_threads()
        with torch.no_grad():
            opcheck.check(right.square, real(2), dtypes="complex128")
            assert not torch.is_grad_enabled()
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.rand(2), expected)

    def test_warnings_that_are_errors_do_not_leave_torch_half_imported(self, recwarn):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert opcheck.check(right.square, real(2)).passed

    def test_nothing_is_kept(self):
        class Callable:
            def __call__(self, x):
                return 2 * x

        function, before = Callable(), dict(check_kinds())
        gone = weakref.ref(function)
        assert opcheck.check(function, real(2)).passed
        del function
        gc.collect()
        assert gone() is None
        assert check_kinds() == before
