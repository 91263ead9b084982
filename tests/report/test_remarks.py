"""How the report tells what is left out."""

from __future__ import annotations

from collections import Counter

from report_files import record

from opcheck.planning.left_out import Rule
from opcheck.report.remarks import left_out_lines, left_out_rows, wide_lines

FOUND = Counter({Rule("npu", "lacks float64"): 30, Rule("npu", "deny"): 212, Rule("cpu", "devices"): 1})


def test_each_device_has_a_line_with_the_most_common_reason_first():
    assert left_out_lines(FOUND) == [
        "left out on npu: 212 cases (deny), 30 (lacks float64)",
        "left out on cpu: 1 case (devices)",
    ]
    assert left_out_lines(Counter()) == []


def test_a_header_has_the_largest_counts_first():
    assert [(one.device, one.reason, one.cases) for one in left_out_rows(FOUND)] == [
        ("npu", "deny", 212), ("npu", "lacks float64", 30), ("cpu", "devices", 1)
    ]  # fmt: skip


def test_an_infinite_tolerance_is_a_text_in_a_report():
    held = record("torch.sin", fields={"tolerance": {"atol": "inf", "rtol": 0.5}})
    assert wide_lines([held]) == ["torch.sin is held to atol = inf, rtol = 0.5 in backward"]
