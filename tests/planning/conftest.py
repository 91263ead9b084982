"""Small libraries and devices to plan for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from opcheck.planning import Case, Selection, plan
from opcheck.spec import Library, Loader
from opcheck.spec.device_profile import DeviceProfile, profiles, read_profile

Device = Callable[..., DeviceProfile]
Plan = Callable[..., list[Case]]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Library]:
    """Load the text of one spec file, which is spec.toml in the current folder."""
    monkeypatch.chdir(tmp_path)

    def load_text(text: str) -> Library:
        (tmp_path / "spec.toml").write_text(dedent(text).lstrip("\n"))
        loader = Loader()  # not `load`, which would refuse the mistakes that tests of audits are about
        loader.add(Path("spec.toml"))
        library = loader.library()
        assert not loader.problems
        return library

    return load_text


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Make a device from further keys of its profile, which is NAME.toml in the current folder."""
    monkeypatch.chdir(tmp_path)

    def make(text: str = "", name: str = "npu") -> DeviceProfile:
        path = tmp_path / f"{name}.toml"
        path.write_text(f'[device]\nname = "{name}"\n{text}')
        return read_profile(path)

    return make


@pytest.fixture
def planned(loaded: Callable[[str], Library]) -> Plan:
    """Return the cases of the text of one spec file; default: on the CPU."""

    def plan_text(text: str, *devices: DeviceProfile, **selection: tuple[str, ...]) -> list[Case]:
        return plan(loaded(text), devices or [profiles()["cpu"]], Selection(**selection))

    return plan_text
