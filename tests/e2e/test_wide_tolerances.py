"""Operators that are held to wider tolerances are counted where a run ends, and named in reports."""

from __future__ import annotations

import pytest
from report_files import lines

SPEC = """
[[operator]]
name      = "demo.double"
dtypes    = ["float64"]
tolerance = { check = { backward = { atol = 0.01 } } }
samples   = [{ args = [{ shape = [2] }] }]
"""
LINE = "demo.double is held to atol = 0.01 in backward"


@pytest.fixture
def wide(project):
    project.write("specs/wide.toml", SPEC)
    return project


def test_they_are_counted_and_listed_on_request(wide, cli):
    words = ("run", "specs/wide.toml", "--check", "backward,forward_ad")
    run = cli(*words)
    assert run.code == 0
    assert "1 operator is held to wider tolerances: --wide lists them" in run.out
    assert LINE in cli(*words, "--wide").out
    narrow = cli("run", "specs/wide.toml", "--check", "forward_ad")
    assert "wider" not in narrow.out


def test_pytest_counts_them(wide, plain_pytest):
    run = plain_pytest("specs/wide.toml", "--opcheck-check", "backward")
    assert "opcheck: 1 operator is held to wider tolerances: opcheck run --wide lists them" in run.out


def test_reports_name_them(wide, cli):
    cli("run", "specs/wide.toml", "--check", "backward", "--report-json", "wide.json")
    _, record, _ = lines(wide.folder / "wide.json")
    assert record["fields"]["tolerance"] == {"atol": 0.01}
    assert LINE in cli("report", "markdown", "wide.json").out
    cli("report", "html", "wide.json", "-o", "wide.html")
    assert LINE in (wide.folder / "wide.html").read_text()
