"""A TOML file: regular, of a sensible size, and without what TOML has room for and a spec has not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec import Library, SpecError
from opcheck.spec.device_profile import profiles
from opcheck.spec.document import DEEPEST, MOST_BYTES, MOST_VALUES, Document, read_bytes

Write = Callable[..., Path]
Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]

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


LARGE = "an integer beyond 64 bits; expected -2^63 to 2^63 - 1"
NESTED = f"this is nested too deeply; expected at most {DEEPEST} levels of tables and arrays"


class TestIntegers:
    @pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "0x" + "f" * 5000, str(2**63)])
    @pytest.mark.parametrize(
        "sample",
        [
            "{ args = [{ values = [{ complex = [%s, 0] }] }] }",
            "{ args = [{ complex = [%s, 0] }] }",
            "{ args = [{ shape = [%s] }] }",
            '{ use = "unary", low = %s }',
            "{ kwargs = { dim = %s } }",
        ],
    )
    def test_beyond_64_bits_are_refused_wherever_they_stand(self, mistakes: Mistakes, sample: str, number: str) -> None:
        column = f"samples = [{sample}".index("%s") + 1
        text = SIN.replace('{ use = "unary" }', sample % number)
        assert mistakes(text) == [f"spec.toml:3:{column}: {LARGE}"]

    def test_of_more_digits_than_python_parses_are_refused_without_a_place(self, mistakes: Mistakes) -> None:
        (line,) = mistakes(SIN + f"seed = {'9' * 5000}\n")
        assert line.startswith("spec.toml:1:1: TOML that cannot be read: Exceeds the limit (4300")

    def test_of_64_bits_are_fine(self, loaded: Load) -> None:
        text = SIN.replace('{ use = "unary" }', f"{{ args = [{2**63 - 1}, {-(2**63)}] }}")
        assert len(loaded(text)) == 1


class TestDepth:
    @pytest.mark.parametrize("depth", [100, 380])
    @pytest.mark.parametrize("sample", ["{ args = [%s] }", '{ use = "unary", low = %s }', "{ kwargs = { x = %s } }"])
    def test_values_nested_without_end_are_refused(self, mistakes: Mistakes, sample: str, depth: int) -> None:
        text = SIN.replace('{ use = "unary" }', sample % ("[" * depth + "]" * depth))
        (line,) = mistakes(text)
        assert line.startswith("spec.toml:3:")
        assert line.endswith(NESTED)

    def test_values_nested_deeper_than_a_parser_reads_are_refused(self, mistakes: Mistakes) -> None:
        (line,) = mistakes(SIN.replace('{ use = "unary" }', "[" * 1000 + "]" * 1000))
        # How deep a parser reads depends on its version, and on the recursion limit.
        assert line.startswith("spec.toml:1:1: TOML that cannot be read: ") or line.endswith(NESTED)

    @pytest.mark.parametrize("length", [100, 900, 5000])
    def test_so_are_dotted_keys(self, mistakes: Mistakes, length: int) -> None:
        (line,) = mistakes(SIN + "kwargs." + ".".join("a" * length) + " = 1\n")
        assert line.startswith("spec.toml:4:" if length < 1000 else "spec.toml:")
        assert line.endswith(NESTED) or "TOML that cannot be read" in line


class TestControlCharacters:
    @pytest.mark.parametrize("character", [r"\u001b", r"\u0000", r"\u007f", r"\u009b", r"\u202e", r"\u2028"])
    def test_in_text_are_refused_and_escaped_in_the_message(self, mistakes: Mistakes, character: str) -> None:
        (line,) = mistakes(SIN + f'notes = "red {character}[31m"\n')
        shown = character.replace(r"\u00", r"\x")
        assert line == f"spec.toml:4:9: the text contains a control character ({shown}); expected printable text"

    def test_in_keys_are_refused_at_the_key(self, mistakes: Mistakes) -> None:
        text = SIN.replace('{ use = "unary" }', r'{ kwargs = { "a\u001b" = 1 } }')
        assert mistakes(text) == [
            r'spec.toml:3:25: the key "a\x1b" contains a control character (\x1b); expected printable text'
        ]

    def test_tabs_and_line_ends_are_text(self, loaded: Load) -> None:
        assert loaded(SIN + 'notes = """one\n\ttwo"""\n')


def test_a_file_has_no_more_values_than_can_be_looked_at_soon() -> None:
    Document.parse("a.toml", f"a = [{'0,' * (MOST_VALUES - 1)}]")
    with pytest.raises(SpecError) as caught:
        Document.parse("a.toml", f"a = [{'0,' * MOST_VALUES}]")
    assert str(caught.value) == (
        f"a.toml:1:1: {MOST_VALUES + 1} values are too many for one file; expected at most {MOST_VALUES}"
    )
