"""What claims mean once they are read: dtypes, support, tolerances, conditions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opcheck.spec import Library
from opcheck.spec.claims import Dtypes, Supports, Tolerance, Tolerances, When
from opcheck.spec.library import DeviceClaims
from opcheck.spec.operator import OperatorSpec

Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]

HEAD = '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }]\n'


def spec_of(loaded: Load, text: str, **settings: object) -> OperatorSpec:
    (operator,) = loaded(HEAD + text, **settings)
    return operator.spec


class TestDtypes:
    @pytest.mark.parametrize(
        ("text", "forward"),
        [
            ('dtypes = "real"', ("float16", "bfloat16", "float32", "float64")),
            ('dtypes = "complex"', ("complex64", "complex128")),
            ('dtypes = "float32"', ("float32",)),
            ('dtypes = ["single", "int64"]', ("int64", "float32", "complex64")),
        ],
    )
    def test_a_word_or_an_array_lists_the_forward_dtypes(
        self, loaded: Load, text: str, forward: tuple[str, ...]
    ) -> None:
        assert spec_of(loaded, text).dtypes.forward_names() == forward

    def test_a_word_leaves_the_other_keys_of_the_defaults_as_they_are(self, loaded: Load) -> None:
        defaults = '[defaults]\ndtypes = { forward = ["all"], backward = ["double"], exact = true }\n'
        (operator,) = loaded(defaults + HEAD + 'dtypes = "real"')
        assert operator.spec.dtypes == Dtypes(forward=("real",), backward=("double",), exact=True)

    def test_a_word_in_the_defaults_is_a_table_for_the_operators(self, loaded: Load) -> None:
        (operator,) = loaded('[defaults]\ndtypes = "real"\n' + HEAD + "dtypes.exact = true")
        assert operator.spec.dtypes == Dtypes(forward=("real",), exact=True)

    @pytest.mark.parametrize(
        ("text", "place"),
        [('dtypes = "reel"', "4:10"), ('dtypes = ["float64", "reel"]', "4:22"), ('dtypes.forward = ["reel"]', "4:19")],
    )
    def test_a_wrong_word_is_reported_where_it_stands(self, mistakes: Mistakes, text: str, place: str) -> None:
        (line,) = mistakes(HEAD + text + "\n")
        assert line.startswith(f'spec.toml:{place}: unknown dtype "reel"')
        assert 'did you mean "real"?' in line

    def test_what_is_no_word_is_one_mistake_of_the_defaults_too(self, mistakes: Mistakes) -> None:
        (line,) = mistakes("[defaults]\ndtypes = [1979-05-27]\n" + HEAD)
        assert line == "spec.toml:2:11: wrong type for an element of dtypes: a date (1979-05-27); expected a string"

    def test_a_wrong_word_is_not_taken_for_one_of_the_defaults(self, mistakes: Mistakes) -> None:
        (line,) = mistakes('[defaults]\ndtypes = { forward = ["all"] }\n' + HEAD + 'dtypes = "reel"\n')
        assert line.startswith('spec.toml:6:10: unknown dtype "reel"')

    def test_only_what_a_spec_calls_exact_is_so(self, loaded: Load) -> None:
        assert not spec_of(loaded, 'dtypes.forward = ["real"]').dtypes.exact
        assert spec_of(loaded, "dtypes.exact = true").dtypes.exact

    def test_floating_and_complex_ones_are_claimed_by_default(self) -> None:
        claim = Dtypes.model_construct()
        assert claim.forward_names() == ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
        assert claim.backward_names() == claim.forward_names()

    def test_backward_follows_forward_as_far_as_it_is_differentiable(self) -> None:
        claim = Dtypes.model_validate({"forward": ["integral", "bool", "double"]})
        assert claim.backward_names() == ("float64", "complex128")

    def test_backward_can_say_its_own(self) -> None:
        claim = Dtypes.model_validate({"forward": ["all"], "backward": ["floating", "-half"]})
        assert claim.backward_names() == ("float32", "float64")

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ('dtypes = ["-half"]', "4:10"),
            ('dtypes = ["floating", "-real"]', "4:10"),
            ('dtypes = { backward = ["-half"] }', "4:23"),
            ('per_device.cuda.dtypes = ["-half"]', "4:26"),
            ('tolerance.accuracy = { rtol = 0.1, reason = "x", dtypes = ["-half"] }', "4:59"),
        ],
    )
    def test_a_list_that_leaves_nothing_is_a_mistake(self, mistakes: Mistakes, text: str, place: str) -> None:
        assert mistakes(HEAD + text) == [
            f"spec.toml:{place}: this list leaves no dtype; "
            'expected dtypes that no later entry removes, as in ["floating", "-half"]'
        ]

    def test_an_empty_list_is_a_mistake_in_forward_alone(self, mistakes: Mistakes, loaded: Load) -> None:
        (line,) = mistakes(HEAD + "dtypes = []")
        assert line == "spec.toml:4:10: forward is empty; expected at least one element"
        assert spec_of(loaded, "dtypes.backward = []").dtypes.backward_names() == ()


class TestSupports:
    def test_everything_is_claimed_by_default(self) -> None:
        assert Supports.model_construct().disclaimed() == ()

    def test_what_is_false_or_partial_is_disclaimed(self) -> None:
        claim = Supports.model_validate({"backward": ["other", 0], "forward_ad": False, "vmap": True})
        assert claim.disclaimed() == ("backward", "forward_ad")
        assert claim.backward == ("other", 0)


class TestTolerances:
    def test_the_check_comes_before_the_dtype_and_both_before_the_operator(self) -> None:
        claim = Tolerances.model_validate(
            {
                "atol": 1,
                "rtol": 2,
                "eps": 3,
                "dtype": {"float32": {"atol": 4, "rtol": 5}},
                "check": {"backward": {"atol": 6}},
            }
        )
        at = DeviceClaims((), (), False, Supports(), (claim,)).tolerance
        assert at("backward", "float32") == Tolerance(atol=6, rtol=5, eps=3)
        assert at("backward", "float64") == Tolerance(atol=6, rtol=2, eps=3)
        assert at("vmap", "float32") == Tolerance(atol=4, rtol=5, eps=3)

    def test_zero_is_a_tolerance_and_not_the_lack_of_one(self) -> None:
        levels = [Tolerance(atol=0.0), Tolerance(atol=1.0, rtol=1.0)]
        assert Tolerance.first_set(levels) == Tolerance(atol=0.0, rtol=1.0)


class TestWhen:
    def test_a_key_left_out_matches_everything(self) -> None:
        when = When.model_validate({"check": "vmap"})
        assert when.matches(dtype="float64")
        assert when.matches(check="vmap")
        assert not when.matches(check="backward")

    def test_a_list_matches_each_of_its_names(self) -> None:
        when = When.model_validate({"dtype": ["float64", "complex128"]})
        assert when.matches(dtype="complex128")
        assert not when.matches(dtype="float32")

    @pytest.mark.parametrize(
        ("written", "matched"),
        [("-cuda", {"cpu", "mps"}), (["-cuda", "-mps"], {"cpu"}), (["-cuda", "cuda"], {"cpu", "cuda", "mps"})],
    )
    def test_a_minus_stands_for_all_other_devices(self, written: object, matched: set[str]) -> None:
        when = When.model_validate({"device": written})
        assert {name for name in ("cpu", "cuda", "mps") if when.matches(device=name)} == matched


class TestOperators:
    def test_the_target_is_the_name_unless_it_is_given(self, loaded: Load) -> None:
        assert spec_of(loaded, "").callable_path == "torch.sin"
        assert spec_of(loaded, 'target = "torch.special:sinc"').callable_path == "torch.special:sinc"

    def test_operators_of_torch_ops_are_registered(self, loaded: Load) -> None:
        assert not spec_of(loaded, "").is_registered
        assert spec_of(loaded, "registered = true").is_registered
        target, modules = 'target = "torch.ops.mylib.sin"\n', ["torch", "mylib"]
        assert spec_of(loaded, target, modules=modules).is_registered
        assert not spec_of(loaded, f"{target}registered = false", modules=modules).is_registered

    @pytest.mark.filterwarnings("error")
    def test_the_former_name_of_masked_still_works(self, loaded: Load) -> None:
        assert spec_of(loaded, "check_sparse_nnz = true").masked_semantics
        assert spec_of(loaded, "masked = true").masked_semantics
        assert not spec_of(loaded, "").masked_semantics

    def test_the_two_names_of_masked_must_agree(self, loaded: Load, mistakes: Mistakes) -> None:
        assert spec_of(loaded, "check_sparse_nnz = true\nmasked = true").masked_semantics
        assert mistakes(HEAD + "check_sparse_nnz = true\nmasked = false\n") == [
            "spec.toml:1:1: masked and its deprecated alias check_sparse_nnz contradict each other; "
            "expected masked alone"
        ]

    def test_variants_have_the_paths_of_tensor_methods(self, loaded: Load) -> None:
        (operator,) = loaded(HEAD + 'variants = ["inplace", { kind = "method", target = "torch.special.sinc" }]\n')
        assert [(variant.kind, variant.path) for variant in operator.variants] == [
            ("function", "torch.sin"),
            ("inplace", "torch.Tensor.sin_"),
            ("method", "torch.special.sinc"),
        ]

    def test_a_kind_of_variant_is_named_once(self, mistakes: Mistakes) -> None:
        assert mistakes(HEAD + 'variants = ["method", { kind = "method", target = "torch.sinc" }]\n') == [
            "spec.toml:4:12: variants lists a kind twice; expected method and inplace at most once each"
        ]


def test_a_condition_on_the_dtype_may_name_a_group() -> None:
    when = When(dtype=("complex", "int64"))
    assert [name for name in ("complex64", "int64", "float64") if when.matches(dtype=name)] == ["complex64", "int64"]
    assert When(dtype="double").matches(dtype="float64")
