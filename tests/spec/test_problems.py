"""How a mistake is told: one printable line, short enough to be read, with the name that was meant."""

from __future__ import annotations

import difflib

from opcheck.spec.problems import Problem, nearest
from opcheck.text import printable


class TestLines:
    def test_a_mistake_is_one_line(self) -> None:
        assert str(Problem("a.toml", 3, 7, "wrong", "right", "rigt")) == (
            'a.toml:3:7: wrong; expected right; did you mean "rigt"?'
        )

    def test_nothing_in_it_reaches_a_terminal_as_a_command(self) -> None:
        told = str(Problem("\x1b]0;title\x07", 1, 1, 'unknown key "\x1b[2J\u202e"', "\x9b31m", "\udc80"))
        assert told.isprintable()
        assert told == (r'\x1b]0;title\x07:1:1: unknown key "\x1b[2J\u202e"; expected \x9b31m; did you mean "\udc80"?')

    def test_text_in_any_language_stays_as_it_is(self) -> None:
        assert printable("größer, 大きい, больше") == "größer, 大きい, больше"

    def test_what_is_too_long_is_cut_in_its_middle(self) -> None:
        told = str(Problem("a.toml", 1, 1, "x" * 10**6, "y" * 10**6))
        assert len(told) < 1500
        assert "characters left out" in told


class TestNearest:
    def test_the_likeliest_choice_is_found_among_many(self) -> None:
        names = [f"torch.{a}{b}{c}" for a in "abcdefgh" for b in "ijklmno" for c in "pqrstuv"]
        for word in ("torch.ajp", "toch.hos", "torch.cmrr", "trch.dkq"):
            choice = difflib.get_close_matches(word, names, n=1, cutoff=0.6)[0]
            assert nearest(word, names) == choice

    def test_a_word_like_no_other_has_none(self) -> None:
        assert nearest("zzz", ["alpha", "beta"]) == ""
        assert nearest("", ["alpha"] * 100) == ""
        assert nearest("x" * 10**6, ["x" * 10**6]) == ""
