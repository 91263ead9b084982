"""From claims to cases: which there are, in which order, on which devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from opcheck.planning import Case, check_kinds, plan
from opcheck.spec import Library
from opcheck.spec.claims import Order, Tolerance
from opcheck.spec.device_profile import DeviceProfile, profiles
from opcheck.spec.dtypes import STANDARD

Load = Callable[[str], Library]
Device = Callable[..., DeviceProfile]
Plan = Callable[..., list[Case]]

SIN = """
[[operator]]
name = "torch.sin"
variants = ["method", "inplace"]
samples = [{ args = [{ shape = [2] }] }]
"""
DIV = """
[[operator]]
name = "torch.div"
variant = "floor"
samples = [{ args = [{ shape = [2] }, { shape = [2] }], kwargs = { rounding_mode = "floor" } }]
"""


def checks_of(cases: list[Case], variant: str = "function") -> list[str]:
    return list(dict.fromkeys(case.check for case in cases if case.variant.kind == variant))


def dtypes_of(cases: list[Case], check: str = "backward") -> list[str]:
    return [case.dtype for case in cases if case.check == check and case.variant.kind == "function"]


class TestIds:
    def test_ids_name_operator_variant_check_device_and_dtype(self, planned: Plan) -> None:
        ids = [case.id for case in planned(SIN + DIV)]
        assert "torch.sin::backward[cpu-float64]" in ids
        assert "torch.sin[inplace]::backward[cpu-complex128]" in ids
        assert "torch.sin[method]::forward_ad[cpu-float64]" in ids
        assert "torch.div[floor]::rev_over_rev[cpu-float64]" in ids

    def test_ids_are_unique(self, planned: Plan, device: Device) -> None:
        second = '[[operator]]\nname = "torch.div"\nsamples = [{ args = [1] }]\nvariants = ["inplace"]\n'
        ids = [case.id for case in planned(SIN + DIV + second, *profiles().values(), device())]
        assert len(set(ids)) == len(ids)

    def test_the_same_spec_gives_the_same_cases_in_the_same_order(self, loaded: Load) -> None:
        first, second = ([case.id for case in plan(loaded(SIN + DIV), profiles().values())] for _ in range(2))
        assert first == second

    def test_the_order_is_operator_device_variant_dtype_check(self, planned: Plan) -> None:
        cases = planned(SIN + DIV, profiles()["cpu"], profiles()["cuda"])
        checks, dtypes = list(check_kinds()), ["float64", "complex128", *STANDARD]
        places = [
            (
                ["torch.sin", "torch.div[floor]"].index(case.operator.id),
                list(profiles()).index(case.device.name),
                ["function", "method", "inplace"].index(case.variant.kind),
                dtypes.index(case.dtype),
                checks.index(case.check),
            )
            for case in cases
        ]
        assert places == sorted(places)


class TestChecks:
    def test_everything_is_checked_by_default(self, planned: Plan) -> None:
        conditional = {
            "masked",
            "unsupported",
            "reference",
            "errors",
            "registration",
            "scalarized_second_order",
            "buffers",
            "device_consistency",
            "compile",
        }
        assert set(checks_of(planned(SIN))) == {name for name in check_kinds() if name not in conditional}

    def test_the_sum_of_gradients_is_differentiated_where_a_spec_asks_for_it(self, planned: Plan) -> None:
        orders = f"orders = {list(get_args(Order))}"
        assert set(checks_of(planned(SIN + orders))) - set(checks_of(planned(SIN))) == {"scalarized_second_order"}

    @pytest.mark.parametrize(
        ("disclaimed", "gone"),
        [
            ("rev_over_fwd", {"rev_over_fwd"}),
            ("fwd_over_fwd", {"fwd_over_fwd"}),
            ("third_order", {"rev_over_rev_over_rev"}),
            ("forward_ad", {"rev_over_fwd", "fwd_over_fwd"}),
            ("second_order", {"rev_over_fwd", "fwd_over_fwd", "rev_over_rev_over_rev"}),
        ],
    )
    def test_further_orders_are_checked_where_they_are_claimed(
        self, planned: Plan, disclaimed: str, gone: set[str]
    ) -> None:
        further = {"rev_over_fwd", "fwd_over_fwd", "rev_over_rev_over_rev"}
        assert further & set(checks_of(planned(SIN + f"supports.{disclaimed} = false"))) == further - gone

    def test_each_variant_has_the_checks_of_derivatives(self, planned: Plan) -> None:
        cases = planned(SIN)
        kinds = [check_kinds()[name] for name in checks_of(cases)]
        assert checks_of(cases, "inplace") == [kind.name for kind in kinds if "inplace" in kind.variants]
        assert checks_of(cases, "method") == [kind.name for kind in kinds if "method" in kind.variants]
        assert checks_of(cases, "method") == ["backward", "forward_ad"]

    def test_a_disclaimed_kind_is_not_checked_but_its_refusal_is(self, planned: Plan) -> None:
        found = checks_of(planned(SIN + "supports = { forward_ad = false, vmap = false }"))
        assert {"forward_ad", "batched_forward_grad", "fwd_over_rev", "vmap"}.isdisjoint(found)
        assert {"backward", "rev_over_rev", "unsupported"} <= set(found)

    def test_without_backward_nothing_that_needs_it_is_checked(self, planned: Plan) -> None:
        found = checks_of(planned(SIN + "supports.backward = false"))
        assert [name for name in found if "backward" in check_kinds()[name].needs] == []
        assert {"forward_ad", "unsupported"} <= set(found)

    def test_backward_of_some_arguments_is_checked_both_ways(self, planned: Plan) -> None:
        assert {"backward", "unsupported"} <= set(checks_of(planned(SIN + "supports.backward = [0]")))

    def test_inplace_derivatives_that_are_disclaimed_are_only_refused(self, planned: Plan) -> None:
        cases = planned(SIN + "supports.inplace_backward = false")
        assert checks_of(cases, "inplace") == ["unsupported"]
        assert "backward" in checks_of(cases, "method")

    def test_a_disclaimer_that_another_check_tests_gives_no_case_of_its_own(self, planned: Plan) -> None:
        text = SIN.replace('"method", "inplace"', "")
        assert "unsupported" not in checks_of(planned(text + "supports = { out = false, inplace_backward = false }"))
        assert "unsupported" not in checks_of(planned(text + "supports = { masked = false }"))

    def test_masked_is_for_sparse_samples(self, planned: Plan) -> None:
        sparse = SIN.replace("shape = [2]", 'shape = [2, 2], layout = "sparse_csr"')
        assert "masked" in checks_of(planned(sparse))
        assert "unsupported" in checks_of(planned(sparse + "supports.masked = false"))

    @pytest.mark.parametrize(
        ("text", "check"),
        [
            ('reference = "numpy.sin"', "reference"),
            ('errors = [{ args = ["x"], match = "x" }]', "errors"),
            ("registered = true", "registration"),
        ],
    )
    def test_some_checks_need_something_to_check_against(self, planned: Plan, text: str, check: str) -> None:
        assert check in checks_of(planned(SIN + text))


class TestDtypes:
    def test_derivatives_are_checked_in_the_most_precise_dtypes_claimed(self, planned: Plan) -> None:
        assert dtypes_of(planned(SIN)) == ["float64", "complex128"]
        assert dtypes_of(planned(SIN + 'dtypes.forward = ["floating", "-float64"]')) == ["float32"]

    def test_finite_differences_say_nothing_in_half_precision(self, planned: Plan) -> None:
        claims = SIN + 'dtypes.forward = ["half", "complex64"]'
        assert dtypes_of(planned(claims)) == ["complex64"]
        assert dtypes_of(planned(claims), "low_precision_grad") == ["float16", "bfloat16"]

    def test_coarse_dtypes_are_judged_where_something_tells_what_is_right(self, planned: Plan) -> None:
        coarse = ["float16", "bfloat16", "float32", "complex64"]
        assert dtypes_of(planned(SIN), "low_precision_grad") == coarse
        single = SIN + 'dtypes.forward = ["float32"]'
        assert dtypes_of(planned(single), "low_precision_grad") == []
        assert dtypes_of(planned(single + '\nreference = "torch.sin"'), "low_precision_grad") == ["float32"]
        assert dtypes_of(planned(SIN + "reseed = true"), "low_precision_grad") == []

    def test_backward_dtypes_count_for_derivatives(self, planned: Plan) -> None:
        cases = planned(SIN + 'dtypes = { forward = ["all"], backward = ["float32"] }')
        assert dtypes_of(cases) == ["float32"]

    def test_without_a_dtype_for_backward_there_is_no_backward_case(self, planned: Plan) -> None:
        cases = planned(SIN + 'dtypes = { forward = ["floating"], backward = [] }')
        assert [case.id for case in cases if "backward" in case.kind.needs] == []
        assert dtypes_of(cases, "dtypes")

    def test_in_half_precision_alone_no_differences_are_taken(self, planned: Plan) -> None:
        for backward in ("", '"bfloat16"'):
            cases = planned(SIN + f'dtypes = {{ forward = ["bfloat16"], backward = [{backward}] }}')
            assert [case.id for case in cases if case.kind.dtypes == "derivative"] == []
            assert dtypes_of(cases, "dtypes")

    def test_an_operator_of_integers_has_no_derivative_cases(self, planned: Plan) -> None:
        cases = planned(SIN + 'dtypes.forward = ["integral"]')
        assert [case.id for case in cases if case.kind.dtypes == "derivative"] == []

    def test_the_dtypes_check_covers_the_refused_ones_and_the_exotic_ones_claimed(self, planned: Plan) -> None:
        cases = planned(SIN + 'dtypes = { forward = ["float32", "float8_e5m2"], exact = true }')
        assert len(dtypes_of(cases, "dtypes")) == 13
        assert dtypes_of(cases, "dtypes")[-1] == "float8_e5m2"

    def test_values_are_compared_in_an_integer_dtype_too(self, planned: Plan) -> None:
        assert dtypes_of(planned(SIN + 'dtypes.forward = ["all"]'), "variants") == ["float64", "complex128", "int64"]
        assert dtypes_of(planned(SIN + 'dtypes.forward = ["bool"]'), "variants") == ["bool"]

    def test_errors_are_tested_once(self, planned: Plan) -> None:
        assert dtypes_of(planned(SIN + 'errors = [{ match = "x" }]'), "errors") == ["float64"]


class TestDevices:
    def test_cases_for_cuda_are_planned_where_there_is_none(self, planned: Plan) -> None:
        ids = [case.id for case in planned(SIN, profiles()["cuda"])]
        assert "torch.sin::backward[cuda-float64]" in ids
        assert all("[cuda-" in id for id in ids)

    def test_dtypes_that_a_device_lacks_are_taken_out(self, planned: Plan, device: Device) -> None:
        cases = planned(SIN, device('lacks = ["double", "bfloat16"]'))
        assert dtypes_of(cases) == ["float32", "complex64"]
        assert {"float64", "complex128", "bfloat16"}.isdisjoint(dtypes_of(cases, "dtypes"))

    def test_a_device_is_compared_with_the_cpu_and_the_cpu_with_nothing(self, planned: Plan, device: Device) -> None:
        cases = planned(SIN, profiles()["cpu"], profiles()["cuda"], device('torch = "cpu"'), device(name="tpu"))
        compared = [case for case in cases if case.check == "device_consistency"]
        assert {case.device.name for case in compared} == {"cuda", "tpu"}
        assert dtypes_of(compared, "device_consistency")[:2] == ["float64", "complex128"]
        assert checks_of(compared, "inplace") == []

    def test_an_operator_that_is_not_for_the_cpu_is_not_compared_with_it(self, planned: Plan) -> None:
        checks = checks_of(planned(SIN + 'devices = ["cuda"]', *profiles().values()))
        assert "backward" in checks
        assert "device_consistency" not in checks

    def test_an_operator_can_be_for_some_devices_only(self, planned: Plan) -> None:
        cases = planned(SIN + 'devices = ["cpu"]', *profiles().values())
        assert {case.device.name for case in cases} == {"cpu"}

    def test_dtypes_can_differ_by_device(self, planned: Plan) -> None:
        cases = planned(SIN + 'per_device.cuda.dtypes.forward = ["single"]', *profiles().values())
        by_device = {name: dtypes_of([case for case in cases if case.device.name == name]) for name in ("cpu", "cuda")}
        assert by_device == {"cpu": ["float64", "complex128"], "cuda": ["float32", "complex64"]}

    def test_support_can_differ_by_device(self, planned: Plan) -> None:
        cases = planned(SIN + "per_device.cuda.supports.forward_ad = false", *profiles().values())
        on = {name: checks_of([case for case in cases if case.device.name == name]) for name in ("cpu", "cuda")}
        assert "forward_ad" in on["cpu"]
        assert "forward_ad" not in on["cuda"]
        assert "unsupported" in on["cuda"]
        assert "unsupported" not in on["cpu"]

    def test_what_differs_on_a_device_is_merged_with_what_the_operator_claims(
        self, planned: Plan, torch_is: Callable[[str], None]
    ) -> None:
        torch_is("2.13.0")
        text = (
            SIN.replace("[[operator]]", "[defaults]\nper_device.cuda.supports.vmap = false\n[[operator]]", 1)
            + """
