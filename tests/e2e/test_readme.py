"""README.md shows what a run prints, and so does its picture."""

from __future__ import annotations

import importlib.util
import re
import shlex
from html import unescape
from pathlib import Path

import pytest
from demo_project import Project
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def draw_run():
    spec = importlib.util.spec_from_file_location("draw_run", ROOT / "tools" / "draw_run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example(draw_run, tmp_path_factory):
    """The project whose files README.md shows."""
    folder = tmp_path_factory.mktemp("readme")
    draw_run.write_example(folder)
    return folder


@pytest.fixture(scope="module")
def shown(draw_run, example):
    """What a terminal shows at the end of the run."""
    return draw_run.screen(draw_run.run(example))


def words_of(svg: str) -> list[str]:
    return unescape(re.sub("<style.*?</style>|<[^>]*>", " ", svg, flags=re.DOTALL)).split()


def test_the_example_has_the_files_that_the_text_names(example):
    files = {str(path.relative_to(example)) for path in example.rglob("*") if path.suffix in (".py", ".toml")}
    assert files == {"mylib.py", "specs/mylib.toml", "pyproject.toml"}
    spec = (example / "specs" / "mylib.toml").read_text().splitlines()
    assert f"{len(spec) - 1} lines" in README.replace("Four", "4")


def test_the_run_prints_what_the_text_shows(draw_run, shown):
    text = re.search(r"^```\n\$ (.*?)\n```$", README, re.DOTALL | re.MULTILINE)[1]
    command, *expected = draw_run.screen(text).split("\n")
    assert command == " ".join(draw_run.COMMAND)
    lines = iter(Text.from_ansi(shown).plain.split("\n"))
    for line in expected:
        assert line == "..." or line in lines, f"not in the output, or not in this order: {line}"


class Reader:
    """Somebody who does what README.md says, from top to bottom, in one project."""

    CONSOLE = re.compile(r"^```\n(\$ .*?)^```$", re.DOTALL | re.MULTILINE)
    FIX = re.compile(r" is `(?P<wrong>return [^`]*)`.*?becomes\s+`(?P<right>return [^`]*)`", re.DOTALL)
    WORKFLOW = re.compile(r"- run: (opcheck .*)")
    PYTEST = re.compile(r"`(pytest (?:specs/(?=` runs)|'[^`]*'))`")

    def __init__(self, project, draw_run):
        self.project, self.draw_run = project, draw_run
        self.codes = []
        """The commands with their exit codes, in order."""

    def read(self):
        """Type every command, and apply the change of the operator where it comes."""
        patterns = (self.CONSOLE, self.FIX, self.WORKFLOW, self.PYTEST)
        steps = [(pattern, found) for pattern in patterns for found in pattern.finditer(README)]
        for pattern, found in sorted(steps, key=lambda step: step[1].start()):
            if pattern is self.FIX:
                self.fix(**found.groupdict())
            elif pattern is self.CONSOLE:
                for text in re.split(r"^\$ ", found[1], flags=re.MULTILINE)[1:]:
                    self.type(*text.splitlines())
            else:
                self.type(found[1])

    def fix(self, wrong, right):
        text = (self.project.folder / "mylib.py").read_text()
        assert text.count(wrong) == 1
        self.project.write("mylib.py", text.replace(wrong, right))

    def type(self, command, *shown):
        program, *arguments = shlex.split(command)
        if program == "rm":
            for name in arguments:
                (self.project.folder / name).unlink()
            return
        done = self.project.run(program, *arguments)
        self.codes.append((command, done.code))
        printed = iter(self.draw_run.screen(done.out + done.err).splitlines())
        for line in self.draw_run.screen("\n".join(shown)).splitlines():
            assert line == "..." or line in printed, f"{command}: not printed, or not in this order: {line}"


@pytest.mark.nightly
def test_every_command_of_the_page_does_what_it_shows_in_one_project(draw_run, tmp_path):
    draw_run.write_example(tmp_path)  # all at first: the text refers to the settings before it shows them
    reader = Reader(Project(tmp_path), draw_run)
    reader.read()
    (first, found), (new, drafted), *rest = reader.codes
    assert (first, new.split()[:2]) == (" ".join(draw_run.COMMAND), ["opcheck", "new"])
    assert (found, drafted) == (1, 1)
    assert len(rest) == 6
    assert [step for step in rest if step[1] != 0] == []


def test_the_picture_shows_the_run(draw_run, shown):
    drawn = (ROOT / "docs" / "run.svg").read_text(encoding="utf-8")
    assert words_of(drawn) == words_of(draw_run.svg(shown)), "stale: run make docs"
    assert "docs/run.svg" in README


def test_the_picture_needs_no_network(draw_run):
    drawn = draw_run.svg("text")
    assert "text" in words_of(drawn)
    assert "font-face" not in drawn
    assert "url(http" not in drawn


def test_erased_lines_and_times_are_not_drawn(draw_run):
    erase = draw_run.ERASE_LINE
    received = f"\x1b[?25lcases 1/2 0:00:01\r{erase}failed x\ncases 2/2 0:12:34\x1b[?25h\n2 cases in 7.4 s"
    assert draw_run.screen(received) == "failed x\ncases 2/2 0:00:03\n2 cases in 3.0 s"


def test_a_run_that_does_not_fail_is_not_drawn(draw_run, tmp_path):
    draw_run.write_example(tmp_path)
    (tmp_path / "specs" / "mylib.toml").write_text("[[operator]]\n")
    with pytest.raises(RuntimeError, match=r"the run exited with 2, not 1\n(?s:.*)missing key"):
        draw_run.run(tmp_path)


class TestCommands:
    ROWS = re.findall(r"^\| `opcheck (\w+)[^`]*` \|", README, re.MULTILINE)

    def help_of(self, command, capsys):
        from opcheck.cli import main

        with pytest.raises(SystemExit) as ended:
            main([*command, "--help"])
        assert ended.value.code == 0
        return capsys.readouterr().out

    def test_the_table_has_all_of_them(self, capsys):
        listed = re.findall(r"^    (\w+) ", self.help_of([], capsys), re.MULTILINE)
        assert sorted(self.ROWS) == sorted(listed)

    def test_they_have_the_options_that_the_text_names(self, capsys):
        helps = "".join(self.help_of([command], capsys) for command in self.ROWS)
        running = README.split("## Running")[1].replace("--opcheck-", "")
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", running))
        assert len(options) > 8
        assert {option for option in options if f"{option}" not in helps} == set()

    def test_make_has_the_targets_that_the_text_names(self):
        makefile = (ROOT / "Makefile").read_text()
        targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
        assert targets == ["run", "test"]
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_pytest_takes_the_same_specs_and_its_own_tests(project, example):
    for path in example.rglob("*.*"):
        if path.suffix in (".py", ".toml"):
            project.write(str(path.relative_to(example)), path.read_text())
    for name in ("good", "bad"):
        (project.folder / "specs" / f"{name}.toml").unlink()
    own = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "opcheck.cases" in block)
    project.write("test_own.py", own)
    (pasted,) = re.findall(r"`pytest ('specs/.*?')`", README)
    done = project.run("pytest", "-q", pasted.strip("'"), "test_own.py")
    assert "1 failed, 2 passed" in done.out
