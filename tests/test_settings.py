"""`[tool.opcheck]` of pyproject.toml: where it is found, and its mistakes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.settings import Settings
from opcheck.spec import SpecError

Write = Callable[..., Path]


def lines_of(path: Path) -> list[str]:
    with pytest.raises(SpecError) as caught:
        Settings.read(path)
    return str(caught.value).splitlines()


def test_every_setting_has_a_default() -> None:
    settings = Settings()
    assert settings.modules == ("torch",)
    assert (settings.max_elements, settings.max_samples) == (4096, 1000)
    assert settings.timeout is None


def test_paths_are_relative_to_the_file(write: Write, tmp_path: Path) -> None:
    write('[tool.opcheck]\nspecs = ["a", "b/c.toml"]\ndevices = ["d"]\n', "project/pyproject.toml")
    (tmp_path / "project/deep/deeper").mkdir(parents=True)
    settings = Settings.find(tmp_path / "project/deep/deeper")
    root = tmp_path.resolve() / "project"
    assert settings.root == root
    assert settings.spec_paths() == [root / "a", root / "b/c.toml"]
    assert settings.device_folders() == (root / "d",)


def test_a_project_that_names_no_specs_has_those_in_its_folder_of_this_name(write: Write, tmp_path: Path) -> None:
    write("[tool.opcheck]\n", "project/pyproject.toml")
    settings = Settings.find(tmp_path / "project")
    assert settings.spec_paths() == []
    (tmp_path / "project/specs").mkdir()
    assert settings.spec_paths() == [tmp_path.resolve() / "project" / "specs"]


def test_a_project_that_says_nothing_still_has_its_root(write: Write, tmp_path: Path) -> None:
    write('[project]\nname = "x"\n', "project/pyproject.toml")
    (tmp_path / "project/deep").mkdir()
    settings = Settings.find(tmp_path / "project/deep")
    assert settings.model_dump() == Settings().model_dump()
    assert settings.root == tmp_path.resolve() / "project"


@pytest.mark.parametrize("folders", ["'src lib'", "['src', 'lib']", "[]"])
def test_modules_are_found_where_pytest_finds_them(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: str
) -> None:
    monkeypatch.setattr("sys.path", ["elsewhere"])
    path = write(f"[tool.opcheck]\n[tool.pytest.ini_options]\npythonpath = {folders}\n", "pyproject.toml")
    for _ in range(2):
        Settings.read(path).put_on_path()
    own = [str(tmp_path / "src"), str(tmp_path / "lib")] if folders != "[]" else []
    assert sys.path == ["elsewhere", str(tmp_path), *own]


def test_without_a_project_the_current_folder_is_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings().root == tmp_path


def test_mistakes_come_all_at_once_with_their_places(write: Write) -> None:
    path = write(
        """
        [tool.black]
        line-length = 120

        [tool.opcheck]
        module = ["mylib"]
        max_samples = 0
        timeout = "soon"
        specs = "specs"
        engine = "toch"
        """,
        "pyproject.toml",
    )
    assert lines_of(path) == [
        'pyproject.toml:5:1: unknown key "module"; expected one of specs, modules, devices, plugins, seed, '
        "max_elements, max_outputs, max_samples, engine, jacobian, batch_memory, derive, timeout, memory, matrix; "
        'did you mean "modules"?',
        "pyproject.toml:6:15: max_samples is out of range: 0; expected a number of at least 1",
        'pyproject.toml:7:11: wrong type for timeout: a string ("soon"); expected a number',
        'pyproject.toml:8:9: wrong type for specs: a string ("specs"); expected an array',
        'pyproject.toml:9:10: unknown engine "toch"; expected one of batched, torch; did you mean "torch"?',
    ]


@pytest.mark.parametrize("seconds", ["inf", "1e30"])
def test_a_time_limit_is_one_that_a_timer_can_count(write: Write, seconds: str) -> None:
    (line,) = lines_of(write(f"[tool.opcheck]\ntimeout = {seconds}\n", "pyproject.toml"))
    assert line.startswith("pyproject.toml:2:11: timeout is out of range: ")
    assert line.endswith("; expected a number of at most 1e+09")


def test_dotted_keys_have_places_too(write: Write) -> None:
    assert lines_of(write("[tool]\nopcheck.max_element = 3\n", "pyproject.toml")) == [
        'pyproject.toml:2:9: unknown key "max_element"; expected one of specs, modules, devices, plugins, '
        "seed, max_elements, max_outputs, max_samples, engine, jacobian, batch_memory, derive, timeout, memory, "
        'matrix; did you mean "max_elements"?'
    ]


def test_a_path_that_does_not_exist_has_its_place_and_the_nearest_one(write: Write) -> None:
    write("", "own/specs/sin.toml")
    path = write("[tool.opcheck]\nspecs = ['own/spec']\ndevices = ['own/specs/sin.toml', 'own']\n", "pyproject.toml")
    settings = Settings.read(path)
    with pytest.raises(SpecError) as caught:
        settings.required_specs()
    expected = 'expected a TOML file, or a folder of them; did you mean "own/specs"?'
    assert str(caught.value) == f'pyproject.toml:2:10: no such file or folder: "own/spec"; {expected}'
    with pytest.raises(SpecError) as caught:
        _ = settings.profiles
    expected = "expected a folder of device profiles"
    assert str(caught.value) == f'pyproject.toml:3:12: no such folder: "own/specs/sin.toml"; {expected}'


def test_a_table_is_needed(write: Write) -> None:
    assert lines_of(write("[tool]\nopcheck = 3\n", "pyproject.toml")) == [
        "pyproject.toml:2:11: wrong type for the table: an integer (3); expected a table"
    ]


def test_a_broken_project_file_is_reported_only_where_it_speaks_of_opcheck(write: Write) -> None:
    assert lines_of(write("[tool.opcheck\n", "pyproject.toml")) == [
        "pyproject.toml:1:14: invalid TOML: Expected ']' at the end of a table declaration"
    ]
    assert Settings.read(write("[tool.other\n", "pyproject.toml")).specs == ()


def test_a_tool_table_that_is_none_is_somebody_elses_mistake(write: Write) -> None:
    assert Settings.read(write('tool = "opcheck"\n', "pyproject.toml")).specs == ()
