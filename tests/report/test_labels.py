"""Telling runs apart, and finding those to compare."""

from __future__ import annotations

import pytest
from report_files import record, report, run

from opcheck.report.diff import diff
from opcheck.report.labels import columns, conditions_of, labels, pairs


def made(torch="2.13.0", **keys):
    return conditions_of(run(torch=torch, records=[record("a")], **keys))["cpu"]


def test_a_label_says_what_differs_beside_torch():
    assert [*labels([made(), made("2.14.1")]).values()] == ["torch 2.13.0", "torch 2.14.1"]
    assert [*labels([made(), made(seed=3), made(python="3.12.1")]).values()] == [
        "torch 2.13.0, python 3.11.7, seed 0",
        "torch 2.13.0, python 3.11.7, seed 3",
        "torch 2.13.0, python 3.12.1, seed 0",
    ]
    assert [*labels([made(), made(details={"cpu": "fast"})]).values()] == [
        "torch 2.13.0, details unknown",
        "torch 2.13.0, fast",
    ]
    assert [*labels([made("")]).values()] == ["torch ?"]


def test_each_run_has_a_column_for_each_device():
    records = record("a"), record("b::vmap[npu-float32]"), record("a", run=1)
    assert columns(report(*records, runs=[run(), run(torch="2.14.1")])) == [
        {"cpu": "cpu, torch 2.13.0", "npu": "npu, torch 2.13.0"}, {"cpu": "cpu, torch 2.14.1"}
    ]  # fmt: skip


@pytest.mark.parametrize("outcomes", [("passed", "failed"), ("failed", "passed")])
def test_of_two_records_of_a_case_under_the_same_conditions_the_bad_one_counts(outcomes):
    runs = [run(started="early"), run(started="late")]
    two = report(*(record("a", outcome, run=number) for number, outcome in enumerate(outcomes)), runs=runs)
    assert [change.kind for change in diff(report(record("a")), two).changes] == ["newly failing"]


A, B, C = "2.13.0", "2.14.0", "2.15.0"


@pytest.mark.parametrize(
    ("olds", "news", "expected"),
    [
        ([A, B], [B, A], {(A, A), (B, B)}),
        ([A], [C], {(A, C)}),
        ([A, B], [A, C], {(A, A), (B, C)}),
        ([A, "2.14.0"], [A, "2.14.1+cpu", C], {(A, A), ("2.14.0", "2.14.1+cpu"), (None, C)}),
        ([A, "2.15.0.dev20260101"], [A, "2.15.0.dev20260102"], {(A, A), ("2.15.0.dev20260101", "2.15.0.dev20260102")}),
        (["2.14.0", "2.14.1"], ["2.14.2", C], {("2.14.0", None), ("2.14.1", None), (None, "2.14.2"), (None, C)}),
        ([A, B], [A], {(A, A), (B, None)}),
        ([], [A], {(None, A)}),
        (["own build"], ["own build", A], {("own build", "own build"), (None, A)}),
    ],
)
def test_runs_are_compared_with_those_most_like_them(olds, news, expected):
    found = pairs(map(made, olds), map(made, news))
    assert {(old and old.torch, new and new.torch) for old, new in found} == expected
