"""Times and numbers of processes are read as they are typed."""

from __future__ import annotations

import argparse
import os

import pytest

from opcheck.cli.selecting import add_count, duration, time_limit


@pytest.mark.parametrize(("text", "seconds"), [("20s", 20.0), ("10m", 600.0), ("1.5h", 5400.0), ("7", 7.0)])
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "0", "soon", "infs", "nan"])
def test_what_is_no_time(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time; expected one such as 20s, 10m or 1h"):
        duration(text)


def test_time_limits():
    assert [time_limit(text) for text in ("0", "0.5", "1e9")] == [0.0, 0.5, 1e9]


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e30", "5s"])
def test_what_is_no_time_limit(text):
    message = "is not a time limit; expected seconds, at most 1e[+]09, or 0 for none"
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        time_limit(text)


def test_processes():
    parser = argparse.ArgumentParser()
    add_count(parser)
    counts = [parser.parse_args(words).n for words in ([], ["-n", "auto"], ["-n", "3"])]
    assert counts == [os.cpu_count(), os.cpu_count(), 3]
