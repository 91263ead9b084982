"""Text of somebody else, made fit to be shown."""

from __future__ import annotations

import pytest
import torch

from opcheck.text import class_of, message_of, one_line, printable, separated, shortened, well_formed, with_more

DISGUISED = {
    "colours": ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
    "a title of the window": ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
    "CSI in one byte": ("\x9b2J", r"\x9b2J"),
    "overwritten": ("failed\rpassed", r"failed\rpassed"),
    "rubbed out": ("failed\b\b", r"failed\x08\x08"),
    "turned round": ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
    "invisible": ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
    "half a pair": ("\udc80", r"\udc80"),
    "a line of its own": ("a\nb\u2028c", r"a\nb\u2028c"),
    "a tag": ("\U000e0041", r"\U000e0041"),
}


@pytest.mark.parametrize("kind", DISGUISED)
def test_what_would_do_something_to_a_terminal_is_shown(kind):
    text, shown = DISGUISED[kind]
    assert printable(text) == shown


HARMLESS = ["", "torch.sin[inplace]", "größer als 3 µm", "数学 関数", "a\xa0b\u3000c", "e\u0301", r"\x1b"]


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_is_left_alone(text):
    assert printable(text) == text


def test_several_lines_stay_several_lines_where_that_is_asked_for():
    assert printable("a\n\tb\r\x1b", lines=True) == "a\n\tb\\r\\x1b"


def test_what_is_too_long_is_cut_with_a_word_on_how_much():
    shown = printable("x" * 1_000_000)
    assert shown == "x" * 950 + " ... (999050 characters left out)"
    assert printable("x" * 1000) == "x" * 1000
    assert printable("x" * 2000, most=None) == "x" * 2000


def test_the_end_can_be_kept():
    assert shortened("a" * 5000 + "the end", 200, end=7) == "a" * 143 + " ... (4857 characters left out) ... the end"


@pytest.mark.parametrize("end", [0, 50])
def test_what_is_cut_is_not_cut_again(end):
    for length in (200, 201, 249, 250, 251, 10**6):
        once = shortened("x" * length, 200, end)
        assert len(once) <= 200
        assert shortened(once, 200, end) == once


def test_half_a_pair_becomes_its_escape():
    assert well_formed("a\udc80é\U0001f600") == "a\\udc80é\U0001f600"


class Nameless(type):
    @property
    def __name__(cls):
        raise ValueError("no name")


class Mute(Exception, metaclass=Nameless):
    def __str__(self):
        raise Mute

    __repr__ = __str__

    @property
    def __class__(self):
        raise Mute


class Text(str):
    def split(self, *_):
        raise Mute

    encode = split

    def __str__(self):
        return Text("a\udc80")


class Numeric(Exception):
    def __str__(self):
        return 3


def test_a_message_that_cannot_be_had_is_told():
    assert message_of(Mute()) == "(the message is unavailable: __str__ raised Mute)"
    assert message_of(Numeric()) == "(the message is unavailable: __str__ raised TypeError)"


def test_a_message_is_plain_text():
    message = message_of(RuntimeError(Text("")))
    assert (type(message), message) == (str, "a\\udc80")


def test_a_class_without_a_name_has_one():
    assert class_of(Mute()) == "Mute"


def test_names_are_separated_by_commas_and_told_once():
    assert separated(["a, b", "b,,c ", ""]) == ("a", "b", "c")


def test_an_exception_is_one_line():
    assert one_line(ValueError("a\n  b\tc")) == "ValueError: a b c"


def test_an_exception_without_a_message_is_one_line_all_the_same():
    assert one_line(Mute()) == "Mute: (the message is unavailable: __str__ raised Mute)"


def test_an_exception_in_torchscript_is_what_its_last_line_says():
    @torch.jit.script
    def first(x: torch.Tensor):
        return x + torch.zeros(2)

    with pytest.raises(RuntimeError) as caught:
        first(torch.zeros(3))
    begin = "RuntimeError: The size of tensor a (3) must match the size of tensor b (2)"
    assert one_line(caught.value) == f"{begin} at non-singleton dimension 0"


def test_half_a_pair_of_surrogates_is_shown_as_its_escape():
    assert one_line(RuntimeError("\udc80")) == r"RuntimeError: \udc80"


def test_a_long_message_is_cut_with_a_word_on_how_much():
    line = one_line(RuntimeError("x" * 10_000_000))
    assert len(line) <= 500
    assert line.startswith("RuntimeError: xxx")
    assert line.endswith("xxx ... (9999564 characters left out) ... " + 200 * "x")


def test_the_first_texts_are_listed_and_the_others_counted():
    assert with_more(["a", "b"], 2) == "a, b"
    assert with_more(["a", "b"], 5, "; ") == "a; b and 3 more"
