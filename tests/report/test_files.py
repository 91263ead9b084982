"""Where files are, in words that mean the same elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from stat import S_IMODE

import pytest

from opcheck.report.files import opened, replace, within
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


WRITES = """
import sys
from pathlib import Path
from opcheck.report.files import opened
file = opened(Path(sys.argv[1]))
file.write(b"of another")
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_process_is_writing_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "report.json"
    command = [sys.executable, "-c", WRITES, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(OSError, match=f"^another process is writing {path}$"):
            opened(path)
        assert path.read_bytes() == b"of another"
        process.stdin.close()
    with opened(path):
        assert path.read_bytes() == b""


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
