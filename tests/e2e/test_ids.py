"""Ids that pytest and opcheck print can be pasted back, wherever a project lies and whatever its folders are called."""

from __future__ import annotations

import os
import re
import shlex
import shutil

import pytest
from demo_project import written

BACKWARD = ("-k", "backward", "-p", "no:cacheprovider")
LINE = re.compile(r"(.*::backward\[cpu-float64\]) (PASSED|FAILED)")

FOLDERS = ["a[1]", "b::c", "d.toml::e", "-m", " f $HOME'\",\\é{}*?"]


@pytest.fixture
def verbose(plain_pytest):
    """Return a function that gives the ids and words that `pytest -v` begins its lines with."""

    def run(*arguments):
        done = plain_pytest("-v", *BACKWARD, *arguments)
        assert done.code in (0, 1), done.out + done.err
        return {found[1]: found[2] for found in map(LINE.match, done.out.splitlines()) if found}

    return run


def pasted_back(verbose, shown, most=3):
    """Tell whether ids that were shown, pasted back, run that case and no other."""
    names = list(shown)[::-1][:most]
    return {name: verbose(name) for name in names} == {name: {name: shown[name]} for name in names}


EXPECTED = {
    "specs/bad.toml::demo.wrong::backward[cpu-float64]": "FAILED",
    "specs/good.toml::demo.double::backward[cpu-float64]": "PASSED",
    "specs/good.toml::demo.double[inplace]::backward[cpu-float64]": "PASSED",
}


class TestPlainPytest:
    @pytest.mark.parametrize("arguments", [(), ("specs",), ("specs/bad.toml", "specs/good.toml")])
    def test_each_line_begins_with_an_id_that_can_be_pasted_back(self, verbose, arguments):
        shown = verbose(*arguments)
        assert shown == EXPECTED
        assert pasted_back(verbose, shown)

    def test_also_where_the_folder_is_given_by_its_absolute_path(self, project, verbose):
        shown = verbose(str(project.folder / "specs"))
        assert shown == EXPECTED
        assert pasted_back(verbose, shown)
        name = str(project.folder / "specs/bad.toml::demo.wrong::backward[cpu-float64]")
        assert verbose(name) == {"specs/bad.toml::demo.wrong::backward[cpu-float64]": "FAILED"}

    def test_also_where_pytest_is_told_by_testpaths(self, project, verbose):
        project.write("pytest.ini", "[pytest]\ntestpaths = specs\n")
        shown = verbose()
        assert shown == EXPECTED
        assert pasted_back(verbose, shown, most=1)

    @pytest.mark.parametrize("given", ["..", "../specs", "{}/specs"])
    def test_also_from_a_folder_inside_the_project(self, project, verbose, monkeypatch, given):
        project.write("pytest.ini", "[pytest]\n")
        (project.folder / "inner").mkdir()
        monkeypatch.chdir(project.folder / "inner")
        shown = verbose(given.format(project.folder))
        assert shown == {f"../{name}": word for name, word in EXPECTED.items()}
        assert pasted_back(verbose, shown, most=1)

    def test_also_for_specs_outside_the_project(self, project, verbose, monkeypatch, tmp_path_factory):
        project.write("pytest.ini", "[pytest]\n")
        (project.folder / "inner").mkdir()
        outside = tmp_path_factory.mktemp("outside")
        shutil.copytree(project.folder / "specs", outside / "deep/specs")
        for here in (project.folder, project.folder / "inner"):
            monkeypatch.chdir(here)
            options = ("-c", str(project.folder / "pytest.ini"))
            shown = verbose(*options, str(outside / "deep"))
            place = os.path.relpath(outside / "deep", here)
            assert shown == {f"{place}/{name}": word for name, word in EXPECTED.items()}
            name = next(iter(shown))
            assert verbose(*options, name) == {name: shown[name]}

    def test_a_failure_says_how_to_run_it_again_from_there(self, project, plain_pytest, cli, monkeypatch):
        (project.folder / "inner").mkdir()
        monkeypatch.chdir(project.folder / "inner")
        done = plain_pytest("../specs", *BACKWARD)
        (line,) = [line for line in done.out.splitlines() if line.startswith("run just this: ")]
        assert "1 case in " in cli(*shlex.split(line.removeprefix("run just this: "))[1:]).out

    def test_the_summary_of_failures_has_the_same_ids(self, plain_pytest):
        done = plain_pytest("specs", *BACKWARD)
        (line,) = [line for line in done.out.splitlines() if line.startswith("FAILED ")]
        assert line.startswith("FAILED specs/bad.toml::demo.wrong::backward[cpu-float64] - ")

    def test_a_failure_is_headed_by_its_case_and_its_place(self, plain_pytest):
        done = plain_pytest("specs", *BACKWARD)
        assert "_ demo.wrong::backward[cpu-float64] (specs/bad.toml:8) _" in done.out


