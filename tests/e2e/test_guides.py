"""The guides of docs/: their files make projects, and commands print what is shown."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from demo_project import Finished, Project
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent.parent
FROM_GRADCHECK = (ROOT / "docs" / "from-gradcheck.md").read_text(encoding="utf-8")
LIBRARY = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
FIRST_HOUR = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TIME = re.compile(r"in \d+\.\d s")

NO_COMPILER = "" if shutil.which("c++") and shutil.which("ninja") else "a C++ compiler or ninja is missing"
NO_KORNIA = "" if importlib.util.find_spec("kornia") else "kornia is not installed"
NO_TRITON = "" if importlib.util.find_spec("triton") else "Triton is not installed"
NO_WRAPPING = "" if Version(version("torch")) >= Version("2.13") else "wrap_triton takes no interpreted kernel"


def sections(name: str) -> dict[str, str]:
    """Return the sections of a document by their headings, each with what the document begins with."""
    introduction, *own = re.split(r"^## ", (ROOT / "docs" / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {text.partition("\n")[0]: introduction + text for text in own}


RECIPES = sections("cookbook.md")
BY_NIGHT = ("A quantized layer", "A reversed gradient", "Complex inputs")
"""Those that take longest."""
KERNELS = sections("triton.md")
EXIT_CODES = {
    "A kernel and its spec": [0, 1, 0, 1, 2],
    "Tails, masks and accumulators": [0, 1, 1],
    "Autotuned kernels": [0],
    "Atomics": [0, 1],
    "torch.library.triton_op": [0],
    "On GPUs": [0],
}


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


def followed(page: str, project, run: Callable[[str], Finished]) -> list[int]:
    """Write the files of a page and run its commands, which print what is shown. Return the exit codes."""
    codes, last = [], dict[str, str]()
    for files, command, lines in steps(page):
        if files != last:
            written(project, files)
        last, done = files, run(command)
        check(lines, done.out + done.err)
        codes.append(done.code)
    return codes


def in_shell(project) -> Callable[[str], Finished]:
    """Return a function that runs commands in processes of their own, with the variables that they begin with."""

    def run(command: str) -> Finished:
        words = command.split()
        with pytest.MonkeyPatch.context() as environment:
            while "=" in words[0]:
                environment.setenv(*words.pop(0).split("="))
            return project.run(*words)

    return run


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(name, marks=[pytest.mark.nightly] * (name in BY_NIGHT))
        for name in RECIPES
        if name != "A C++ extension"
    ],
)
def test_a_recipe_prints_what_is_shown(recipe, project, cli):
    codes = followed(RECIPES[recipe], project, lambda command: cli(*command.split()[1:]))
    assert codes == ([0, 1] if "```diff" in RECIPES[recipe] else [0])


def test_an_operator_is_added_to_the_library_as_is_shown(project, cli):
    (section,) = re.findall(r"^## Adding an operator.*?(?=^## )", LIBRARY, re.DOTALL | re.MULTILINE)
    assert followed(section, project, lambda command: cli(*command.split()[1:])) == [1, 0, 0]


@pytest.mark.nightly
@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
def test_the_cpp_extension_is_compiled_and_right(project, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(project.folder / "extensions"))
    assert followed(RECIPES["A C++ extension"], project, in_shell(project)) == [0]


@pytest.mark.nightly
@pytest.mark.skipif(bool(NO_TRITON), reason=NO_TRITON)
@pytest.mark.parametrize("section", [name for name, page in KERNELS.items() if any(steps(page))])
def test_kernels_print_what_is_shown(section, project):
    if section == "torch.library.triton_op" and NO_WRAPPING:
        pytest.skip(NO_WRAPPING)
    assert followed(KERNELS[section], project, in_shell(project)) == EXIT_CODES[section]


@pytest.mark.nightly
def test_both_suites_of_the_page_about_gradcheck_do_what_is_shown(project, cli):
    shell = in_shell(project)

    def run(command: str) -> Finished:
        return cli(*command.split()[1:]) if command.startswith("opcheck run") else shell(command)

    assert followed(FROM_GRADCHECK, project, run) == [0, 1, 1, 0, 0]


@pytest.mark.nightly
@pytest.mark.skipif(bool(NO_KORNIA), reason=NO_KORNIA)
def test_the_first_hour_goes_as_is_told(tmp_path):
    project, spec = Project(tmp_path), tmp_path / "specs" / "kornia.toml"

    def run(command: str) -> Finished:
        is_first = not spec.exists()
        done = project.run(*command.split(), seconds=1200)
        if is_first:
            (draft, *_) = (text for kind, text in BLOCK.findall(FIRST_HOUR) if kind == "toml")
            assert draft.partition("\n")[2] in spec.read_text()
        return done

    assert followed(FIRST_HOUR, project, run) == [0, 0, 1, 0, 0, 0]
    assert yaml_of(FIRST_HOUR).replace(OF_KORNIA, "").replace(" -n auto", "") == yaml_of(README)


OF_KORNIA = "      - run: pip install kornia==0.9.0\n"


def yaml_of(page: str) -> str:
    (text,) = [text for kind, text in BLOCK.findall(page) if kind == "yaml"]
    return text
