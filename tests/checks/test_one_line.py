"""Exceptions of operators as one line."""

from __future__ import annotations

from opcheck.checks.verdict import one_line


class Mute(Exception):
    def __str__(self):
        raise ValueError("nothing to say")


def test_an_exception_is_one_line():
    assert one_line(ValueError("a\n  b\tc")) == "ValueError: a b c"


def test_an_exception_without_a_message_is_one_line_all_the_same():
    assert one_line(Mute()) == "Mute: (the message is unavailable: __str__ raised ValueError)"


def test_half_a_pair_of_surrogates_is_shown_as_its_escape():
    assert one_line(RuntimeError("\udc80")) == r"RuntimeError: \udc80"


def test_a_long_message_is_cut_with_a_word_on_how_much():
    line = one_line(RuntimeError("x" * 10_000_000))
    assert len(line) <= 500
    assert line.startswith("RuntimeError: xxx")
    assert line.endswith("xxx ... (9999564 characters left out)")
