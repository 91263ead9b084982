"""What TOML has room for and a spec has not: each is refused at its place, before anything else looks at it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opcheck.spec import Library, SpecError
from opcheck.spec.document import DEEPEST, MOST_VALUES, Document

Load = Callable[..., Library]
Mistakes = Callable[..., list[str]]

SIN = '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }]\n'
LARGE = "an integer beyond 64 bits; expected -2^63 to 2^63 - 1"
NESTED = f"this is nested too deeply; expected at most {DEEPEST} levels of tables and arrays"


class TestIntegers:
    @pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "9" * 5000, "0x" + "f" * 5000, str(2**63)])
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

    def test_of_64_bits_are_fine(self, loaded: Load) -> None:
        text = SIN.replace('{ use = "unary" }', f"{{ args = [{2**63 - 1}, {-(2**63)}] }}")
        assert len(loaded(text)) == 1


class TestDepth:
    @pytest.mark.parametrize("depth", [100, 380, 1000])
    @pytest.mark.parametrize("sample", ["{ args = [%s] }", '{ use = "unary", low = %s }', "{ kwargs = { x = %s } }"])
    def test_values_nested_without_end_are_refused(self, mistakes: Mistakes, sample: str, depth: int) -> None:
        text = SIN.replace('{ use = "unary" }', sample % ("[" * depth + "]" * depth))
        (line,) = mistakes(text)
        assert line.startswith("spec.toml:3:")
        assert line.endswith(NESTED)

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
