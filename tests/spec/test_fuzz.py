"""Whatever a spec says, loading it succeeds or names mistakes with their places: no other exception, and soon.

A few thousand examples, the same ones each time. FUZZ_EXAMPLES=100000 tries as many of each kind, new ones each time.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import planted
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec import Problem, SpecError
from opcheck.spec.device_profile import read_profile

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
SECONDS = 30.0
"""Of CPU time that a small file may take, whatever it says: a thousand times what it usually takes. This is to notice
endless work, and no busy machine."""

fuzz = settings(
    max_examples=EXAMPLES or 250,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

tokens = st.sampled_from(planted.NASTY) | st.sampled_from(planted.tokens())
edits = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "duplicate", "swap", "replace"]),
        st.integers(0, 10**4),
        st.integers(0, 10**4),
        tokens,
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def problems_of(path: Path, read=lambda path: load([path], Settings())) -> list[Problem]:
    """Load a file, and return the mistakes. No other exception is raised, and it does not take long."""
    started = time.process_time()
    try:
        read(path)
        found = []
    except SpecError as error:
        found = error.problems
        assert found
    assert time.process_time() - started < SECONDS
    return found


def assert_sane(problems: list[Problem]) -> None:
    for problem in problems:
        assert_has_its_place(problem)


def assert_has_its_place(problem: Problem) -> None:
    lines = Path(problem.file).read_text(encoding="utf-8").split("\n")
    assert 1 <= problem.line <= len(lines)
    assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
    shown = str(problem)
    assert shown.isprintable()
    assert len(shown) < 3000
    assert re.match(r"\S+:\d+:\d+: \S", shown)


class TestText:
    @fuzz
    @given(st.sampled_from(planted.operators()), edits)
    def test_a_mutant_of_a_spec_loads_or_has_mistakes_with_places(self, folder: Path, text: str, edits: list) -> None:
        path = folder / "spec.toml"
        path.write_text(planted.mutated(text, edits), encoding="utf-8")
        assert_sane(problems_of(path))

    @fuzz
    @given(st.sampled_from(planted.templates()), edits)
    def test_a_mutant_of_a_template_does_too(self, folder: Path, text: str, edits: list) -> None:
        beside = folder / "templates"
        beside.mkdir(exist_ok=True)
        (beside / "mine.toml").write_text(planted.mutated(text, edits), encoding="utf-8")
        path = beside / "spec.toml"
        path.write_text('[[operator]]\nname = "torch.sin"\nsamples = [{ use = "mine" }]\n', encoding="utf-8")
        assert_sane(problems_of(path))
        assert_sane(problems_of(beside / "mine.toml"))

    @fuzz
    @given(st.sampled_from(planted.profiles()), edits)
    def test_a_mutant_of_a_device_profile_does_too(self, folder: Path, text: str, edits: list) -> None:
        path = folder / "device.toml"
        path.write_text(planted.mutated(text, edits), encoding="utf-8")
        assert_sane(problems_of(path, read_profile))

    @fuzz
    @given(edits)
    def test_a_mutant_of_the_settings_does_too(self, folder: Path, edits: list) -> None:
        text = '[tool.opcheck]\nspecs = ["specs"]\nmodules = ["torch", "mylib"]\nmax_elements = 10\ntimeout = 1.5\n'
        path = folder / "pyproject.toml"
        path.write_text(planted.mutated(text, edits), encoding="utf-8")
        assert_sane(problems_of(path, Settings.read))


WRONG_EVERYWHERE = (
    "1979-05-27",
    "07:32:00",
    "9" * 400,
    "0x" + "f" * 5000,
    r'"\u001b[31m"',
    "[" * 380 + "]" * 380,
)


class TestStructure:
    @fuzz
    @given(st.sampled_from(planted.operators()), st.integers(0, 10**6), st.sampled_from(WRONG_EVERYWHERE))
    def test_a_wrong_value_is_reported_where_it_stands(self, folder: Path, text: str, choice: int, wrong: str) -> None:
        path = folder / "spec.toml"
        written, _, place = planted.planted(text, choice, wrong, key=False)
        path.write_text(written, encoding="utf-8")
        problems = problems_of(path)
        assert_sane(problems)
        found = [(problem.line, problem.column) for problem in problems]
        if wrong.startswith("[["):  # the place may be that of any of the brackets
            (line, column), (line_found, column_found) = place, found[0]
            assert line_found == line
            assert column <= column_found <= column + 380
        else:
            assert found == [place]

    @fuzz
    @given(st.sampled_from(planted.operators()), st.integers(0, 10**6), st.sampled_from(["no such key", "[key]"]))
    def test_an_unknown_key_is_reported_where_it_stands(self, folder: Path, text: str, choice: int, key: str) -> None:
        path = folder / "spec.toml"
        written, _, place = planted.planted(text, choice, key, key=True)
        path.write_text(written, encoding="utf-8")
        problems = problems_of(path)
        assert_sane(problems)
        assert [(problem.line, problem.column) for problem in problems] == [place]

    @fuzz
    @given(
        st.sampled_from(planted.operators()),
        st.integers(0, 10**6),
        st.sampled_from((*planted.NASTY_NUMBERS, *planted.NASTY_STRINGS, *planted.NASTY_TABLES)),
    )
    def test_extreme_values_load_or_have_mistakes_with_places(
        self, folder: Path, text: str, choice: int, value: str
    ) -> None:
        path = folder / "spec.toml"
        path.write_text(planted.planted(text, choice, value, key=False)[0], encoding="utf-8")
        assert_sane(problems_of(path))
