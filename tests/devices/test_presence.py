"""Whether a device may be present, as far as can be told without torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.devices.presence import default_devices, holds, may_be_present
from opcheck.spec.device import DeviceProfile, Hint, profiles


def test_a_hint_holds_if_any_of_its_signs_is_there(tmp_path: Path) -> None:
    assert holds(Hint(always=True))
    assert holds(Hint(paths=(str(tmp_path / "nothing"), str(tmp_path))))
    assert holds(Hint(module="pytest"))
    assert not holds(Hint())
    assert not holds(Hint(paths=(str(tmp_path / "nothing"),), module="no_such_module.at_all"))


@pytest.mark.parametrize("module", ["", ".", "no_such_module"])
def test_a_hint_at_no_module_is_no_sign(module: str) -> None:
    assert not holds(Hint(module=module, paths=("x" * 5000,)))


def test_a_profile_without_a_hint_may_be_present_if_its_module_is_installed() -> None:
    assert may_be_present(DeviceProfile(name="one", module="tomli"))
    assert not may_be_present(DeviceProfile(name="one", module="no_such_module"))
    assert not may_be_present(DeviceProfile(name="one"))
    assert may_be_present(DeviceProfile(name="one", hint=Hint(always=True)))


def test_default_devices_are_those_that_may_be_present() -> None:
    absent = DeviceProfile(name="npu", hint=Hint(paths=("/no/such/device",)))
    present = DeviceProfile(name="xpu", hint=Hint(always=True))
    assert [profile.name for profile in default_devices([profiles()["cpu"], absent, present])] == ["cpu", "xpu"]
