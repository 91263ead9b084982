"""Telling runs apart, and finding those to compare."""

from __future__ import annotations

import pytest
from report_files import record, report, run

from opcheck.report.makeup import by_device, labels, makeup, paired
from opcheck.report.model import Device


def made(torch="2.13.0", **keys):
    return makeup(run(torch=torch, **keys), "cpu")


def test_a_label_says_what_differs_beside_torch():
    assert [*labels([made(), made("2.14.1")]).values()] == ["torch 2.13.0", "torch 2.14.1"]
    assert [*labels([made(), made(seed=3), made(python="3.12.1")]).values()] == [
        "torch 2.13.0, python 3.11.7, seed 0",
        "torch 2.13.0, python 3.11.7, seed 3",
        "torch 2.13.0, python 3.12.1, seed 0",
    ]
    devices = [Device(name="cpu", details="fast")]
    assert [*labels([made(), made(devices=devices)]).values()] == [
        "torch 2.13.0, details unknown",
        "torch 2.13.0, fast",
    ]
    assert [*labels([made("")]).values()] == ["torch ?"]


def test_records_are_found_by_device_makeup_and_id():
    found = by_device(
        report(record("a"), record("b::vmap[npu-float32]"), record("a", run=1), runs=[run(), run(torch="2.14.1")])
    )
    assert {device: [[*cases] for cases in own.values()] for device, own in found.items()} == {
        "cpu": [["a"], ["a"]], "npu": [["b::vmap[npu-float32]"]]
    }  # fmt: skip


@pytest.mark.parametrize("outcomes", [("passed", "failed"), ("failed", "passed")])
def test_of_two_records_of_a_case_the_bad_one_counts(outcomes):
    runs = [run(started="early"), run(started="late")]
    two = report(*(record("a", outcome, run=number) for number, outcome in enumerate(outcomes)), runs=runs)
    assert [one["a"].outcome for one in by_device(two)["cpu"].values()] == ["failed"]


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
    found = paired(map(made, olds), map(made, news))
    assert {(old and old.torch, new and new.torch) for old, new in found} == expected
