"""The places that opcheck.spec.positions gives for keys and values, against hand-made and made-up documents."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from opcheck.spec.positions import KeyPath, Positions, Span


def shown(text: str, span: Span | None) -> str | None:
    """A place as `line:column text`, so that a test states both where it starts and where it ends."""
    return f"{span.line}:{span.column} {text[span.start : span.end]}" if span else None


def value_at(text: str, *path: str | int) -> str | None:
    return shown(text, Positions(text).value(path))


def key_at(text: str, *path: str | int) -> str | None:
    return shown(text, Positions(text).key(path))


class TestKeys:
    def test_a_bare_key_is_found_where_it_is_written(self) -> None:
        assert key_at("a = 1\n  b-2_c = 2", "b-2_c") == "2:3 b-2_c"

    def test_a_key_of_digits_is_still_a_name(self) -> None:
        assert key_at("1234 = 1", "1234") == "1:1 1234"
        assert key_at("3.14 = 1", "3", "14") == "1:3 14"

    def test_quoted_keys_keep_their_quotes_in_the_span(self) -> None:
        assert key_at('"a b" = 1', "a b") == '1:1 "a b"'
        assert key_at("'a\"b' = 1", 'a"b') == "1:1 'a\"b'"
        assert key_at('"" = 1', "") == '1:1 ""'

    def test_escapes_in_quoted_keys_are_decoded(self) -> None:
        assert key_at(r'"a\tb\u00e9\"]" = 1', 'a\tb\u00e9"]') == r'1:1 "a\tb\u00e9\"]"'
        assert key_at(r"'a\tb' = 1", r"a\tb") == r"1:1 'a\tb'"

    def test_delimiters_in_quoted_keys_are_part_of_the_name(self) -> None:
        text = '["a.b]".\'c#d\']\n"e = 1" = {"f,}" = 2}'
        assert key_at(text, "a.b]", "c#d") == "1:9 'c#d'"
        assert key_at(text, "a.b]", "c#d", "e = 1", "f,}") == '2:12 "f,}"'

    def test_each_part_of_a_dotted_key_has_its_own_place(self) -> None:
        text = 'a.b . "c" .d = 1'
        assert key_at(text, "a") == "1:1 a"
        assert key_at(text, "a", "b") == "1:3 b"
        assert key_at(text, "a", "b", "c") == '1:7 "c"'
        assert key_at(text, "a", "b", "c", "d") == "1:12 d"
        assert value_at(text, "a", "b", "c", "d") == "1:16 1"

    def test_keys_of_inline_tables_have_places(self) -> None:
        text = "p = { q = 1, r.s = { t = 2 } }"
        assert key_at(text, "p", "q") == "1:7 q"
        assert key_at(text, "p", "r") == "1:14 r"
        assert key_at(text, "p", "r", "s") == "1:16 s"
        assert key_at(text, "p", "r", "s", "t") == "1:22 t"

    def test_an_element_of_an_array_has_its_value_for_a_key(self) -> None:
        assert key_at("a = [1, 22]", "a", 1) == value_at("a = [1, 22]", "a", 1) == "1:9 22"


class TestScalars:
    @pytest.mark.parametrize(
        "value",
        [
            *["0", "+1", "-17", "1_000", "0xDEAD_beef", "0o17", "0b01"],
            *["3.14", "-0.0", "5e+22", "6.626e-34", "inf", "+inf", "-inf", "nan", "-nan", "true", "false"],
            *["1979-05-27T07:32:00Z", "1979-05-27 07:32:00.5-07:00", "1979-05-27 07:32:00", "1979-05-27", "07:32:00"],
            *[
                '""',
                "''",
                '"x"',
                r'"a \" b"',
                r'"ends with a backslash \\"',
                "'C:\\'",
                "'\"'",
                '"\'"',
                '"# [ ] { } , ="',
            ],
            *['""""""', "''''''", '"""x"""', "'''x'''", '"""a\n"b" ""c""\n"""', "'''a\n'b' ''c''\n'''"],
            *['""""quoted""""', '"""""quoted"""""', "''''quoted''''", "'''''quoted'''''"],
            *[r'"""a \""" b \\"""', '"""a \\\n   b"""', '"""\n# no comment\n[no.header]\nno = "key"\n"""', r"'''\'''"],
        ],
    )
    def test_the_whole_text_of_a_value_is_found_wherever_it_stands(self, value: str) -> None:
        for before, after in [("k = ", ""), ("k=", "# '"), ("k\t=\t", " \t# ]"), ("# x\n\nk = ", "\nl = 2")]:
            text = before + value + after
            tomli.loads(text)
            lines = before.split("\n")
            assert value_at(text, "k") == f"{len(lines)}:{len(lines[-1]) + 1} {value}"
        text = f"k = [[{value}], {{ l = {value}}}, {value}#\n]\nm = 3"
        tomli.loads(text)
        for element in ([0, 0], [1, "l"], [2]):
            place = Positions(text).value(("k", *element))
            assert place is not None
            assert text[place.start : place.end] == value
        assert value_at(text, "m") == f"{3 + 3 * value.count(chr(10))}:5 3"

    def test_a_date_followed_by_a_comment_ends_at_the_date(self) -> None:
        assert value_at("d = 1979-05-27 # 07:32:00", "d") == "1:5 1979-05-27"

    def test_a_string_of_many_lines_starts_at_its_quotes_and_the_lines_in_it_count(self) -> None:
        text = 'a = """\none\n"two"\n"""\nb = 1'
        assert value_at(text, "a") == '1:5 """\none\n"two"\n"""'
        assert value_at(text, "b") == "5:5 1"


class TestArraysAndInlineTables:
    def test_an_array_and_each_element_have_places(self) -> None:
        text = "a = [ [1,2], [], ['x', [3]] ]"
        assert value_at(text, "a") == "1:5 [ [1,2], [], ['x', [3]] ]"
        assert value_at(text, "a", 0, 1) == "1:10 2"
        assert value_at(text, "a", 1) == "1:14 []"
        assert value_at(text, "a", 2) == "1:18 ['x', [3]]"
        assert value_at(text, "a", 2, 1, 0) == "1:25 3"

    def test_comments_and_brackets_in_an_array_of_many_lines_do_not_mislead(self) -> None:
        text = 'a = [ # the first ]\n  1, # "\n\n  "]", # [\n  [ # ,\n  ], # last comma\n  # ]\n] # end\nb = 2'
        assert value_at(text, "a", 0) == "2:3 1"
        assert value_at(text, "a", 1) == '4:3 "]"'
        assert value_at(text, "a", 2) == "5:3 [ # ,\n  ]"
        assert value_at(text, "a", 3) is None
        assert value_at(text, "a") == "1:5 " + text[4:].removesuffix(" # end\nb = 2")
        assert key_at(text, "b") == "9:1 b"

    def test_an_inline_table_and_its_values_have_places(self) -> None:
        text = "p = { x = 1, y = [ { z = 'a}' }, {} ] }  # {"
        assert value_at(text, "p") == "1:5 { x = 1, y = [ { z = 'a}' }, {} ] }"
        assert value_at(text, "p", "x") == "1:11 1"
        assert value_at(text, "p", "y", 0) == "1:20 { z = 'a}' }"
        assert value_at(text, "p", "y", 0, "z") == "1:26 'a}'"
        assert value_at(text, "p", "y", 1) == "1:34 {}"

    def test_an_array_of_inline_tables_over_lines_has_places(self) -> None:
        text = "[[op]]\nargs = [\n  {shape = [2, 3]}, # x\n  {shape = [], dtype = 'f'},\n]\n"
        assert value_at(text, "op", 0, "args", 0, "shape", 1) == "3:16 3"
        assert value_at(text, "op", 0, "args", 1) == "4:3 {shape = [], dtype = 'f'}"
        assert key_at(text, "op", 0, "args", 1, "dtype") == "4:16 dtype"

    def test_dotted_keys_in_an_inline_table_share_their_first_mention(self) -> None:
        text = "p = {a.b = 1, a.c = 2}"
        assert value_at(text, "p", "a") == key_at(text, "p", "a") == "1:6 a"
        assert value_at(text, "p", "a", "c") == "1:21 2"

    def test_an_inline_table_may_span_lines_with_comments_and_a_last_comma(self) -> None:
        text = "p = {\n  a = 1, # }\n  b = {\n  },\n}\nq = 2"  # as of TOML 1.1
        assert value_at(text, "p", "a") == "2:7 1"
        assert value_at(text, "p", "b") == "3:7 {\n  }"
        assert value_at(text, "p") == "1:5 " + text[4:-6]
        assert value_at(text, "q") == "6:5 2"

    def test_brackets_nested_more_deeply_than_a_spec_may_be_are_followed(self) -> None:
        text = "k = " + "[{a = " * 49 + "1" + "}]" * 49
        assert value_at(text, "k", *(0, "a") * 49) == f"1:{5 + 6 * 49} 1"

    def test_brackets_nested_as_deeply_as_tomli_allows_do_not_hide_what_follows(self) -> None:
        text = "k = " + "[{a = " * 200 + "1" + "}]" * 200 + "\nb = 2"
        assert value_at(text, "b") == "2:5 2"


class TestTables:
    def test_a_table_runs_from_its_header_to_its_last_line(self) -> None:
        text = "x = 0\n\n  [ a ] # about a\nb = 1 # about b\n# the end\n\n[c]\n"
        assert key_at(text, "a") == "3:5 a"
        assert value_at(text, "a") == "3:3 [ a ] # about a\nb = 1"
        assert value_at(text, "a", "b") == "4:5 1"
        assert value_at(text, "c") == "7:1 [c]"

    def test_a_table_holds_the_sub_tables_below_it(self) -> None:
        text = "[a]\nx = 1\n[a.b]\ny = 2\n[a.b.c]\n[a.d]\nz = [\n]\n\n[e]"
        assert value_at(text, "a") == "1:1 " + text.removesuffix("\n\n[e]")
        assert value_at(text, "a", "b") == "3:1 [a.b]\ny = 2\n[a.b.c]"
        assert value_at(text, "a", "b", "c") == "5:1 [a.b.c]"
        assert value_at(text, "a", "d") == "6:1 [a.d]\nz = [\n]"

    def test_a_sub_table_apart_from_its_table_is_not_in_its_text(self) -> None:
        text = "[a]\nx = 1\n[b]\n[a.c]\ny = 2"
        assert value_at(text, "a") == "1:1 [a]\nx = 1"
        assert value_at(text, "a", "c") == "4:1 [a.c]\ny = 2"

    def test_a_super_table_without_a_header_is_where_it_is_first_mentioned(self) -> None:
        text = "[a.b.c]\n[a.b.d]"
        assert value_at(text, "a") == key_at(text, "a") == "1:2 a"
        assert value_at(text, "a", "b") == key_at(text, "a", "b") == "1:4 b"
        assert key_at(text, "a", "b", "d") == "2:6 d"

    def test_a_header_counts_more_than_an_earlier_mention(self) -> None:
        text = "[a.b]\nx = 1\n[a]\ny = 2\n[a.c]"
        assert key_at(text, "a") == "3:2 a"
        assert value_at(text, "a") == "3:1 [a]\ny = 2\n[a.c]"
        assert value_at(text, "a", "b") == "1:1 [a.b]\nx = 1"

    def test_a_table_made_by_dotted_keys_is_where_it_is_first_mentioned(self) -> None:
        text = "[t]\na.b = 1\na.c = 2\n[t.a.d]\nx = 3"
        assert value_at(text, "t", "a") == key_at(text, "t", "a") == "2:1 a"
        assert value_at(text, "t", "a", "c") == "3:7 2"
        assert value_at(text, "t", "a", "d", "x") == "5:5 3"

    def test_quoted_and_spaced_headers_are_read(self) -> None:
        text = "[ a . \"b.c\" . 'd' ]\nx = 1"
        assert key_at(text, "a", "b.c") == '1:7 "b.c"'
        assert key_at(text, "a", "b.c", "d") == "1:15 'd'"
        assert value_at(text, "a", "b.c", "d", "x") == "2:5 1"


class TestArraysOfTables:
    TEXT = """\
# operators
[[operator]]
name = "a"

[operator.x]
p = 1
[[operator.samples]]
args = [1]
[[operator.samples]]
args = [2]  # two
[operator.samples.more]
q = 2

# the next
[[operator]]
[[operator.samples]]

[other]
"""

    def test_an_entry_runs_from_its_header_to_the_end_of_its_sub_tables(self) -> None:
        lines = self.TEXT.splitlines()
        assert value_at(self.TEXT, "operator", 0) == "2:1 " + "\n".join(lines[1:12])
        assert value_at(self.TEXT, "operator", 1) == "15:1 [[operator]]\n[[operator.samples]]"
        assert value_at(self.TEXT, "operator", 0, "x") == "5:1 [operator.x]\np = 1"
        assert value_at(self.TEXT, "operator", 0, "samples", 1) == "9:1 " + "\n".join(lines[8:12])

    def test_the_name_in_the_header_is_the_key_of_an_entry(self) -> None:
        assert key_at(self.TEXT, "operator", 0) == "2:3 operator"
        assert key_at(self.TEXT, "operator", 1) == "15:3 operator"
        assert key_at(self.TEXT, "operator", 0, "samples", 1) == "9:12 samples"

    def test_the_array_as_a_whole_is_the_name_in_its_first_header(self) -> None:
        assert key_at(self.TEXT, "operator") == value_at(self.TEXT, "operator") == "2:3 operator"
        assert key_at(self.TEXT, "operator", 1, "samples") == "16:12 samples"

    def test_sub_tables_belong_to_the_latest_entry(self) -> None:
        assert value_at(self.TEXT, "operator", 0, "samples", 1, "more", "q") == "12:5 2"
        assert value_at(self.TEXT, "operator", 0, "samples", 0, "more") is None
        assert value_at(self.TEXT, "operator", 1, "x") is None
        assert value_at(self.TEXT, "operator", 1, "samples", 0) == "16:1 [[operator.samples]]"

    def test_an_array_of_tables_may_lie_below_a_table_never_mentioned_itself(self) -> None:
        text = "[[a.b]]\nx = 1\n[[a.b]]\nx = 2"
        assert value_at(text, "a") == "1:3 a"
        assert value_at(text, "a", "b", 1) == "3:1 [[a.b]]\nx = 2"
        assert value_at(text, "a", "b", 1, "x") == "4:5 2"


class TestTheTextAsGiven:
    def test_crlf_line_ends_count_once_for_lines_and_never_for_columns(self) -> None:
        text = '[t]\r\na = """x\r\ny"""\r\n# c\r\nb = [\r\n  1,\r\n]\r\n\r\n[u]\r\n'
        assert value_at(text, "t", "a") == '2:5 """x\r\ny"""'
        assert value_at(text, "t", "b", 0) == "6:3 1"
        assert value_at(text, "t") == "1:1 " + text.removesuffix("\r\n\r\n[u]\r\n")
        assert key_at(text, "u") == "9:2 u"

    def test_columns_count_characters_not_bytes(self) -> None:
        text = "'日本' = {'é' = '😀', b = 1} # ü\n\"ñ\".c = 2"
        assert key_at(text, "日本", "é") == "1:9 'é'"
        assert value_at(text, "日本", "b") == "1:24 1"
        assert value_at(text, "ñ", "c") == "2:9 2"

    def test_unusual_line_separators_in_strings_do_not_start_a_line(self) -> None:
        assert value_at("a = ['\u2028\u0085', 1]\nb = 2", "a", 1) == "1:12 1"
        assert value_at("a = ['\u2028\u0085', 1]\nb = 2", "b") == "2:5 2"

    def test_the_document_is_all_of_the_text(self) -> None:
        assert value_at("\n# a\nb = 1\n") == "1:1 \n# a\nb = 1\n"
        assert value_at("") == "1:1 "

    def test_a_path_that_is_not_in_the_document_has_no_place(self) -> None:
        for path in [("b",), ("a", "b"), ("a", 0), (0,), ("c", 2), ("c", -1), ("c", "0")]:
            assert value_at("a = 1\nc = [1, 2]", *path) is None
            assert key_at("a = 1\nc = [1, 2]", *path) is None


class TestTextThatIsNotToml:
    def test_the_lines_around_a_bad_one_are_still_found(self) -> None:
        text = "a = 1\nb = = 2\n[c\n???\n[d]\ne = \nf = 'x\ng = 3"
        assert value_at(text, "a") == "1:5 1"
        assert value_at(text, "d", "g") == "8:5 3"
        assert value_at(text, "d", "e") == "6:1 e"

    def test_text_that_breaks_off_anywhere_is_scanned_to_its_end(self) -> None:
        text = '[[a."b\\t"]]\nc.d = [{e = """x\n""" , f = \'\'\'y\'\'\'}, 1.5, # z\n]\n[g]\nh = 1979-05-27 07:32:00'
        tomli.loads(text)
        for end in range(len(text)):
            assert Positions(text[:end]).value(()) is not None
            assert Positions(text[end:]).value(()) is not None

    @given(st.text(alphabet="ab\"'\\=.,#[]{}\n\r \té1-", max_size=60))
    @settings(max_examples=100, deadline=None)
    def test_any_text_at_all_is_scanned_to_its_end(self, text: str) -> None:
        span = Positions(text).value(())
        assert span == Span(0, len(text), 1, 1)


names = st.one_of(
    st.sampled_from(["a", "b", "shape", "x-1", "2", "", "a.b", "é", '"', "'", "\\", "]", "# ="]), st.text()
)
nasty = st.text(alphabet="ab\"'\\#=,.[]{}\n\r\t \u00e9\u2028\x00\x7f😀", max_size=12)
# tomli would accept nan too; only, it is not equal to itself.
scalars = st.one_of(nasty, st.text(max_size=8), st.integers(), st.floats(allow_nan=False), st.booleans())


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    tables = st.dictionaries(names, children, max_size=4)
    return st.one_of(tables, st.lists(children, max_size=3), st.lists(tables, min_size=1, max_size=3))


documents = st.dictionaries(names, st.recursive(scalars, containers, max_leaves=25), max_size=5)


class Writer:
    """Writes data as TOML, each part in a style drawn by chance, with blanks and comments wherever they may stand."""

    COMMENTS = ("#", "# x", "# [x]", "# x = '", '#"""', "# ]}, é")

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def document(self, data: dict[str, Any]) -> str:
        text = "".join(self.body(data, ()))
        if self.chance.random() < 0.3:
            text = text.rstrip("\n")
        return text.replace("\n", "\r\n") if self.chance.random() < 0.3 else text

    def body(self, table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
        """The lines of a table, then its sub-tables; the header has been written."""
        sections = {}
        for name, value in table.items():
            if (is_table(value) or is_array_of_tables(value)) and self.chance.random() < 0.6:
                sections[name] = value
            else:
                yield from self.assignment((name,), value)
        for name, value in sections.items():
            below = (*path, name)
            if isinstance(value, list):
                for entry in value:
                    yield self.header(below, "[[", "]]")
                    yield from self.body(entry, below)
            else:
                yield from self.table(value, below)

    def table(self, table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
        """A `[table]`; one that holds only tables may go without a header, or have it below one of them."""
        if table and all(map(is_table, table.values())) and self.chance.random() < 0.5:
            (first, value), *others = table.items()
            yield from self.table(value, (*path, first))
            if self.chance.random() < 0.5:
                yield self.header(path, "[", "]")
                yield from self.body(dict(others), path)
            else:
                for name, value in others:
                    yield from self.table(value, (*path, name))
        else:
            yield self.header(path, "[", "]")
            yield from self.body(table, path)

    def header(self, path: tuple[str, ...], opening: str, closing: str) -> str:
        return self.blank() + opening + self.blank() + self.key(path) + self.blank() + closing + self.line_end()

    def assignment(self, path: tuple[str, ...], value: Any) -> Iterator[str]:
        if value and is_table(value) and self.chance.random() < 0.5:
            for name, below in value.items():
                yield from self.assignment((*path, name), below)
        else:
            yield (
                self.blank() + self.key(path) + self.blank() + "=" + self.blank() + self.value(value) + self.line_end()
            )

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = [self.key((name,)) + self.blank() + "=" + self.blank() + self.value(v) for name, v in value.items()]
            return "{" + self.blank() + (self.blank() + "," + self.blank()).join(pairs) + self.blank() + "}"
        if isinstance(value, list):
            elements = [self.gap() + self.value(element) + self.gap() for element in value]
            last_comma = "," + self.gap() if value and self.chance.random() < 0.3 else ""
            return "[" + ",".join(elements) + last_comma + self.gap() + "]"
        if isinstance(value, bool):
            return "true" if value else "false"
        return self.string(value) if isinstance(value, str) else repr(value)

    def string(self, value: str) -> str:
        styles = [basic_string(value), f'""{basic_string(value)}""']
        if is_printable(value) and "'" not in value:
            styles.append(f"'{value}'")
        if is_printable(value.replace("\n", "")):
            # The text's own quotes may touch the three that close it.
            if "'''" not in value:
                styles.append(f"'''\n{value}'''")
            if '"""' not in value:
                styles.append('"""\n' + value.replace("\\", "\\\\") + '"""')
        return self.chance.choice(styles)

    def key(self, path: tuple[str, ...]) -> str:
        return (self.blank() + "." + self.blank()).join(map(self.name, path))

    def name(self, name: str) -> str:
        styles = [basic_string(name)]
        if is_printable(name) and "'" not in name:
            styles.append(f"'{name}'")
        if re.fullmatch("[A-Za-z0-9_-]+", name):
            styles.append(name)
        return self.chance.choice(styles)

    def blank(self) -> str:
        return self.chance.choice(["", "", "", " ", "\t "])

    def gap(self) -> str:
        return self.chance.choice(["", "", " ", "\n", " " + self.chance.choice(self.COMMENTS) + "\n\t"])

    def line_end(self) -> str:
        comment = self.chance.choice(self.COMMENTS)
        return self.chance.choice(["\n", "\n", "  \n\n", f" {comment}\n", f"\n{comment}\n"])


