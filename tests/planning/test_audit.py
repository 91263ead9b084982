"""Mistakes that show only when cases are planned."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opcheck.planning import load
from opcheck.planning.audit import audit
from opcheck.spec import Library, SpecError
from opcheck.spec.device_profile import DeviceProfile, profiles

Load = Callable[[str], Library]
Device = Callable[..., DeviceProfile]
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


class TestAudit:
    def test_good_expectations_have_no_mistakes(self, audited: Audited) -> None:
        whens = ('check = "vmap"', 'sample = "long"', 'sample = "long[n=1]"', 'sample = "0"', 'torch = "<2.12"')
        assert audited(expecting(*whens, 'device = "cuda", dtype = ["float64", "int8"]')) == []

    def test_unknown_names_come_all_at_once_with_their_places(self, audited: Audited) -> None:
        text = (
            HEAD
            + """
            [[operator.expect]]
            when = { check = ["vmap", "bakward"], variant = "metod", device = ["cudaa", "-cdua"] }
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
            ('spec.toml:7:80: unknown device "cudaa"', 'did you mean "cuda"?'),
            ('spec.toml:7:89: unknown device "-cdua"', 'did you mean "cuda"?'),
            ('spec.toml:11:26: unknown dtype "flot64"', 'did you mean "float64"?'),
            ('spec.toml:12:27: unknown sample "lang"', 'did you mean "long"?'),
        ]
        assert lines[5].split("; ")[1] == "expected one of 0, long[n=1], long, long[n=2]"

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
            'check = "vmap", dtype = "float64", sample = "small"',
        ],
    )
    def test_an_expectation_that_matches_no_case_is_refused(self, audited: Audited, when: str) -> None:
        small = '{ name = "small", args = [{ shape = [1] }], dtypes = ["float32"] }, {'
        text = expecting('check = "vmap"', when).replace("[{", f"[{small}", 1)
        column = text.splitlines()[4].rindex("{ " + when) + 1
        assert audited(text) == [
            f"spec.toml:5:{column}: "
            "this expectation matches no case of the operator; `opcheck show torch.sin` lists its cases"
        ]

    def test_an_expectation_of_the_defaults_has_to_be_about_one_of_the_operators(self, audited: Audited) -> None:
        text = '[defaults]\nexpect = [{ when = { WHEN }, outcome = "fail", reason = "known" }]\n'
        text += f"{HEAD}{HEAD.replace('sin', 'cos').replace('method', 'inplace').replace('long', 'other')}"
        for when in ('variant = "inplace", check = "backward"', 'variant = "method"', 'sample = "other"'):
            assert audited(text.replace("WHEN", when)) == []
        assert audited(text.replace("WHEN", 'check = "masked"')) == [
            "spec.toml:2:20: this expectation matches no case of any operator of the file; "
            "`opcheck show OPERATOR` lists the cases of an operator"
        ]
        (line,) = audited(text.replace("WHEN", 'sample = "lang"'))
        assert line.startswith(
            'spec.toml:2:31: unknown sample "lang"; expected one of 0, long[n=1], long, long[n=2], other'
        )

    def test_a_sample_that_no_operator_would_run_is_a_mistake(self, audited: Audited) -> None:
        text = HEAD.replace('name = "long"', 'dtypes = ["DTYPE"], name = "long"')
        assert audited(text.replace("DTYPE", "complex64")) == []
        elsewhere = 'dtypes = ["float32"]\nper_device.cuda.dtypes = ["float32", "float64"]\n'
        assert audited(text.replace("DTYPE", "float64") + elsewhere) == []
        (line,) = audited(text.replace("DTYPE", "float64") + 'dtypes = ["float32"]\n')
        assert line == (
            "spec.toml:4:53: the sample would not be tested: the operator claims none of its dtypes; "
            "expected a dtype of the operator"
        )

    def test_a_sample_of_the_defaults_has_to_run_for_one_of_the_operators(self, audited: Audited) -> None:
        text = (
            '[defaults]\nsamples = [{ args = [{ shape = [2] }] }, { args = [{ shape = [2] }], dtypes = ["complex"] }]\n'
        )
        one = '[[operator]]\nname = "torch.{}"\ndtypes = {}\n'
        assert audited(text + one.format("sin", '["floating"]') + one.format("cos", '["float64", "complex64"]')) == []
        (line,) = audited(text + one.format("sin", '["float64"]') + one.format("cos", '["float32"]'))
        assert line.startswith("spec.toml:2:79: the sample would not be tested")

    def test_an_operator_without_a_case_on_any_device_is_a_mistake(self, audited: Audited, device: Device) -> None:
        text = f'{HEAD}devices = ["npu"]\ndtypes = "complex"\n'
        assert audited(text, device()) == []
        for lacking in ('lacks = ["complex"]', 'deny = ["torch.sin"]'):
            assert audited(text, device(lacking)) == [
                "spec.toml:2:8: torch.sin has no case on any device: nothing would be tested; "
                "expected claims that leave a device, and a dtype that it has"
            ]

    def test_cases_of_absent_devices_count(self, audited: Audited) -> None:
        assert audited(expecting('device = "cuda", check = "vmap"')) == []
        (line,) = audited(expecting('device = "cuda", check = "vmap"') + 'devices = ["cpu"]\n')
        assert "this expectation matches no case" in line

    def test_positions_of_arguments_exist_in_some_sample(self, audited: Audited) -> None:
        text = (
            '[[operator]]\nname = "torch.add"\nsamples = [{ args = [1] }, { args = [1, 2], kwargs = { alpha = 2 } }]\n'
        )
        assert audited(text + 'supports.backward = [0, 1, "alpha"]') == []
        wrong = text + "supports.backward = [-1, 2]\nper_device.cuda.supports.backward = [0, 7]\n"
        assert audited(wrong) == [
            'spec.toml:4:22: unknown argument "-1"; expected one of alpha, 0, 1',
            'spec.toml:4:26: unknown argument "2"; expected one of alpha, 0, 1',
            'spec.toml:5:41: unknown argument "7"; expected one of alpha, 0, 1',
        ]

    def test_names_of_arguments_are_left_to_those_who_know_the_signature(self, audited: Audited) -> None:
        assert audited(HEAD + 'supports.backward = ["whatever"]') == []

    @pytest.mark.parametrize(
        ("dtypes", "entry", "expected"),
        [
            ('{ forward = ["float32"], backward = ["float64"] }', "float64", "float32"),
            ('{ forward = ["single"], backward = ["float32", "half"] }', "half", "one of float32, complex64"),
            ('{ forward = ["complex"], backward = ["floating"] }', "floating", "one of complex64, complex128"),
            ('{ forward = ["integral"], backward = ["float64"] }', "float64", "a forward pass in it"),
        ],
    )
    def test_a_backward_pass_without_a_forward_pass_is_refused(
        self, audited: Audited, dtypes: str, entry: str, expected: str
    ) -> None:
        (line,) = audited(f"{HEAD}dtypes = {dtypes}\n")
        column = len("dtypes = ") + dtypes.index(f'"{entry}"', dtypes.index("backward")) + 1
        what = f"the backward pass in {entry} would not be tested: the forward pass is not claimed in it"
        assert line == f"spec.toml:5:{column}: {what}; expected {expected}"

    @pytest.mark.parametrize(
        "dtypes",
        [
            '{ forward = ["integral"], backward = [] }',
            '{ forward = ["float32", "uint8"], backward = ["floating", "-half"] }',
            "['integral']",
        ],
    )
    def test_groups_and_defaults_may_have_further_dtypes(self, audited: Audited, dtypes: str) -> None:
        defaults = '[defaults]\ndtypes = { backward = ["float64"] }\n'
        assert audited(f"{HEAD}dtypes = {dtypes}\n") == audited(f"{defaults}{HEAD}dtypes = {dtypes}\n") == []

    def test_a_device_without_any_dtype_of_the_backward_pass_is_a_mistake(self, audited: Audited) -> None:
        text = f'{HEAD}dtypes = {{ backward = ["float32", "float64"] }}\nper_device.mps.dtypes.forward = ["NAME"]\n'
        assert audited(text.replace("NAME", "float32")) == []
        (line,) = audited(text.replace("NAME", "float16"))
        assert line.startswith("spec.toml:6:")
        assert "claims the backward pass in none of these dtypes" in line
        own = 'per_device.mps.dtypes.backward = ["float16"]\n'
        assert audited(text.replace("NAME", "float16") + own) == []

    def test_a_tag_has_a_name_of_its_own(self, audited: Audited) -> None:
        text = 'tags = ["slow", "backward", "float64", "cuda"]\n'
        assert audited(HEAD + text) == [
            f'spec.toml:5:{text.index(name)}: "{name}" cannot be a tag: it is a {kind}, '
            "whose cases pytest selects by the same name; expected another name"
            for name, kind in (("backward", "check"), ("float64", "dtype"), ("cuda", "device"))
        ]

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

    def test_a_spec_names_no_operators(self, write: Callable[..., object]) -> None:
        write(expecting('operator = "torch.sin"'))
        with pytest.raises(SpecError, match=r'spec.toml:5:22: unknown key "operator"'):
            load(["spec.toml"])

    def test_an_expectation_for_another_torch_still_matches_its_cases(
        self, audited: Audited, torch_is: TorchIs
    ) -> None:
        torch_is("2.13.0")
        assert audited(expecting('check = "vmap", torch = "<2.12"')) == []

    @pytest.mark.parametrize("version", ["2.13.0", "2.14.0", ""])
    def test_an_expectation_may_be_about_a_case_that_exists_with_another_torch(
        self, audited: Audited, torch_is: TorchIs, version: str
    ) -> None:
        torch_is(version)
        text = expecting('check = "backward", torch = "<2.14"') + 'dtypes = "int64"\n'
        assert audited(text + 'per_torch."<2.14".dtypes = ["float64"]\n') == []
        (line,) = audited(text)
        assert line.startswith("spec.toml:5:20: this expectation matches no case of the operator; ")
