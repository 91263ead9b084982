"""Where files are, in words that mean the same elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_IMODE

import pytest

from opcheck.report.files import replace, within
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


def mode_of(path):
    return S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_new_file_has_the_permissions_that_the_process_gives(tmp_path, mask):
    before = os.umask(mask)
    try:
        replace(tmp_path / "report.html", [b"new"])
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "report.html") == 0o666 & ~mask


def test_a_file_that_is_replaced_keeps_its_permissions_and_its_link(tmp_path):
    file, link = tmp_path / "private.html", tmp_path / "link.html"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    replace(link, [b"new"])
    assert (file.read_text(), mode_of(file), link.is_symlink()) == ("new", 0o600, True)


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path):
    def parts():
        yield b"half"
        raise OSError("no room")

    (tmp_path / "report.html").write_text("old")
    with pytest.raises(OSError, match="no room"):
        replace(tmp_path / "report.html", parts())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.html", "old")]
