"""Device profiles: the built-in ones, those of a project, and their mistakes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opcheck.spec import SpecError
from opcheck.spec.claims import Tolerances
from opcheck.spec.device_profile import DeviceProfile, Hint, profiles, read_installed, read_profile
from opcheck.spec.document import shown
from opcheck.spec.dtypes import expand

Write = Callable[..., Path]
Install = Callable[..., Path]


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


def test_a_file_that_has_changed_is_read_again(write: Write, tmp_path: Path) -> None:
    for string in ("npu:0", "npu:1"):
        write(f'[device]\nname = "npu"\ntorch = "{string}"\n', "devices/npu.toml")
        assert profiles((tmp_path / "devices",))["npu"].torch == string


def test_the_mistakes_of_all_profiles_come_at_once(write: Write, tmp_path: Path) -> None:
    write('[device]\nname = "a b"\nlacks = ["flot64"]\n', "devices/a.toml")
    write('[devise]\nname = "b"\n', "devices/b.toml")
    write("[device\n", "devices/c.toml")
    write('[device]\n[[device.expect]]\nwhen = { check = "vmap" }\noutcome = "fail"\n', "devices/d.toml")
    assert lines_of(tmp_path / "devices") == [
        'devices/a.toml:2:8: "a b" cannot be part of a test id; expected letters, digits and any of _ . + = -',
        'devices/a.toml:3:10: unknown dtype "flot64"; expected a dtype or a group (all, floating, real, complex, half, '
        'single, double, integral, signed, bool), with a leading - to remove it; did you mean "float64"?',
        'devices/b.toml:1:2: unknown key "devise"; expected device; did you mean "device"?',
        "devices/c.toml:1:8: invalid TOML: Expected ']' at the end of a table declaration",
        'devices/d.toml:1:1: missing key "name"; expected name in case ids and for --device',
        'devices/d.toml:2:1: missing key "reason"; expected the reason, ideally a link',
    ]


def test_a_profile_knows_where_its_keys_stand(write: Write) -> None:
    profile = read_profile(write('[device]\nname = "npu"\ntolerance.atol = 1\n', "npu.toml"))
    assert str(profile.problem(("tolerance", "atol"), "wrong")) == "npu.toml:3:18: wrong"


def test_without_a_hint_the_module_is_the_sign() -> None:
    assert DeviceProfile(name="one", module="tomli").signs == Hint(module="tomli")
    assert DeviceProfile(name="one", module="tomli", hint=Hint(always=True)).signs == Hint(always=True)
    assert DeviceProfile(name="one").signs == Hint()


def written(write: Write, **files: str) -> dict[str, DeviceProfile]:
    for name, text in files.items():
        write(f'[device]\nname = "{name}"\n{text}\n', f"devices/{name}.toml")
    return profiles((Path("devices").resolve(),))


class TestInheritance:
    def test_keys_replace_lists_are_joined_and_tolerances_merged(self, write: Write) -> None:
        expect = '[[device.expect]]\nwhen = {{ check = "{}" }}\noutcome = "fail"\nreason = "known"\n'
        found = written(
            write,
            base='torch = "privateuseone"\nabout = "the first"\nmodule = "npu_backend"\nseed = "npu:seed"\n'
            'lacks = ["double"]\ndeny = ["torch.sin"]\nallow = ["torch.*"]\ndtypes = ["float8_e8m0fnu"]\n'
            "tolerance = { rtol = 0.1, dtype.float32 = { atol = 1, rtol = 2 }, check.vmap.atol = 3 }\n"
            + expect.format("vmap"),
            npu='inherits = "base"\nabout = "the second"\nlacks = ["-float64", "half"]\ndeny = ["torch.cos"]\n'
            'allow = ["mine.*"]\nsynchronize = "npu:wait"\n'
            "tolerance = { atol = 0.2, dtype.float32.rtol = 4, dtype.float16.rtol = 5 }\n" + expect.format("dtypes"),
        )
        npu = found["npu"]
        assert (npu.name, npu.device_string, npu.about, npu.module) == (
            "npu",
            "privateuseone",
            "the second",
            "npu_backend",
        )
        assert (npu.seed, npu.synchronize, npu.dtypes) == ("npu:seed", "npu:wait", ("float8_e8m0fnu",))
        assert expand(npu.lacks) == ("float16", "bfloat16", "complex128")
        assert (npu.deny, npu.allow) == (("torch.sin", "torch.cos"), ("mine.*",))
        assert [expect.when.check for expect in npu.expect] == ["vmap", "dtypes"]
        assert npu.tolerance == Tolerances.model_validate(
            {
                "atol": 0.2,
                "rtol": 0.1,
                "dtype": {"float32": {"atol": 1, "rtol": 4}, "float16": {"rtol": 5}},
                "check": {"vmap": {"atol": 3}},
            }
        )
        assert found["base"].deny == ("torch.sin",)

    def test_a_device_string_is_inherited_even_if_it_is_the_name(self, write: Write) -> None:
        assert written(write, tf32='inherits = "cuda"')["tf32"].device_string == "cuda"

    def test_the_hint_goes_with_the_module(self, write: Write) -> None:
        found = written(write, one='inherits = "cuda"', two='inherits = "cuda"\nmodule = "tomli"')
        assert found["one"].signs == profiles()["cuda"].hint
        assert found["two"].signs == Hint(module="tomli")

    def test_a_profile_may_extend_the_one_that_it_replaces(self, write: Write) -> None:
        found = written(
            write, cuda='inherits = "cuda"\nlacks = ["half"]', rtx='inherits = "cuda"\ndeny = ["torch.sin"]'
        )
        assert found["cuda"].hint == profiles()["cuda"].hint
        assert found["rtx"].lacks == ("half",)

    def test_what_inherits_knows_its_own_place(self, write: Write) -> None:
        npu = written(write, npu='inherits = "mps"\ntolerance.atol = 1')["npu"]
        assert str(npu.problem(("tolerance", "atol"), "wrong")) == "devices/npu.toml:4:18: wrong"
        assert (npu.file, npu.written.lacks, npu.lacks) == ("devices/npu.toml", (), ("double",))

    def test_parents_that_do_not_exist_are_refused(self, write: Write, tmp_path: Path) -> None:
        write('[device]\nname = "npu"\ninherits = "cudaa"\n', "devices/a.toml")
        write('[device]\nname = "own"\ninherits = "own"\n', "devices/b.toml")
        known = "expected one of cpu, cuda, mps, xpu"
        assert lines_of(tmp_path / "devices") == [
            f'devices/a.toml:3:12: unknown device "cudaa"; {known}, own; did you mean "cuda"?',
            f'devices/b.toml:3:12: unknown device "own"; {known}, npu',
        ]

    def test_circles_are_refused(self, write: Write, tmp_path: Path) -> None:
        for name, parent in ("ab", "bc", "cb"):
            write(f'[device]\nname = "{name}"\ninherits = "{parent}"\n', f"devices/{name}.toml")
        circle = "expected a profile that inherits from none of these"
        assert lines_of(tmp_path / "devices") == [
            f"devices/b.toml:3:12: profiles inherit in a circle: c inherits b inherits c; {circle}",
            f"devices/c.toml:3:12: profiles inherit in a circle: b inherits c inherits b; {circle}",
        ]


def test_files_come_after_folders(write: Write, tmp_path: Path) -> None:
    write('[device]\nname = "npu"\nlacks = ["half"]\n', "devices/npu.toml")
    file = write('[device]\nname = "npu"\ninherits = "npu"\nlacks = ["double"]\n', "other/mine.toml")
    found = profiles((tmp_path / "devices",), (file,))["npu"]
    assert (found.lacks, found.file) == (("half", "double"), "other/mine.toml")


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        (
            "float16",
            '"float16" is a standard torch dtype; expected a dtype that only this device has; to say that a device '
            "lacks a standard dtype, list it under lacks",
        ),
        (
            "half",
            '"half" is a group of standard dtypes; expected a dtype that only this device has; to say that a device '
            "lacks a standard dtype, list it under lacks",
        ),
        ("-x", '"-x" is not the name of a dtype; expected its name in torch, such as float8_e8m0fnu'),
    ],
)
def test_a_dtype_of_its_own_is_a_new_one(write: Write, tmp_path: Path, name: str, mistake: str) -> None:
    write(f'[device]\nname = "npu"\ndtypes = ["{name}"]\n', "devices/npu.toml")
    assert lines_of(tmp_path / "devices") == [f"devices/npu.toml:3:11: {mistake}"]


def test_a_device_has_the_dtypes_that_it_does_not_lack() -> None:
    device = DeviceProfile(name="npu", lacks=("double",), dtypes=("float8_e8m0fnu",))
    assert [
        name for name in ("float32", "float64", "complex128", "float8_e8m0fnu", "float8_x") if device.has(name)
    ] == [
        "float32",
        "float8_e8m0fnu",
    ]


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
        read_installed.cache_clear()
        return tmp_path / "opvendor"

    yield make
    read_installed.cache_clear()


@pytest.mark.parametrize("value", ["opvendor", "opvendor.devices", "opvendor.some.devices"])
def test_the_folder_of_an_entry_point_is_found_and_nothing_imported(install: Install, value: str) -> None:
    package = install(value, "devices", "some", "some/devices")
    folder = package.joinpath(*value.split(".")[1:])
    (folder / "npu.toml").write_text('[device]\nname = "npu"\ninherits = "cuda"\n')
    (folder / "README.md").write_text("not a profile")
    npu = profiles()["npu"]
    assert (npu.device_string, npu.file) == ("cuda", shown(folder / "npu.toml"))
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
        f'entry point npu of opvendor:1:1: opcheck.devices: no folder "{value}" in an installed package; '
        "expected such as mypackage.devices"
    )


def test_mistakes_in_a_profile_of_a_package_have_their_place(install: Install) -> None:
    (install("opvendor") / "npu.toml").write_text('[device]\nname = "npu"\nlack = []\n')
    with pytest.raises(SpecError, match=r'opvendor/npu\.toml:3:1: unknown key "lack"'):
        profiles()
