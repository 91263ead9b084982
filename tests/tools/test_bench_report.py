"""The benchmark of reports: what it measures holds, and it can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parent.parent.parent / "tools" / "bench_report.py"


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PATH, *options], capture_output=True, text=True)


@pytest.mark.nightly
def test_a_large_report_is_written_and_merged_soon_in_little_memory():
    done = bench()
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^20000 cases written and merged: \d\.\d\d s of CPU time$", done.stdout, re.MULTILINE)


@pytest.mark.nightly
@pytest.mark.parametrize("limit", ["--most-seconds=0.001", "--most-mib=1"])
def test_what_takes_more_than_allowed_fails(limit):
    assert bench("--cases=10", limit).returncode == 1
