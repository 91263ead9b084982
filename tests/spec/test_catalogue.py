"""The files of a session: each is read once, however many specs are loaded from among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from opcheck.spec.load import Catalogue, Loader

Write = Callable[..., Path]

SIN = '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "mine" }]\n'
TEMPLATE = '[template]\nabout = "nothing"\n[[samples]]\nargs = []\n'


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was read."""
    module = import_module("opcheck.spec.load")
    counted: Counter[str] = Counter()
    read = module.read_bytes

    def counting(path: Path) -> bytes:
        counted[path.name] += 1
        return read(path)

    monkeypatch.setattr(module, "read_bytes", counting)
    return counted


def test_each_file_is_read_once_for_all_loaders(write: Write, reads: Counter[str], tmp_path: Path) -> None:
    write(TEMPLATE, "specs/mine.toml")
    files = [write(SIN.replace("sin", f"sin{number}"), f"specs/{number}.toml") for number in range(20)]
    catalogue = Catalogue()
    for file in files:
        loader = Loader(catalogue=catalogue)
        loader.add(file, tmp_path / "specs")
        assert len(loader.library()) == 1
    assert reads == dict.fromkeys(["mine.toml", *(file.name for file in files)], 1)


def test_mistakes_are_told_to_everyone_who_meets_them(write: Write, reads: Counter[str], tmp_path: Path) -> None:
    write(TEMPLATE.replace("about", "abut"), "specs/mine.toml")
    files = [write(SIN.replace("sin", name), f"specs/{name}.toml") for name in ("sin", "cos")]
    catalogue = Catalogue()
    for file in files:
        loader = Loader(catalogue=catalogue)
        loader.add(file, tmp_path / "specs")
        assert [problem.file for problem in loader.problems] == ["specs/mine.toml"]
    assert reads["mine.toml"] == 1


def test_a_template_with_mistakes_concerns_the_specs_that_use_it(write: Write, tmp_path: Path) -> None:
    write(TEMPLATE.replace("about", "abut"), "specs/mine.toml")
    other = write(SIN.replace("mine", "unary"), "specs/other.toml")
    loader = Loader()
    loader.add(other, tmp_path / "specs")
    assert len(loader.library()) == 1