class TestOddFolders:
    @pytest.mark.parametrize("name", FOLDERS)
    def test_a_project_in_it_runs_with_pytest(self, name, tmp_path, monkeypatch, verbose):
        project = inside(tmp_path, name, monkeypatch)
        assert verbose() == verbose(str(project.folder / "specs")) == EXPECTED
        assert pasted_back(verbose, EXPECTED, most=1)

    @pytest.mark.parametrize("name", FOLDERS)
    def test_specs_in_it_run_with_pytest(self, name, project, verbose):
        shutil.copytree("specs", f"more/{name}/specs")
        shutil.rmtree("specs")
        shown = verbose("more")
        assert shown == {f"more/{name}/{case}": word for case, word in EXPECTED.items()}
        assert pasted_back(verbose, shown, most=1)
        assert verbose(f"more/{name}/specs/bad.toml") == {f"more/{name}/{next(iter(EXPECTED))}": "FAILED"}

    @pytest.mark.parametrize("name", FOLDERS)
    def test_a_project_in_it_runs_with_opcheck_and_so_does_each_case_again(self, name, tmp_path, monkeypatch, again):
        inside(tmp_path, name, monkeypatch)
        assert again() == "specs/bad.toml"

    @pytest.mark.parametrize("name", FOLDERS)
    def test_specs_in_it_run_with_opcheck_and_so_does_each_case_again(self, name, project, again):
        shutil.move("specs", name)
        path = f"./{name}" if name.startswith("-") else name
        assert again(path) == f"{path}/bad.toml"
        assert again(str(project.folder / name)).endswith(f"{name}/bad.toml")

    def test_what_lies_beside_it_is_not_run(self, project, verbose, cli):
        for name in ("a[1]", "a[2]"):
            shutil.copytree("specs", f"more/{name}")
        project.write("more/test_own.py", "def test_backward(): pass\ndef test_backward_too(): pass\n")
        mixed = verbose("more/test_own.py::test_backward_too", "more/a[1]/bad.toml")
        assert set(mixed) == {f"more/a[1]/{next(iter(EXPECTED))}".replace("specs/", "")}
        own = [f"more/a[1]/{name}" for name in ("good.toml", "bad.toml")]
        assert {name.split("::")[0] for name in verbose(*own)} == set(own)
        done = cli("run", "more/a[1]", "--check=backward", "--report-json=report.json")
        assert len(done.records) == 3


def inside(folder, name, monkeypatch):
    """Return a project in a folder of a name, which is the current one."""
    (folder / name).mkdir()
    monkeypatch.chdir(folder / name)
    return written(folder / name)


@pytest.fixture
def again(cli, tmp_path, monkeypatch):
    """Return a function that runs specs, and then a failing case alone, as the report says; it gives the file."""

    def run(*paths):
        options = ("--check=backward", "--report-json", str(tmp_path / "report.json"))
        first = cli("run", *paths, *options)
        assert first.code == 1, first.out + first.err
        assert "3 cases in " in first.out
        (line,) = [line for line in first.out.splitlines() if line.startswith("run just this: ")]
        program, command, target = shlex.split(line.removeprefix("run just this: "))
        second = cli(command, target)
        assert second.code == 1, second.out + second.err
        assert "1 case in " in second.out
        file, _, name = target.rpartition("::demo.wrong::")
        assert (program, command, name) == ("opcheck", "run", "backward[cpu-float64]")
        return file

    return run


@pytest.mark.nightly
def test_several_processes_find_such_a_project_too(shared):
    def run(project):
        folder = project.folder / "a[1]::b $HOME 'c'"
        folder.mkdir()
        return written(folder).run("opcheck", "run", "-n", "2", "--check=backward", "--report-json=report.json")

    done = shared("odd_folder", run)
    assert "3 cases in " in done.out
    assert sorted(done.outcomes) == sorted(name.split("::", 1)[1] for name in EXPECTED)
