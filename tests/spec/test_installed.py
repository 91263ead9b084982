"""Profiles that installed packages bring."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opcheck.spec import SpecError
from opcheck.spec.device import profiles

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package `opvendor`, which cannot be imported, with an entry point for its profiles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def make(value: str, *folders: str) -> Path:
        info = tmp_path / "opvendor-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: opvendor\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[opcheck.devices]\nnpu = {value}\n")
        for folder in ("", *folders):
            (tmp_path / "opvendor" / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / "opvendor" / folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
        profiles.cache_clear()
        return tmp_path / "opvendor"

    yield make
    profiles.cache_clear()


@pytest.mark.parametrize("value", ["opvendor", "opvendor.devices", "opvendor.some.devices"])
def test_the_folder_of_an_entry_point_is_found_and_nothing_imported(install: Install, value: str) -> None:
    package = install(value, "devices", "some", "some/devices")
    folder = package.joinpath(*value.split(".")[1:])
    (folder / "npu.toml").write_text('[device]\nname = "npu"\ninherits = "cuda"\n')
    (folder / "README.md").write_text("not a profile")
    npu = profiles()["npu"]
    assert (npu.device_string, npu.path) == ("cuda", folder / "npu.toml")
    assert not [name for name in sys.modules if name.startswith("opvendor")]


def test_a_project_replaces_what_a_package_brings(install: Install, tmp_path: Path) -> None:
    (install("opvendor") / "npu.toml").write_text('[device]\nname = "npu"\nlacks = ["double"]\n')
    own = tmp_path / "devices"
    own.mkdir()
    (own / "npu.toml").write_text('[device]\nname = "npu"\ninherits = "npu"\nlacks = ["half"]\n')
    assert profiles((own,))["npu"].lacks == ("double", "half")


@pytest.mark.parametrize("value", ["opvendor.devices", "no_such_opvendor", "opvendor_module"])
def test_a_folder_that_is_not_there_is_told(install: Install, tmp_path: Path, value: str) -> None:
    install(value)
    (tmp_path / "opvendor_module.py").write_text("")
    with pytest.raises(SpecError) as caught:
        profiles()
    assert str(caught.value) == (
        f'entry point npu of opvendor:1:1: opcheck.devices: "{value}" is no folder of an installed package; '
        "expected such as mypackage.devices"
    )


def test_mistakes_in_a_profile_of_a_package_have_their_place(install: Install) -> None:
    (install("opvendor") / "npu.toml").write_text('[device]\nname = "npu"\nlack = []\n')
    with pytest.raises(SpecError, match=r'opvendor/npu\.toml:3:1: unknown key "lack"'):
        profiles()
