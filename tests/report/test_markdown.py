"""A report as Markdown."""

from __future__ import annotations

import re

from report_files import record, report, run

from opcheck.report.content import LeftOut
from opcheck.report.markdown import rendered

NEW = run(torch="2.14.1")


def section(text: str, title: str) -> str:
    """Return what is below a heading; an empty string if there is no such heading."""
    found = re.search(rf"^#+ {re.escape(title)}$\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


def test_a_report_in_which_all_held_is_a_title_and_a_table():
    assert rendered(report(record("a"), record("b"))) == (
        "# opcheck: 2 cases, none failed\n\n| run | passed |\n| --- | --- |\n| cpu, torch 2.13.0 | 2 |\n"
    )


def test_counts_are_by_device_and_version():
    npu = "torch.sin::vmap[npu-float32]"
    text = rendered(report(record("a"), record(npu, "skipped"), record("a", "failed", run=1), runs=[run(), NEW]))
    assert text.startswith("# opcheck: 1 of 3 cases failed\n\n")
    assert text.split("\n\n")[1].splitlines() == [
        "| run | passed | failed | skipped |",
        "| --- | --- | --- | --- |",
        "| cpu, torch 2.13.0 | 1 |  |  |",
        "| npu, torch 2.13.0 |  |  | 1 |",
        "| cpu, torch 2.14.1 |  | 1 |  |",
    ]


class TestFailures:
    def test_each_has_its_reason_its_place_and_its_message(self):
        text = section(rendered(report(record("a"), record("b", "failed", message="line 1\n\nline 2"))), "Failures")
        assert text.splitlines()[0] == "- `b` failed at `specs/unary.toml:3` (cpu, torch 2.13.0): why it failed"
        assert "  ```text\n  line 1\n  \n  line 2\n  ```" in text

    def test_those_of_one_cause_are_told_once(self):
        blocked = record("torch.sin::vmap[cpu-float64]", "blocked", fields={"blocked_by": "backward"})
        text = rendered(report(blocked, record("torch.sin::backward[cpu-float64]", "failed")))
        lines = section(text, "Failures").splitlines()
        assert lines[1] == r"  not judged because of it: vmap\[cpu-float64\]"
        assert len(lines) == 2

    def test_text_is_shown_as_it_is(self):
        odd = "a|b `c` *d* <script> [x](y) & _z_"
        text = section(rendered(report(record("x|y`z", "failed", reason=odd, message="```\n<b>"))), "Failures")
        assert text.startswith("- `` x\\|y`z `` failed")
        assert r"a\|b \`c\` \*d\* \<script\> \[x\](y) &amp; \_z\_" in text
        assert "  ````text\n  ```\n  <b>\n  ````" in text

    def test_many_are_counted_and_few_have_their_message(self):
        many = (record(f"b{number}", "failed", message="m" * 50_000) for number in range(60))
        text = rendered(report(*many))
        assert section(text, "Failures").splitlines()[-1] == "- ... and 10 more"
        assert text.count("<details>") == text.count("</details>") == 10
        assert len(text) < 2**20 / 8


def test_expectations_that_are_met_no_more_have_a_part_of_their_own():
    text = rendered(report(record("a", "xpassed", reason="expected to fail, but holds: issue 3")))
    title = "Expected to fail, but passed: remove the expectation"
    assert section(text, title) == "- `a` (cpu, torch 2.13.0): expected to fail, but holds: issue 3"
    assert section(text, "Failures") == ""
    assert text.startswith("# opcheck: 1 of 1 case failed")


class TestDifferences:
    def test_cases_with_another_outcome_in_another_version_are_told(self):
        old = [record("a"), record("b", "failed"), record("c", "failed")]
        new = [record("a", "failed", run=1), record("b", "failed", run=1), record("c", run=1)]
        assert section(rendered(report(*old, *new, runs=[run(), NEW])), "Where runs differ").splitlines() == [
            "| case | torch 2.13.0 | torch 2.14.1 |".replace("torch", "cpu, torch"),
            "| --- | --- | --- |",
            "| `a` | passed | failed |",
            "| `c` | failed | passed |",
        ]

    def test_those_that_are_not_in_all_are_counted(self):
        text = rendered(report(record("a"), record("b"), record("a", run=1), runs=[run(), NEW]))
        assert section(text, "Where runs differ") == "1 case not in all of cpu, torch 2.13.0, cpu, torch 2.14.1"

    def test_versions_that_agree_are_not_mentioned(self):
        assert "differ" not in rendered(report(record("a"), record("a", run=1), runs=[run(), NEW]))

    def test_devices_have_columns_only_of_their_own(self):
        gpu = run(devices=["cuda"], details={"cuda": "A100"})
        text = rendered(report(record("a"), record("a::vmap[cuda-int8]", "failed", run=1), runs=[run(), gpu]))
        assert "differ" not in text


def test_what_was_not_run_is_counted_with_its_reasons():
    rows = [LeftOut(device="npu", reason="lacks float64", cases=30)]
    records = [
        record("a", "skipped", reason="no"),
        record("b", "skipped", reason="no"),
        record("c", "xfailed", reason="#3"),
    ]
    text = rendered(report(*records, runs=[run(left_out=rows)]))
    assert section(text, "What was not run, or was expected to fail").splitlines() == [
        "- 2 cases skipped (cpu, torch 2.13.0): no",
        r"- 1 case expected to fail (cpu, torch 2.13.0): \#3",
        "- 30 cases left out on npu (torch 2.13.0): lacks float64",
    ]


def test_an_incomplete_report_says_so_first():
    text = rendered(report(record("a"), runs=[run(shard="1/2")]))
    assert text.splitlines()[2] == "## This report is incomplete"
    assert section(text, "This report is incomplete").splitlines()[0].endswith(", shard 2/2 is missing")
