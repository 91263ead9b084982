"""Small spec files, and what is said about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from opcheck.spec import Library, Settings, SpecError, load

Write = Callable[..., Path]
Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into the current folder, which is an empty one."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str, name: str = "spec.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def loaded(write: Write) -> Load:
    """Load the text of one spec file."""

    def load_text(text: str, **settings: object) -> Library:
        return load([write(text)], Settings.model_validate(settings))

    return load_text


@pytest.fixture
def mistakes(write: Write) -> Mistakes:
    """Return the lines that loading the text of one spec file gives."""

    def load_text(text: str, **settings: object) -> list[str]:
        with pytest.raises(SpecError) as caught:
            load([write(text)], Settings.model_validate(settings))
        return str(caught.value).splitlines()

    return load_text
