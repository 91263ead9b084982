"""The faults of torch that come with the library, as text to file."""

from __future__ import annotations

from dataclasses import replace

from opcheck.report.findings import KINDS, findings

FINDING = replace(findings()[0], title="a_ is wrong", right="2 * x", since="2.13.0", link="", mended="")


def test_the_worst_come_first():
    assert [*dict.fromkeys(finding.kind for finding in findings())] == [*KINDS]


def test_ids_are_unique():
    assert len({finding.id for finding in findings()}) == len(findings())


def test_text_to_file_says_what_is_wrong_what_is_right_and_where():
    text = FINDING.text("2.13.1", "actual = 1\nexpected = 2")
    assert text.startswith("# a_ is wrong\n")
    assert f"```python\n{FINDING.reproduction}\n```" in text
    assert "## Actual\n\n```\nactual = 1\nexpected = 2\n```" in text
    assert "## Expected\n\n2 \\* x\n" in text
    assert text.endswith("## Versions\n\ntorch 2.13.1; seen since 2.13.0 at least.\n")
    assert "opcheck" not in text


def test_text_says_where_it_is_known_and_where_it_is_mended():
    text = replace(FINDING, link="https://example.org/1", mended="2.14").text("2.14.1", "")
    assert "not seen in torch 2.14.1" in text
    assert text.endswith("torch 2.14.1; seen since 2.13.0 at least, mended in 2.14.\n\nSee https://example.org/1\n")
