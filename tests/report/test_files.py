"""Where files are, in words that mean the same elsewhere."""

from __future__ import annotations

from pathlib import Path

from opcheck.report.files import within
from opcheck.spec.load import builtin_folder


def test_files_of_a_project_are_relative_to_it(tmp_path):
    assert within(tmp_path, tmp_path / "specs" / "a.toml") == "specs/a.toml"
    assert within(tmp_path, tmp_path) == "."
    assert within(tmp_path, tmp_path / "specs" / ".." / "a.toml") == "a.toml"


def test_shipped_files_are_relative_to_the_library(tmp_path):
    assert within(tmp_path, builtin_folder() / "unary.toml") == "builtin/unary.toml"
    assert within(builtin_folder().parent, builtin_folder() / "unary.toml") == f"{builtin_folder().name}/unary.toml"


def test_other_files_keep_their_whole_path(tmp_path):
    assert within(tmp_path / "project", Path(tmp_path, "other", "a.toml")) == (tmp_path / "other/a.toml").as_posix()
