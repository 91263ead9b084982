"""How many cases the rules of profiles and specs leave out: the plan with a rule, and without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opcheck.planning import Case, Selection, plan
from opcheck.planning.left_out import left_out
from opcheck.spec import Library
from opcheck.spec.device_profile import DeviceProfile, profiles
from opcheck.spec.dtypes import declared

Load = Callable[[str], Library]
Device = Callable[..., DeviceProfile]

SPEC = """
[defaults]
samples = [{ args = [{ shape = [2] }] }]
[[operator]]
name = "torch.sin"
variants = ["method", "inplace"]
[[operator]]
name = "torch.cos"
dtypes = "real"
[[operator]]
name = "torch.exp"
devices = ["cpu"]
"""


def counted(library: Library, device: DeviceProfile, **selection: tuple[str, ...]) -> dict[str, int]:
    found = left_out(library, [device], Selection(**selection))
    assert {rule.device for rule in found} <= {device.name}
    return {rule.reason: count for rule, count in found.items()}


def cases(library: Library, device: DeviceProfile, operator: str, **selection: tuple[str, ...]) -> list[Case]:
    return plan(library, [device], Selection(operators=(operator,), **selection))


def test_without_rules_nothing_is_left_out(loaded: Load) -> None:
    assert counted(loaded(SPEC), profiles()["cpu"]) == {}


@pytest.mark.parametrize(("rule", "reason"), [('deny = ["torch.sin"]', "deny"), ('allow = ["*.cos"]', "allow")])
def test_an_operator_that_is_kept_off_counts_with_all_its_cases(
    loaded: Load, device: Device, rule: str, reason: str
) -> None:
    library, free = loaded(SPEC), device()
    kept_off = len(cases(library, free, "torch.sin"))
    assert kept_off > 50
    assert counted(library, device(rule), operators=("torch.sin", "torch.cos")) == {reason: kept_off}


def test_devices_of_a_spec_are_a_rule_as_well(loaded: Load, device: Device) -> None:
    library = loaded(SPEC)
    free = len(cases(loaded(SPEC.replace('devices = ["cpu"]', "")), device(), "torch.exp"))
    assert counted(library, device()) == {"devices": free}


def test_an_operator_that_the_installed_torch_does_not_have_counts_with_all_its_cases(
    loaded: Load, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opcheck.spec.versions.torch_version", lambda: "2.13.0+cpu")
    later = SPEC.replace('name = "torch.sin"', 'name = "torch.sin"\ntorch = ">=99"')
    earlier = SPEC.replace('name = "torch.sin"', 'name = "torch.sin"\ntorch = "<99"')
    free = len(cases(loaded(SPEC), device(), "torch.sin"))
    assert counted(loaded(later), device(), operators=("torch.sin",)) == {"torch": free}
    assert cases(loaded(later), device(), "torch.sin") == []
    assert len(cases(loaded(earlier), device(), "torch.sin")) == free


def test_only_selected_cases_count(loaded: Load, device: Device) -> None:
    library, npu = loaded(SPEC), device('deny = ["torch.sin"]')
    assert counted(library, npu, checks=("backward",), dtypes=("float64",), operators=("torch.sin",)) == {"deny": 3}
    assert counted(library, npu, operators=("torch.cos",)) == {}


class TestLackedDtypes:
    def test_a_case_that_runs_in_another_dtype_instead_is_not_left_out(self, loaded: Load, device: Device) -> None:
        library, npu = loaded(SPEC), device('lacks = ["float64"]')
        assert counted(library, npu, operators=("torch.cos",), checks=("backward",)) == {}
        assert [case.dtype for case in cases(library, npu, "torch.cos", checks=("backward",))] == ["float32"]

    def test_the_plan_is_smaller_by_what_is_left_out(self, loaded: Load, device: Device) -> None:
        library = loaded(SPEC)
        for lacks in ('["float64"]', '["double"]', '["complex"]', '["half", "double"]', '["floating"]'):
            npu = device(f"lacks = {lacks}")
            found = counted(library, npu, operators=("torch.sin", "torch.cos"))
            lost = len(plan(library, [device()])) - len(plan(library, [npu]))
            assert sum(found.values()) == lost > 0
            assert {reason.partition(" ")[0] for reason in found} == {"lacks"}

    def test_whoever_selects_the_dtype_is_told_of_all_cases(self, loaded: Load, device: Device) -> None:
        npu = device('lacks = ["float64"]')
        selected = {"operators": ("torch.cos",), "checks": ("backward",), "dtypes": ("float64",)}
        assert counted(loaded(SPEC), npu, **selected) == {"lacks float64": 1}

    def test_an_operator_that_is_denied_counts_once(self, loaded: Load, device: Device) -> None:
        npu = device('lacks = ["double"]\ndeny = ["torch.*"]')
        count = sum(len(cases(loaded(SPEC), device('lacks = ["double"]'), name)) for name in ("torch.sin", "torch.cos"))
        assert counted(loaded(SPEC), npu, operators=("torch.sin", "torch.cos")) == {"deny": count}


def test_a_dtype_that_exists_elsewhere_only_is_left_out(loaded: Load, device: Device) -> None:
    with declared(("float8_e8m0fnu",)):
        library = loaded(SPEC.replace('"real"', '["real", "float8_e8m0fnu"]'))
    npu = device('dtypes = ["float8_e8m0fnu"]')
    dtypes = {case.dtype for case in cases(library, npu, "torch.cos")}
    assert "float8_e8m0fnu" in dtypes
    cpu = profiles()["cpu"]
    assert {case.dtype for case in cases(library, cpu, "torch.cos")} == dtypes - {"float8_e8m0fnu"}
    assert counted(library, cpu) == {"lacks float8_e8m0fnu": 1}
    assert counted(library, npu, operators=("torch.cos",)) == {}
