"""What `validate` remembers: a second answer comes from the note, and any change makes the note worthless."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.cli.unchanged import FOLDER, recall, remember


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "a.toml").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    remember(["specs"], "fine", [tmp_path / "specs"])
    return tmp_path


def test_the_same_request_has_the_same_answer(folder):
    assert recall(["specs"]) == "fine"
    assert recall(["others"]) is None


def test_each_folder_has_its_own_requests(folder, monkeypatch):
    monkeypatch.chdir(folder / "specs")
    assert recall(["specs"]) is None


@pytest.mark.parametrize("change", ["edited", "touched", "added", "removed", "settings", "renamed"])
def test_any_change_makes_it_worthless(folder, change):
    file = folder / "specs" / "a.toml"
    if change == "edited":
        stamp = file.stat().st_mtime_ns
        file.write_text("x = 10\n")
        os.utime(file, ns=(stamp, stamp))
    elif change == "touched":
        os.utime(file, ns=(1, 1))
    elif change == "added":
        (folder / "specs" / "deep").mkdir()
        (folder / "specs" / "deep" / "b.toml").write_text("")
    elif change == "removed":
        file.unlink()
    elif change == "settings":
        (folder / "pyproject.toml").write_text("[tool.opcheck]\n")
    else:
        file.rename(folder / "specs" / "b.toml")
    assert recall(["specs"]) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', '["x"]'])
def test_damaged_notes_are_no_notes_and_are_replaced(folder, text):
    note = next((folder / FOLDER).glob("*.json"))
    note.write_text(text)
    assert recall(["specs"]) is None
    remember(["specs"], "fine", [folder / "specs"])
    assert recall(["specs"]) == "fine"


def test_nothing_is_written_outside_projects(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    remember(["specs"], "fine", [tmp_path])
    assert list(tmp_path.iterdir()) == []


def test_a_second_validation_loads_neither_specs_nor_pydantic(project):
    command = [sys.executable, "-X", "importtime", "-m", "opcheck", "validate", "specs"]
    first, second = (subprocess.run(command, cwd=project.folder, capture_output=True, text=True) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert first.stdout == second.stdout
    assert "pydantic" in first.stderr
    assert "pydantic" not in second.stderr


def test_every_command_that_loads_specs_takes_note(project, cli):
    assert cli("list", "specs").code == 0
    assert recall(["specs/"]) == cli("validate", "specs").out.strip()


def test_a_lone_file_is_not_taken_note_of(project, cli):
    assert cli("validate", "specs/good.toml").code == 0
    assert recall(["specs/good.toml"]) is None


def test_a_mistake_is_never_hidden_by_a_note(project, cli):
    assert cli("validate", "specs").code == 0
    file = project.folder / "specs" / "good.toml"
    file.write_text(file.read_text() + '\n[[operator]]\nname = "torch.sin"\nsampels = 1\n')
    run = cli("validate", "specs")
    assert run.code == 2
    assert "sampels" in run.err


def test_names_that_were_found_are_not_looked_up_again(project, cli):
    wanted = ["specs", "--operator=demo.double", "--check=variants"]
    assert cli("run", *wanted).code == 0
    assert recall(["names", "specs", "demo.double"]) == "found"
    assert recall(["names", "specs"]) is None
    command = [sys.executable, "-X", "importtime", "-m", "opcheck", "run", *wanted, "-n", "1"]
    again = subprocess.run(command, cwd=project.folder, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "demo" not in {line.split("|")[-1].strip() for line in again.stderr.splitlines()}


def test_a_change_of_the_operators_own_file_has_them_looked_up_again(project, cli):
    wanted = ["run", "specs", "--operator=demo.double", "--check=variants"]
    assert cli(*wanted).code == 0
    file = project.folder / "demo.py"
    file.write_text(file.read_text().replace("def double(", "def doubled("))
    assert recall(["names", "specs", "demo.double"]) is None
    run = cli(*wanted)
    assert run.code == 2
    assert 'demo has no attribute "double"' in run.err


def test_names_of_a_lone_file_are_looked_up_each_time(project, cli):
    assert cli("run", "specs/good.toml", "--operator=demo.double", "--check=variants").code == 0
    assert recall(["names", "specs/good.toml", "demo.double"]) is None
