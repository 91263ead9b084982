"""Failures of one cause are one report."""

from __future__ import annotations

from opcheck.report.causes import failures_by_cause
from opcheck.running.outcome import Outcome


def record(check, outcome, reason="", operator="mine.op", dtype="float64", **fields):
    name = f"{operator}::{check}[cpu-{dtype}]"
    return Outcome(
        id=name, operator=operator, variant="function", device="cpu", dtype=dtype, check=check, family="",
        outcome=outcome, reason=reason, fields=fields,
    )  # fmt: skip


def told(*records):
    return [(failure.record.check, failure.followers()) for failure in failures_by_cause(records)]


def test_what_passes_is_no_failure():
    assert told(record("vmap", "passed"), record("dtypes", "skipped"), record("saved", "xfailed")) == []


def test_one_error_of_an_operator_is_one_report_and_names_the_other_cases():
    refused = [record(check, "error", "f() takes 2 arguments") for check in ("backward", "vmap", "dtypes")]
    assert told(*refused) == [("backward", ["the same: vmap[cpu-float64], dtypes[cpu-float64]"])]


def test_errors_of_other_operators_or_for_other_reasons_are_reports_of_their_own():
    records = [
        record("backward", "error", "no"), record("vmap", "error", "never"),
        record("backward", "error", "no", operator="mine.other"),
    ]  # fmt: skip
    assert told(*records) == [("backward", []), ("vmap", []), ("backward", [])]


def test_failures_are_reports_of_their_own_whatever_they_say():
    assert len(told(record("backward", "failed", "wrong"), record("forward_ad", "failed", "wrong"))) == 2


def test_an_exception_that_fails_one_claim_in_several_checks_and_dtypes_is_one_report():
    def fails(check, key, raised="RuntimeError: boo", dtype="float64"):
        return record(check, "failed", raised, dtype=dtype, raised=raised, remedy={"key": key, "write": False})

    same = [
        fails("backward", "supports.backward"),
        fails("dtypes", "dtypes.backward"),
        fails("dtypes", "dtypes.backward", dtype="float16"),
    ]
    others = [
        fails("vmap", "supports.vmap"),
        fails("dtypes", "dtypes.backward", "RuntimeError: not for Half", dtype="bfloat16"),
    ]
    assert told(*same, *others) == [
        ("backward", ["the same: dtypes[cpu-float64], dtypes[cpu-float16]"]),
        ("vmap", []),
        ("dtypes", []),
    ]


def test_what_a_failure_blocks_is_named_with_it_whichever_comes_first():
    blocked = record("backward", "blocked", "not judged", blocked_by="purity")
    cause = record("purity", "failed", "writes")
    for records in ((blocked, cause), (cause, blocked)):
        assert told(*records) == [("purity", ["not judged because of it: backward[cpu-float64]"])]


def test_a_cause_in_another_dtype_is_another_one():
    blocked = record("backward", "blocked", "not judged", dtype="complex128", blocked_by="purity")
    assert len(told(record("purity", "failed", "writes"), blocked)) == 2


def test_where_the_cause_was_not_selected_the_first_that_is_blocked_is_told():
    records = [record(check, "blocked", "not judged", blocked_by="purity") for check in ("backward", "forward_ad")]
    assert told(*records) == [("backward", ["not judged because of it: forward_ad[cpu-float64]"])]


def test_of_many_names_a_few_are_told():
    records = [record(f"check{number}", "error", "no") for number in range(12)]
    ((_, (line,)),) = told(*records)
    assert line.endswith("check8[cpu-float64] and 3 more")


def test_a_chain_is_told_with_its_first_cause():
    records = [
        record("context", "blocked", "not judged", blocked_by="nondeterminism"),
        record("nondeterminism", "blocked", "not judged", blocked_by="purity"),
        record("purity", "failed", "writes"),
    ]
    assert told(*records) == [
        ("purity", ["not judged because of it: context[cpu-float64], nondeterminism[cpu-float64]"])
    ]


def test_a_circle_ends():
    records = [record("a", "blocked", "no", blocked_by="b"), record("b", "blocked", "no", blocked_by="a")]
    assert sum(1 + len(failure.others) for failure in failures_by_cause(records)) == 2