dtypes = { forward = ["floating"], backward = ["float32"], exact = true }
supports = { vmap = true, out = false }
tolerance = { atol = 1, check.backward.rtol = 2 }
per_torch.">=0".supports.forward_ad = false
[operator.per_device.cuda]
dtypes = "single"
supports.purity = false
tolerance.atol = 3
"""
        )
        claims = {case.device.name: case.claims for case in planned(text, *profiles().values())}
        cpu, cuda = claims["cpu"], claims["cuda"]
        assert cpu.supports.disclaimed() == ("forward_ad", "out")
        assert cuda.supports.disclaimed() == ("forward_ad", "out", "vmap", "purity")
        assert (cuda.forward, cuda.backward, cuda.exact) == (("float32", "complex64"), ("float32",), True)
        assert cuda.tolerance("backward", "float32") == Tolerance(atol=3, rtol=2)
        assert cpu.tolerance("backward", "float32") == Tolerance(atol=1, rtol=2)

    def test_the_tolerance_of_the_operator_on_the_device_comes_first(self, planned: Plan, device: Device) -> None:
        profile = device("tolerance = { atol = 1, rtol = 1, eps = 1 }")
        text = SIN + "tolerance = { atol = 2, rtol = 2 }\n"
        assert planned(text, profile)[0].claims.tolerance("backward", "float64").numbers() == {
            "atol": 2,
            "rtol": 2,
            "eps": 1,
        }

    @pytest.mark.parametrize(
        ("rule", "left"),
        [
            ('allow = ["torch.sin"]', ["torch.sin"]),
            ('allow = ["torch.div"]', ["torch.div[floor]"]),
            ('allow = ["torch.div[floor]"]', ["torch.div[floor]"]),
            ('allow = ["torch.*"]\ndeny = ["*.div*"]', ["torch.sin"]),
            ('deny = ["torch.div[*]"]', ["torch.sin"]),
            ('deny = ["torch.div[f]"]', ["torch.sin", "torch.div[floor]"]),
            ("allow = []", []),
        ],
    )
    def test_a_device_allows_and_denies_operators(
        self, planned: Plan, device: Device, rule: str, left: list[str]
    ) -> None:
        cases = planned(SIN + DIV, device(rule))
        assert list(dict.fromkeys(case.operator.id for case in cases)) == left
