"""Whether a device may be present, as far as can be told without torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.devices.presence import chosen_devices, may_be_present
from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile, Hint

HERE = Settings()


def hinted(**signs: object) -> bool:
    return may_be_present(DeviceProfile(name="one", hint=Hint.model_validate(signs)), HERE)


def test_a_hint_holds_if_any_of_its_signs_is_there(tmp_path: Path) -> None:
    assert hinted(always=True)
    assert hinted(paths=(str(tmp_path / "nothing"), str(tmp_path)))
    assert hinted(module="pytest")
    assert not hinted(paths=(str(tmp_path / "nothing"),), module="no_such_module.at_all")


@pytest.mark.parametrize("module", ["", ".", "no_such_module"])
def test_a_hint_at_no_module_is_no_sign(module: str) -> None:
    assert not hinted(module=module, paths=("x" * 5000,))


def test_a_profile_without_a_hint_may_be_present_if_its_module_is_installed() -> None:
    assert may_be_present(DeviceProfile(name="one", module="tomli"), HERE)
    assert not may_be_present(DeviceProfile(name="one", module="no_such_module"), HERE)
    assert may_be_present(DeviceProfile(name="one", hint=Hint(always=True)), HERE)


def test_a_profile_without_signs_to_look_for_may_be_present() -> None:
    assert may_be_present(DeviceProfile(name="one"), HERE)


def test_default_devices_are_those_that_may_be_present(tmp_path: Path) -> None:
    absent, present = ('[device]\nname = "npu"\nhint = { paths = ["/no/such"] }\n', '[device]\nname = "ipu"\n')
    for name, text in (("npu.toml", absent), ("ipu.toml", present)):
        (tmp_path / name).write_text(text)
    settings = Settings.find(tmp_path, [tmp_path / "npu.toml", tmp_path / "ipu.toml"])
    names = [profile.name for profile in chosen_devices((), settings)]
    assert names[0] == "cpu"
    assert names[-1] == "ipu"
    assert "npu" not in names
    assert [profile.name for profile in chosen_devices(["npu"], settings)] == ["npu"]
