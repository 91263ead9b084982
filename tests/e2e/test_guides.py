"""The guides of docs/: their files make projects, and commands print what is shown."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo_project import Project

ROOT = Path(__file__).resolve().parent.parent.parent
COOKBOOK = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
FROM_GRADCHECK = (ROOT / "docs" / "from-gradcheck.md").read_text(encoding="utf-8")
LIBRARY = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
FIRST_HOUR = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
INTRODUCTION, *SECTIONS = re.split(r"^## ", COOKBOOK, flags=re.MULTILINE)
RECIPES = {text.partition("\n")[0]: INTRODUCTION + text for text in SECTIONS}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TIME = re.compile(r"in \d+\.\d s")

NO_COMPILER = "" if shutil.which("c++") and shutil.which("ninja") else "a C++ compiler or ninja is missing"
NO_KORNIA = "" if importlib.util.find_spec("kornia") else "kornia is not installed"
NO_TRITON = "" if importlib.util.find_spec("triton") else "Triton is not installed"

TRITON = """
# Of Triton, only as much as importing kernels takes.
constexpr = int


def jit(function):
    return function
"""


def steps(page: str) -> Iterator[tuple[dict[str, str], str, list[str]]]:
    """Yield the files of the project so far, the next command to run in it, and the lines it prints."""
    files: dict[str, str] = {}
    for kind, text in BLOCK.findall(page):
        if kind in ("python", "toml", "yaml"):
            files[text.partition("\n")[0].removeprefix("# ")] = text
        elif kind == "diff":
            files = changed(files, text)
        else:
            command, *lines = text.splitlines()
            yield dict(files), command.removeprefix("$ "), lines


def changed(files: dict[str, str], diff: str) -> dict[str, str]:
    """Return the files with lines replaced: each run of removed lines by the added ones below it."""
    for removed, added in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)*)", diff, re.MULTILINE):
        old, new = (re.sub("^[-+]", "", lines, flags=re.MULTILINE) for lines in (removed, added))
        (name,) = [name for name, text in files.items() if old in text]
        assert files[name].count(old) == 1
        files = {**files, name: files[name].replace(old, new)}
    return files


def written(project, files: dict[str, str]) -> None:
    shutil.rmtree(project.folder / "specs", ignore_errors=True)
    for name, text in files.items():
        project.write(name, text)


def check(lines: list[str], printed: str) -> None:
    """See that the lines are printed in this order. `...` stands for anything, alone or at the end of a line."""
    found = iter(TIME.sub("in 3.9 s", printed).splitlines())
    for line in lines:
        start = line.removesuffix("...").rstrip()
        there = line == "..." or any(each == line or (start != line and each.startswith(start)) for each in found)
        assert there, f"not in the output, or not in this order: {line}\n\n{printed}"


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name not in ("A C++ extension", "A Triton kernel")])
def test_a_recipe_prints_what_is_shown(recipe, project, cli):
    codes = []
    for files, command, lines in steps(RECIPES[recipe]):
        written(project, files)
        run = cli(*command.split()[1:])
        check(lines, run.out)
        codes.append(run.code)
    assert codes == ([0, 1] if "```diff" in RECIPES[recipe] else [0])


def test_an_operator_is_added_to_the_library_as_is_shown(project, cli):
    (section,) = re.findall(r"^## Adding an operator.*?(?=^## )", LIBRARY, re.DOTALL | re.MULTILINE)
    codes = []
    for files, command, lines in steps(section):
        written(project, files)
        run = cli(*command.split()[1:])
        check(lines, run.out)
        codes.append(run.code)
    assert codes == [1, 0, 0]


@pytest.mark.nightly
@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
def test_the_cpp_extension_is_compiled_and_right(project, monkeypatch):
    ((files, command, lines),) = steps(RECIPES["A C++ extension"])
    written(project, files)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(project.folder / "extensions"))
    run = project.run(*command.split())
    check(lines, run.out)
    assert run.code == 0, run.out + run.err


@pytest.mark.nightly
class TestTriton:
    @pytest.fixture
    def shown(self, project):
        ((files, command, lines),) = steps(RECIPES["A Triton kernel"])
        written(project, files)
        return command, lines

    @pytest.mark.usefixtures("shown")
    def test_the_spec_is_valid_without_triton(self, cli):
        run = cli("validate")
        assert run.code == 0
        assert "1 operators, 5 samples: no mistakes found" in run.out + run.err

    @pytest.mark.usefixtures("shown")
    def test_without_a_gpu_no_case_is_selected(self, cli, monkeypatch):
        monkeypatch.setattr("opcheck.devices.presence.may_be_present", lambda device, _: device.name == "cpu")
        run = cli("run")
        assert (run.code, "the request selects no case" in run.out + run.err) == (2, True)

    def test_without_a_gpu_naming_it_is_a_mistake(self, shown, project):
        command, lines = shown
        project.write("triton/__init__.py", TRITON)
        project.write("triton/language.py", TRITON)
        run = project.run(*command.split())
        check(lines, run.err)
        assert run.code == 2, run.out

    @pytest.mark.skipif(bool(NO_TRITON), reason=NO_TRITON)
    @pytest.mark.usefixtures("shown")
    def test_in_the_interpreter_the_kernels_are_right(self, project, monkeypatch):
        spec = project.folder / "specs" / "mylib.toml"
        spec.write_text(spec.read_text().replace('["cuda"]', '["cpu"]'))
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        run = project.run("opcheck", "run", "--device", "cpu")
        assert run.code == 0, run.out
        assert "22 cases" in run.out
        assert "22 passed" in run.out


@pytest.mark.nightly
def test_both_suites_of_the_page_about_gradcheck_do_what_is_shown(project, cli):
    codes = []
    for files, command, lines in steps(FROM_GRADCHECK):
        written(project, files)
        run = cli(*command.split()[1:]) if command.startswith("opcheck run") else project.run(*command.split())
        check(lines, run.out + run.err)
        codes.append((command, run.code))
    run = "opcheck run --device cpu"
    suite = "python -m pytest -q tests"
    assert codes == [(suite, 0), ("opcheck new mylib --from-tests tests", 1), (run, 1), (run, 0), (suite, 0)]


@pytest.mark.nightly
@pytest.mark.skipif(bool(NO_KORNIA), reason=NO_KORNIA)
def test_the_first_hour_goes_as_is_told(tmp_path):
    project, codes, last = Project(tmp_path), [], {}
    for files, command, lines in steps(FIRST_HOUR):
        if last == {} and files:
            draft = (project.folder / "specs" / "kornia.toml").read_text()
            assert files["specs/kornia.toml"].partition("\n")[2] in draft
        if files != last:
            written(project, files)
        last = files
        run = project.run(*command.split(), seconds=1200)
        check(lines, run.out)
        codes.append((command.split()[1], run.code))
    assert codes == [("new", 0), ("run", 0), ("run", 1), ("run", 0), ("mutate", 0), ("new", 0)]
    assert yaml_of(FIRST_HOUR).replace(OF_KORNIA, "").replace(" -n auto", "") == yaml_of(README)


OF_KORNIA = "      - run: pip install kornia==0.9.0\n"


def yaml_of(page: str) -> str:
    (text,) = [text for kind, text in BLOCK.findall(page) if kind == "yaml"]
    return text
