"""The module of a draft is allowed in pyproject.toml, whose other text stays as it is."""

from __future__ import annotations

import pytest

from opcheck.draft.allow import allow
from opcheck.settings import Settings


@pytest.fixture
def allowed(tmp_path, monkeypatch):
    """Return a function that allows mylib in a pyproject.toml with some text, and gives the text and what was said."""
    monkeypatch.chdir(tmp_path)

    def run(text):
        path = tmp_path / "pyproject.toml"
        if text is not None:
            path.write_text(text)
        said = allow("mylib", Settings.find())
        return path.read_text(), said

    return run


def test_a_missing_file_is_made(allowed):
    text, said = allowed(None)
    assert text == '[tool.opcheck]\nspecs = ["specs"]\nmodules = ["torch", "mylib"]\n'
    assert said == ['specs = ["specs"]', '"mylib" among its modules']


def test_comments_and_other_tables_stay(allowed):
    before = '# ours\n[project]  # p\nname = "x"\n\n[tool.ruff]\nline-length = 100  # wide\n'
    text, _ = allowed(before)
    assert text.startswith(before)
    settings = Settings.find()
    assert (settings.modules, settings.specs) == (("torch", "mylib"), ("specs",))


def test_a_module_is_added_to_those_listed(allowed):
    text, said = allowed('[tool.opcheck]\nspecs = ["ours"]  # here\nmodules = ["torch", "a"]  # allowed\n')
    assert text == '[tool.opcheck]\nspecs = ["ours"]  # here\nmodules = ["torch", "a", "mylib"]  # allowed\n'
    assert said == ['"mylib" among its modules']


def test_nothing_is_written_where_nothing_is_missing(allowed):
    before = '[tool]\nopcheck = { specs = ["s"], modules = ["mylib"] }\n'
    assert allowed(before) == (before, [])
