"""How the report tells what is left out."""

from __future__ import annotations

from collections import Counter

from opcheck.plan.left_out import Rule
from opcheck.report.left_out import received, records, sent, told
from opcheck.run.outcome import Outcome

FOUND = Counter({Rule("npu", "lacks float64"): 30, Rule("npu", "deny"): 212, Rule("cpu", "devices"): 1})


def test_each_device_has_a_line_with_the_most_common_reason_first():
    assert told(FOUND) == ["left out on npu: 212 cases (deny), 30 (lacks float64)", "left out on cpu: 1 case (devices)"]
    assert told(Counter()) == []


def test_records_have_the_keys_of_those_of_cases():
    found = records(FOUND)
    assert [(one["device"], one["reason"], one["fields"]) for one in found] == [
        ("npu", "deny", {"cases": 212}),
        ("npu", "lacks float64", {"cases": 30}),
        ("cpu", "devices", {"cases": 1}),
    ]
    assert {one["outcome"] for one in found} == {"left_out"}
    assert len({one["id"] for one in found}) == 3
    outcome = Outcome("id", "torch.sin", "function", "vmap", "cpu", "float64", "unary", "passed")
    assert {frozenset(one) for one in found} == {frozenset(outcome.record())}


def test_another_process_gets_the_same_counts():
    assert received(sent(FOUND)) == FOUND
