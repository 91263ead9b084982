"""Device profiles: the built-in ones, those of a project, and their mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.spec import SpecError
from opcheck.spec.device import DeviceProfile, Hint, profiles, read_profile

Write = Callable[..., Path]


def lines_of(*folders: Path) -> list[str]:
    with pytest.raises(SpecError) as caught:
        profiles(folders)
    return str(caught.value).splitlines()


def test_cpu_and_cuda_are_built_in() -> None:
    found = profiles()
    assert list(found)[:2] == ["cpu", "cuda"]
    assert found["cpu"].hint.always
    assert found["cuda"].device_string == "cuda"


def test_a_project_adds_devices_and_replaces_built_in_ones(write: Write, tmp_path: Path) -> None:
    write('[device]\nname = "npu"\ntorch = "privateuseone:0"\nlacks = ["double"]\n', "devices/npu.toml")
    write('[device]\nname = "cuda"\nabout = "ours"\n', "devices/other.toml")
    found = profiles((tmp_path / "devices",))
    assert found["npu"].device_string == "privateuseone:0"
    assert found["npu"].lacks == ("double",)
    assert found["cuda"].about == "ours"


@pytest.mark.parametrize("name", ["_npu", "timeout", "not", "x" * 101])
def test_a_name_can_be_a_mark_in_pytest(write: Write, tmp_path: Path, name: str) -> None:
    write(f'[device]\nname = "{name}"\n', "devices/npu.toml")
    (line,) = lines_of(tmp_path / "devices")
    assert line.startswith("devices/npu.toml:2:8: ")


def test_the_mistakes_of_all_profiles_come_at_once(write: Write, tmp_path: Path) -> None:
    write('[device]\nname = "a b"\nlacks = ["flot64"]\n', "devices/a.toml")
    write('[devise]\nname = "b"\n', "devices/b.toml")
    write("[device\n", "devices/c.toml")
    write('[device]\n[[device.expect]]\nwhen = { check = "vmap" }\noutcome = "fail"\n', "devices/d.toml")
    assert lines_of(tmp_path / "devices", tmp_path / "nowhere") == [
        'devices/a.toml:2:8: "a b" cannot be part of a test id; expected letters, digits and any of _ . + = -',
        'devices/a.toml:3:10: unknown dtype "flot64"; expected a dtype or a group (all, floating, real, complex, half, '
        'single, double, integral, signed, bool), with a leading - to remove it; did you mean "float64"?',
        'devices/b.toml:1:2: unknown key "devise"; expected device; did you mean "device"?',
        "devices/c.toml:1:8: invalid TOML: Expected ']' at the end of a table declaration",
        'devices/d.toml:1:1: missing key "name"; expected name in case ids and for --device',
        'devices/d.toml:2:1: missing key "reason"; expected the reason, ideally a link',
        "nowhere:1:1: no such folder; expected a folder of device profiles",
    ]


def test_a_profile_knows_where_its_keys_stand(write: Write) -> None:
    profile = read_profile(write('[device]\nname = "npu"\ntolerance.atol = 1\n', "npu.toml"))
    assert str(profile.problem(("tolerance", "atol"), "wrong")) == "npu.toml:3:18: wrong"


def test_without_a_hint_the_module_is_the_sign() -> None:
    assert DeviceProfile(name="one", module="tomli").signs == Hint(module="tomli")
    assert DeviceProfile(name="one", module="tomli", hint=Hint(always=True)).signs == Hint(always=True)
    assert DeviceProfile(name="one").signs == Hint()
