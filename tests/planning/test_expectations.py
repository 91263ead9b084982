"""Known failures: which cases they are about, and which samples and cases they leave out, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from opcheck.planning import Case
from opcheck.spec import versions
from opcheck.spec.device_profile import DeviceProfile, profiles

Device = Callable[..., DeviceProfile]
Plan = Callable[..., list[Case]]
TorchIs = Callable[[str], None]

HEAD = """[[operator]]
name = "torch.sin"
variants = ["method"]
samples = [{ args = [{ shape = [2] }] }, { name = "long", grid = { n = [1, 2] } }]
"""


def expecting(*whens: str) -> str:
    entries = ", ".join(f'{{ when = {{ {when} }}, outcome = "fail", reason = "known" }}' for when in whens)
    return f"{HEAD}expect = [{entries}]\n"


def expected(cases: list[Case]) -> list[str]:
    return [case.id for case in cases if case.expectations]


class TestWhichCases:
    def test_every_key_narrows(self, planned: Plan) -> None:
        when = 'check = "backward", variant = "method", device = "cuda", dtype = "complex128"'
        assert expected(planned(expecting(when), *profiles().values())) == [
            "torch.sin[method]::backward[cuda-complex128]"
        ]

    def test_a_list_means_any_of_its_names(self, planned: Plan) -> None:
        when = 'check = ["backward", "vmap"], variant = "function", dtype = "float64"'
        assert expected(planned(expecting(when))) == [
            "torch.sin::backward[cpu-float64]",
            "torch.sin::vmap[cpu-float64]",
        ]

    @pytest.mark.parametrize(
        ("when", "conditions", "holds"),
        [
            ('engine = "torch"', {"engine": "torch", "derive": "none"}, True),
            ('engine = "torch"', {"engine": "batched", "derive": "none"}, False),
            ('derive = ["standard", "thorough"]', {"engine": "torch", "derive": "standard"}, True),
            ('derive = ["standard", "thorough"]', {"engine": "torch", "derive": "none"}, False),
            ('check = "vmap"', {"engine": "torch", "derive": "none"}, True),
        ],
    )
    def test_the_kind_of_run_does_not_narrow_cases_but_what_is_expected(
        self, planned: Plan, when: str, conditions: dict[str, str], holds: bool
    ) -> None:
        cases = planned(expecting(when), **conditions)
        assert {case.id for case in cases} >= {"torch.sin::vmap[cpu-float64]", "torch.sin::backward[cpu-float64]"}
        (case,) = [case for case in cases if case.id == "torch.sin::vmap[cpu-float64]"]
        assert bool(case.expectations) is holds

    def test_a_sample_does_not_narrow_cases(self, planned: Plan) -> None:
        (case,) = [
            case
            for case in planned(expecting('sample = "long", check = "vmap", dtype = "float64"'))
            if case.expectations
        ]
        assert case.expectations[0].when.sample == "long"

    def test_the_known_failures_of_a_device_hold_there(self, planned: Plan, device: Device) -> None:
        profile = device('expect = [{ when = { check = "vmap" }, outcome = "skip", reason = "no" }]')
        assert {case.check for case in planned(HEAD, profile) if case.expectations} == {"vmap"}
        assert expected(planned(HEAD)) == []

    @pytest.mark.parametrize(
        ("operator", "holds"),
        [
            ('"torch.sin"', True),
            ('"torch.s*"', True),
            ('["torch.cos", "*.sin"]', True),
            ('"torch.cos"', False),
        ],
    )
    def test_a_profile_names_operators(self, planned: Plan, device: Device, operator: str, holds: bool) -> None:
        when = f'{{ check = "vmap", operator = {operator} }}'
        profile = device(f'expect = [{{ when = {when}, outcome = "fail", reason = "no" }}]')
        assert bool(expected(planned(HEAD, profile))) is holds


class TestTorchVersions:
    @pytest.mark.parametrize(
        ("installed", "holds"),
        [
            ("2.11.1", True),
            ("2.11.0+cu128", True),
            ("2.12.0", False),
            ("2.13.0+cpu", False),
            ("2.12.0a0+git1", False),
            ("", True),
        ],
    )
    def test_a_condition_is_held_against_the_installed_torch(
        self, planned: Plan, torch_is: TorchIs, installed: str, holds: bool
    ) -> None:
        torch_is(installed)
        found = expected(planned(expecting('check = "vmap", dtype = "float64", torch = "<2.12"')))
        assert bool(found) is holds

    @pytest.mark.parametrize(
        ("condition", "holds"),
        [(">=2.12", True), (">=2.13.0.dev20260101", True), (">=2.13", False), ("<2.13", False), (">2.14", False)],
    )
    def test_a_nightly_comes_before_its_release_and_after_the_one_before(
        self, planned: Plan, torch_is: TorchIs, condition: str, holds: bool
    ) -> None:
        torch_is("2.13.0.dev20260301+cu130")
        found = expected(planned(expecting(f'check = "vmap", dtype = "float64", torch = "{condition}"')))
        assert bool(found) is holds

    @pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: there is no version to read")
    def test_the_version_is_read_without_importing_torch(self) -> None:
        assert versions.torch_version()[0].isdigit()


TEXT = """
[[operator]]
name    = "torch.sin"
dtypes  = ["float32", "float64"]
errors  = [{ args = [1], raises = "TypeError", match = "Tensor" }]
samples = [
  { name = "a", args = [{ shape = [2] }], dtypes = ["float64"] },
  { name = "g", args = [{ shape = [2] }], grid = { out = [{ none = true }] }, dtypes = ["float64"] },
]
"""

EXPECT = """
[[operator.expect]]
when    = { %s }
outcome = "%s"
reason  = "%s"
"""

CaseOf = Callable[..., Case]


@pytest.fixture
def case_of(planned: Callable[..., list[Case]]) -> CaseOf:
    def make(*expectations: tuple[str, str, str], check: str = "backward", dtype: str = "float64") -> Case:
        text = TEXT + "".join(EXPECT % expectation for expectation in expectations)
        (case,) = planned(text, checks=(check,), dtypes=(dtype,))
        return case

    return make


def names(case: Case) -> list[str]:
    return [sample.name for sample in case.samples]


def test_a_skipped_sample_does_not_run(case_of: CaseOf) -> None:
    case = case_of(('sample = "g"', "skip", "slow"))
    assert names(case) == ["a"]
    assert case.reason_to_skip == ""


def test_a_case_without_samples_left_says_why(case_of: CaseOf) -> None:
    case = case_of(('sample = "a"', "skip", "slow"), ('sample = "g"', "skip", "huge"))
    assert names(case) == []
    assert case.reason_to_skip == "slow; huge"


def test_a_skipped_case_says_why(case_of: CaseOf) -> None:
    case = case_of(('check = "backward"', "skip", "not today"))
    assert case.reason_to_skip == "not today"


def test_an_expected_failure_runs(case_of: CaseOf) -> None:
    case = case_of(('check = "backward"', "fail", "wrong"))
    assert (len(names(case)), case.reason_to_skip) == (2, "")


def test_a_dtype_that_no_sample_is_meant_for_is_the_reason(case_of: CaseOf) -> None:
    assert case_of(check="dtypes", dtype="float32").reason_to_skip == "no sample is meant for float32"


def test_errors_need_no_samples(case_of: CaseOf) -> None:
    case = case_of(('sample = ["a", "g"]', "skip", "slow"), check="errors")
    assert (names(case), case.reason_to_skip) == ([], "")
