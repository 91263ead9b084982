"""Reading: regular files of a sensible size, and nothing that waits or never ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec import SpecError
from opcheck.spec.device import profiles
from opcheck.spec.document import MOST_BYTES, read_bytes

Write = Callable[..., Path]

SIN = '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }]\n'
NO_FILE = "is not a regular file; expected a TOML file"


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def lines_of(read: Callable[[], object]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read()
    return str(caught.value).splitlines()


@pytest.mark.parametrize("make", [endless, pipe])
class TestNoFiles:
    def test_among_specs_are_a_mistake_and_are_not_opened(self, write: Write, make: Callable[[Path], None]) -> None:
        make(write(SIN, "specs/a.toml").with_name("z.toml"))
        assert lines_of(lambda: load(["specs"])) == [f"specs/z.toml:1:1: {NO_FILE}"]
        assert lines_of(lambda: load(["specs/z.toml"])) == [f"specs/z.toml:1:1: {NO_FILE}"]

    def test_beside_a_lone_spec_are_nobodys_business(self, write: Write, make: Callable[[Path], None]) -> None:
        make(write(SIN, "specs/a.toml").with_name("z.toml"))
        assert len(load(["specs/a.toml"])) == 1

    def test_among_device_profiles_are_a_mistake(self, write: Write, make: Callable[[Path], None]) -> None:
        make(write("", "devices/none.txt").with_name("npu.toml"))
        assert lines_of(lambda: profiles((Path("devices"),))) == [f"devices/npu.toml:1:1: {NO_FILE}"]

    def test_as_pyproject_are_a_mistake(self, write: Write, make: Callable[[Path], None]) -> None:
        make(write("", "none.txt").with_name("pyproject.toml"))
        assert lines_of(lambda: Settings.read(Path("pyproject.toml"))) == [f"pyproject.toml:1:1: {NO_FILE}"]


class TestReading:
    def test_a_folder_called_like_a_file_is_none(self, write: Write) -> None:
        folder(write(SIN, "specs/a.toml").with_name("z.toml"))
        assert len(load(["specs"])) == 1

    def test_a_link_to_itself_is_a_mistake(self, write: Write) -> None:
        link = write(SIN, "specs/a.toml").with_name("z.toml")
        link.symlink_to(link)
        (line,) = lines_of(lambda: load(["specs"]))
        assert line.startswith("specs/z.toml:1:1: cannot be read: ")
        (line,) = lines_of(lambda: load(["specs/z.toml"]))
        assert line.startswith("specs/z.toml:1:1: no such file or folder")

    def test_folders_that_link_to_themselves_are_searched_once(self, write: Write) -> None:
        specs = write(SIN, "specs/a.toml").parent
        (specs / "again").symlink_to(specs)
        assert len(load(["specs"])) == 1

    def test_a_link_to_a_file_elsewhere_is_loaded(self, write: Write) -> None:
        write(SIN, "elsewhere/a.toml")
        write("", "specs/none.txt").with_name("a.toml").symlink_to("../elsewhere/a.toml")
        assert [operator.id for operator in load(["specs/a.toml"])] == ["torch.sin"]

    def test_a_path_beyond_what_the_system_knows_is_missing(self, write: Write) -> None:
        write(SIN)
        (line,) = lines_of(lambda: load(["x" * 5000]))
        assert ":1:1: no such file or folder; expected " in line

    def test_a_file_is_read_up_to_a_bound(self, write: Write) -> None:
        path = write("#")
        path.write_bytes(b"#" * MOST_BYTES)
        assert len(read_bytes(path)) == MOST_BYTES
        path.write_bytes(b"#" * (MOST_BYTES + 1))
        assert lines_of(lambda: load([path])) == ["spec.toml:1:1: is too large; expected at most 4 MiB"]

    def test_a_name_that_no_terminal_should_see_is_escaped(self, write: Write) -> None:
        path = write(SIN + "reseed = 1\n")
        for name in (b"\x1b[31m.toml", b"\xff.toml"):
            odd = path.rename(os.fsdecode(name))
            (line,) = lines_of(lambda odd=odd: load([odd]))
            assert line.isprintable()
            assert line.endswith(".toml:4:10: wrong type for reseed: an integer (1); expected true or false")
            path = odd