def is_table(value: Any) -> bool:
    return isinstance(value, dict)


def is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and value != [] and all(map(is_table, value))


def is_printable(text: str) -> bool:
    """Whether a literal string can hold the text on one line."""
    return not re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text)


def basic_string(text: str) -> str:
    """JSON's strings are TOML's but for DEL, which JSON lets stand."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def paths(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """All values of a document, each with the path that leads to it."""
    yield path, data
    if isinstance(data, dict):
        for name, value in data.items():
            yield from paths(value, (*path, name))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from paths(value, (*path, index))


@given(documents, st.integers(min_value=0))
@settings(max_examples=100, deadline=None)
def test_what_stands_at_the_place_of_a_path_is_what_tomli_reads_there(data: dict[str, Any], seed: int) -> None:
    text = Writer(random.Random(seed)).document(data)
    assert tomli.loads(text) == data
    check_all_places(text)


def check_all_places(text: str) -> None:
    positions = Positions(text)
    for path, value in paths(tomli.loads(text)):
        key, place = positions.key(path), positions.value(path)
        assert key is not None
        assert place is not None
        for span in (key, place):
            *lines_before, line_before = text[: span.start].split("\n")
            assert (span.line, span.column) == (len(lines_before) + 1, len(line_before) + 1)

        if path and isinstance(path[-1], str):
            assert list(tomli.loads(text[key.start : key.end] + " = 1")) == [path[-1]]
        written = text[place.start : place.end]
        if path == ():
            assert written == text
        elif place.start < key.start:  # the key is in the value's own header: a section
            below = {name: positions.value((*path, name)) for name in value}
            inside = {name: value[name] for name, span in below.items() if span and span.start > place.start}
            assert section(written, path) == inside
        elif place == key and isinstance(path[-1], str):  # nothing but mentioned in others' headers or keys
            assert is_table(value) or is_array_of_tables(value)
        else:
            assert tomli.loads("x = " + written)["x"] == value


def section(written: str, path: KeyPath) -> Any:
    """What a section's text means, read as a document of its own."""
    found: Any = tomli.loads(written)
    for component in path:
        if isinstance(component, str):
            found = found[component]
    if isinstance(path[-1], int):
        (found,) = found
    return found
