"""Times and numbers of processes are read as they are typed."""

from __future__ import annotations

import argparse
import os

import pytest

from opcheck.cli.selecting import add_count, duration


@pytest.mark.parametrize(("text", "seconds"), [("20s", 20.0), ("10m", 600.0), ("1.5h", 5400.0), ("7", 7.0)])
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "0", "soon", "infs", "nan"])
def test_what_is_no_time(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no time; expected one such as 20s, 10m or 1h"):
        duration(text)


def test_processes():
    parser = argparse.ArgumentParser()
    add_count(parser)
    counts = [parser.parse_args(words).n for words in ([], ["-n", "auto"], ["-n", "3"])]
    assert counts == [os.cpu_count(), os.cpu_count(), 3]
