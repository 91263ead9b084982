"""The tables of docs/library.md: each family says what it is about, each operator what it claims."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
tool = runpy.run_path(str(ROOT / "tools" / "library.py"))


def row(table, first):
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("family", tool["families"]())
def test_each_family_says_what_it_is_about(family):
    assert tool["about"]((ROOT / "specs" / f"{family}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("# Sums and products.\n\n[defaults]\n", "Sums and products"),
        ("# Sums\n# and products. Not means.\n\n# More.\n", "Sums and products"),
        ("# Sums.\n#\n# Not means.\n", "Sums"),
        ("[defaults]\n# Sums.\n", ""),
    ],
)
def test_it_is_the_first_sentence_of_the_file(text, about):
    assert tool["about"](text) == about


def test_an_operator_has_a_row_with_its_claims():
    table = tool["operators"]()
    _, family, dtypes, ways, disclaimed, samples, _ = row(table, "`torch.div`")
    assert (family, dtypes, disclaimed) == ("binary/arithmetic", "all", "")
    assert ways == "method, in place, `torch.divide`, `torch.true_divide`"
    assert int(samples) > 0
    assert row(table, "`torch.igamma`")[4] == "`backward` in part, `forward_ad`"
    assert row(table, "`torch.fft.fft`")[2] == "all but half; backward single, double"


def test_the_last_row_of_the_families_sums_up():
    rows = tool["overview"]().splitlines()[2:]
    counts = [[int(cell) for cell in line.split("|")[3:5]] for line in rows]
    assert [sum(column) for column in zip(*counts[:-1], strict=True)] == counts[-1]
    assert len(tool["operators"]().splitlines()) == counts[-1][0] + 2
