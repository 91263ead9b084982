"""Known failures: which cases they speak of, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from opcheck.plan import Case, audit, expectations, load_audited
from opcheck.spec import Library, Settings, SpecError
from opcheck.spec.device import DeviceProfile, profiles

Load = Callable[[str], Library]
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


@pytest.fixture
def audited(loaded: Load) -> Callable[..., list[str]]:
    """Return what an audit says about the text of one spec file."""

    def lines(text: str, *devices: DeviceProfile) -> list[str]:
        return [str(problem) for problem in audit(loaded(text), [*profiles().values(), *devices])]

    return lines


Audited = Callable[..., list[str]]


def spoken_of(cases: list[Case]) -> list[str]:
    return [case.id for case in cases if case.expectations]


class TestWhichCases:
    def test_every_key_narrows(self, planned: Plan) -> None:
        when = 'check = "backward", variant = "method", device = "cuda", dtype = "complex128"'
        assert spoken_of(planned(expecting(when), *profiles().values())) == [
            "torch.sin[method]::backward[cuda-complex128]"
        ]

    def test_a_list_means_any_of_its_names(self, planned: Plan) -> None:
        when = 'check = ["backward", "vmap"], variant = "function", dtype = "float64"'
        assert spoken_of(planned(expecting(when))) == [
            "torch.sin::backward[cpu-float64]",
            "torch.sin::vmap[cpu-float64]",
        ]

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
        assert spoken_of(planned(HEAD)) == []


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
        found = spoken_of(planned(expecting('check = "vmap", dtype = "float64", torch = "<2.12"')))
        assert bool(found) is holds

    @pytest.mark.parametrize(
        ("condition", "holds"),
        [(">=2.12", True), (">=2.13.0.dev20260101", True), (">=2.13", False), ("<2.13", False), (">2.14", False)],
    )
    def test_a_nightly_comes_before_its_release_and_after_the_one_before(
        self, planned: Plan, torch_is: TorchIs, condition: str, holds: bool
    ) -> None:
        torch_is("2.13.0.dev20260301+cu130")
        found = spoken_of(planned(expecting(f'check = "vmap", dtype = "float64", torch = "{condition}"')))
        assert bool(found) is holds

    def test_an_expectation_for_another_torch_still_matches_its_cases(
        self, audited: Audited, torch_is: TorchIs
    ) -> None:
        torch_is("2.13.0")
        assert audited(expecting('check = "vmap", torch = "<2.12"')) == []

    @pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: there is no version to read")
    def test_the_version_is_read_without_importing_torch(self) -> None:
        assert expectations.torch_version()[0].isdigit()


class TestAudit:
    def test_good_expectations_have_no_mistakes(self, audited: Audited) -> None:
        whens = ('check = "vmap"', 'sample = "long"', 'sample = "long[n=1]"', 'sample = "0"', 'torch = "<2.12"')
        assert audited(expecting(*whens, 'device = "cuda", dtype = ["float64", "int8"]')) == []

    def test_unknown_names_come_all_at_once_with_their_places(self, audited: Audited) -> None:
        text = (
            HEAD
            + """
            [[operator.expect]]
            when = { check = ["vmap", "bakward"], variant = "metod", device = "cudaa" }
            outcome = "fail"
            reason = "x"
            [[operator.expect]]
            when.dtype = "flot64"
            when.sample = "lang"
            outcome = "skip"
            reason = "x"
            """
        )
        lines = audited(text)
        assert [(line.split(";")[0], line.rpartition("; ")[2]) for line in lines] == [
            ('spec.toml:7:39: unknown check "bakward"', 'did you mean "backward"?'),
            ('spec.toml:7:61: unknown variant "metod"', 'did you mean "method"?'),
            ('spec.toml:7:79: unknown device "cudaa"', 'did you mean "cuda"?'),
            ('spec.toml:11:26: unknown dtype "flot64"', 'did you mean "float64"?'),
            ('spec.toml:12:27: unknown sample "lang"', 'did you mean "long"?'),
        ]
        assert lines[4].split("; ")[1] == "expected one of 0, long[n=1], long, long[n=2]"

    def test_a_variant_that_the_operator_lacks_is_unknown(self, audited: Audited) -> None:
        column = len("expect = [{ when = { variant = ") + 1
        assert audited(expecting('variant = "inplace"')) == [
            f'spec.toml:5:{column}: unknown variant "inplace"; expected one of function, method'
        ]

    @pytest.mark.parametrize(
        "when",
        [
            'check = "vmap", dtype = "int8"',
            'check = "vmap", variant = "method"',
            'check = "masked"',
            "dtype = []",
        ],
    )
    def test_an_expectation_that_matches_no_case_is_refused(self, audited: Audited, when: str) -> None:
        text = expecting('check = "vmap"', when)
        column = text.splitlines()[4].rindex("{ " + when) + 1
        assert audited(text) == [
            f"spec.toml:5:{column}: "
            "this expectation matches no case of the operator; expected a case that `opcheck show` lists"
        ]

    def test_cases_of_absent_devices_count(self, audited: Audited) -> None:
        assert audited(expecting('device = "cuda", check = "vmap"')) == []
        (line,) = audited(expecting('device = "cuda", check = "vmap"') + 'devices = ["cpu"]\n')
        assert "this expectation matches no case" in line

    def test_tolerances_name_checks_and_dtypes(self, audited: Audited) -> None:
        text = (
            HEAD
            + """tolerance.check.bakward.atol = 1
tolerance.dtype.flot32 = { atol = 1 }
per_device.cuda.tolerance.check.vmapp = { atol = 1 }
"""
        )
        lines = audited(text)
        assert [(line.split(";")[0], line.rpartition("; ")[2]) for line in lines] == [
            ('spec.toml:5:17: unknown check "bakward"', 'did you mean "backward"?'),
            ('spec.toml:6:17: unknown dtype "flot32"', 'did you mean "float32"?'),
            ('spec.toml:7:33: unknown check "vmapp"', 'did you mean "vmap"?'),
        ]

    def test_a_mistake_in_the_defaults_is_placed_there(self, audited: Audited) -> None:
        (line,) = audited("[defaults]\ntolerance.dtype.flot32 = { atol = 1 }\n" + HEAD)
        assert line.startswith('spec.toml:2:17: unknown dtype "flot32"')

    def test_profiles_are_audited_too(self, audited: Audited, device: Device) -> None:
        profile = device(
            'expect = [{ when = { check = "vmapp", device = "cpu" }, outcome = "skip", reason = "no" }]\n'
            "tolerance.dtype.flot32 = { atol = 1 }\n"
        )
        lines = audited(HEAD, profile)
        assert [line.split(";")[0] for line in lines] == [
            'npu.toml:4:17: unknown dtype "flot32"',
            'npu.toml:3:30: unknown check "vmapp"',
            'npu.toml:3:48: unknown device "cpu"',
        ]


class TestLoadAudited:
    def test_mistakes_of_loading_and_of_expectations_come_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("a.toml").write_text(expecting('check = "bakward"'))
        Path("b.toml").write_text(HEAD.replace("sin", "cos") + "reseed = 1\n")
        with pytest.raises(SpecError) as caught:
            load_audited(["a.toml", "b.toml"], Settings())
        assert [line.split(";")[0] for line in str(caught.value).splitlines()] == [
            f'a.toml:5:{len("expect = [{ when = { check = ") + 1}: unknown check "bakward"',
            "b.toml:5:10: wrong type for reseed: an integer (1)",
        ]

    def test_good_specs_give_their_library(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text(expecting('check = "vmap"'))
        assert [operator.id for operator in load_audited([path])] == ["torch.sin"]
