"""What pip is told of pyproject.toml, and that all that names versions and interpreters agrees with it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent.parent
tool = runpy.run_path(str(ROOT / "tools" / "declared.py"))
PYPROJECT = tomli.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def declared(*extras, **optional):
    project = {"name": "my-lib", "dependencies": ["torch>=2.6", "rich>=13,<16"], "optional-dependencies": optional}
    return [str(requirement) for requirement in tool["declared"](project, extras)]


def lowest(text):
    return str(tool["lowest"](Requirement(text)))


class TestDeclared:
    def test_the_dependencies_come_first_and_then_the_extras_that_are_named(self):
        assert declared("test", test=["pytest"], docs=["sphinx"]) == ["torch>=2.6", "rich<16,>=13", "pytest"]

    def test_an_extra_of_the_project_itself_is_taken_apart(self):
        extras = {"dev": ["My_Lib[test]", "ruff"], "test": ["my-lib[reference]", "pytest"], "reference": ["numpy"]}
        assert declared("dev", **extras)[2:] == ["numpy", "pytest", "ruff"]

    def test_what_is_for_other_interpreters_is_left_out(self):
        assert declared("old", old=["tomli; python_version < '3'", "pip; python_version >= '3'"])[2:] == [
            'pip; python_version >= "3"'
        ]

    def test_an_unknown_extra_is_refused(self):
        with pytest.raises(ValueError, match=r'^there is no extra "tset"; expected one of test, dev$'):
            declared("tset", test=[], dev=[])


class TestLowest:
    @pytest.mark.parametrize(
        ("range", "floor"),
        [("rich>=13", "13"), ("rich<16,>=13.1,!=14", "13.1"), ("rich~=13.2", "13.2"), ("rich==13.0.1", "13.0.1")],
    )
    def test_it_is_where_the_range_begins(self, range, floor):
        assert lowest(range) == f"rich=={floor}"

    def test_extras_and_markers_are_nothing_to_a_constraint(self):
        assert lowest("rich[jupyter]>=13; python_version >= '3'") == "rich==13"

    @pytest.mark.parametrize("text", ["rich", "rich<16", "rich>13"])
    def test_a_range_without_a_beginning_is_refused(self, text):
        with pytest.raises(ValueError, match=re.escape(f'"{text}" declares no lowest version; expected rich>=VERSION')):
            lowest(text)


class TestCommand:
    def test_it_prints_the_floors_of_this_project(self, capsys):
        assert tool["main"](["--lowest", "--without", "torch", "test"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "pydantic==2.12" in lines
        assert {line.partition("==")[0] for line in lines} >= {"numpy", "hypothesis", "psutil"}
        assert "torch" not in {line.partition("==")[0] for line in lines}

    def test_a_mistake_is_told_without_a_traceback(self, capsys):
        assert tool["main"](["tset"]) == 1
        assert capsys.readouterr().err.startswith('pyproject.toml: there is no extra "tset"; expected one of ')


class TestAgreement:
    """Versions are named in several places."""

    def test_what_ci_uses_is_in_the_declared_ranges_and_pins_all_of_them(self):
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        pins = [Requirement(line) for line in lines if line and line[0] != "#"]
        pinned = {pin.name: pin for pin in pins if pin.marker is None or pin.marker.evaluate()}
        for requirement in tool["declared"](PROJECT, ["dev", "site"]):
            (version,) = [Version(part.version) for part in pinned[requirement.name].specifier]
            assert version in requirement.specifier, requirement

    def test_what_builds_the_package_is_what_its_tests_build_it_with(self):
        assert set(PYPROJECT["build-system"]["requires"]) <= set(PROJECT["optional-dependencies"]["test"])

    def test_all_pythons_that_are_declared_are_tried(self):
        lines = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text) for text in PROJECT["classifiers"])
        pythons = [line[1] for line in lines if line]
        assert PROJECT["requires-python"] == f">={pythons[0]}"
        quoted = ", ".join(f'"{python}"' for python in pythons)
        for name in ("ci.yml", "nightly.yml"):
            assert f"python: [{quoted}]" in (ROOT / ".github" / "workflows" / name).read_text()
        assert f"make torch-free PYTHON=python{pythons[0]} LOWEST=1" in (ROOT / ".ci" / "run").read_text()

    def test_the_readme_says_from_which_versions_on(self):
        (torch,) = [str(each.specifier) for each in tool["declared"](PROJECT) if each.name == "torch"]
        words = f"Python {PROJECT['requires-python'][2:]} or later, torch {torch[2:]} or later"
        assert words in (ROOT / "README.md").read_text()
