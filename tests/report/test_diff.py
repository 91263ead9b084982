"""Comparing two reports."""

from __future__ import annotations

import pytest
from report_files import record, report, run

from opcheck.report.diff import KINDS, REGRESSIONS, diff
from opcheck.running.outcome import BAD, OutcomeKind
from opcheck.running.outcome import KINDS as OUTCOMES

GOOD: tuple[OutcomeKind, ...] = tuple(kind for kind in OUTCOMES if kind not in BAD)


def kinds(found):
    return [(change.kind, (change.new or change.old).id) for change in found.changes]


def changed(old, new):
    """Return what has changed in a case with these outcomes; None: it is not there."""
    always = record("always")
    both = [report(always, *([record("a", outcome)] if outcome else [])) for outcome in (old, new)]
    found = diff(*both)
    assert found.compared == 1 + bool(old and new)
    assert len(found.changes) <= 1
    return found.changes[0].kind if found.changes else "", found.is_regression()


class TestOutcomes:
    @pytest.mark.parametrize("bad", sorted(BAD))
    @pytest.mark.parametrize("good", [*GOOD, None])
    def test_a_case_that_fails_and_did_not_is_a_regression(self, good, bad):
        assert changed(good, bad) == ("newly failing", True)

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_one_that_is_as_before_is_no_change(self, outcome):
        assert changed(outcome, outcome) == ("", False)

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_one_that_is_not_there_any_more_is_a_regression(self, outcome):
        assert changed(outcome, None) == ("gone", True)

    @pytest.mark.parametrize("outcome", [kind for kind in OUTCOMES if kind != "skipped"])
    def test_so_is_one_that_ran_and_is_skipped(self, outcome):
        assert changed(outcome, "skipped") == ("newly skipped", True)

    @pytest.mark.parametrize(
        ("old", "new", "kind"),
        [
            ("failed", "passed", "mended"), ("error", "passed", "mended"), ("xpassed", "passed", "mended"),
            ("xfailed", "passed", "mended"),
            ("failed", "xfailed", "newly expected to fail"), ("passed", "xfailed", "newly expected to fail"),
            ("skipped", "passed", "newly tested"), ("skipped", "xfailed", "newly tested"), (None, "passed", "new"),
            (None, "skipped", "new"),
        ],
    )  # fmt: skip
    def test_what_else_changes_is_told_and_no_regression(self, old, new, kind):
        assert changed(old, new) == (kind, False)

    def test_a_failure_of_another_kind_may_be_a_worse_one(self):
        assert changed("failed", "error") == ("failing otherwise", True)

    @pytest.mark.parametrize(
        ("old", "new", "kind"),
        [
            ("the gradient has the wrong sign", "the gradient is 3 times what it should be", "failing otherwise"),
            ("the gradient is 3 times it", "the gradient is 5 times it", "failing otherwise"),
            ("it is 0.3000001 there", "it is 0.2999998 there", ""), ("<A at 0x7fa0>", "<A at 0x55b1>", ""),
            ("two calls differ by up to 0.74", "two calls differ by up to 1.6e-3", ""),
            ("two calls differ by up to 0.74", "two passes differ by up to 0.74", "failing otherwise"),
        ],
    )  # fmt: skip
    def test_so_may_one_for_another_reason(self, old, new, kind):
        def failed(text):
            finding = {"kind": "sign", "text": text, "fields": {}}
            return report(record("a", "failed", reason="not the same", fields={"diagnosis": [finding]}))

        found = diff(failed(old), failed(new))
        assert [change.kind for change in found.changes] == [kind] * bool(kind)
        assert found.is_regression() == bool(kind)
        assert not found.is_regression(["failing otherwise"])
        assert {one.id for records in found.newly_failing() for one in records} == {"a"} & {*"a" * bool(kind)}
        if kind:
            assert f"  a: not the same; {old} -> not the same; {new}" in found.lines()

    def test_a_finding_that_the_reason_mentions_is_shown_once(self):
        finding = {"kind": "random", "text": "the function is random", "fields": {}}
        reason = "backward: the function is random"
        new = report(record("a", "failed", reason=reason, fields={"diagnosis": [finding]}))
        old = report(record("a", "failed", reason="another"))
        assert f"  a: another -> {reason}" in diff(old, new).lines()

    def test_what_is_blocked_by_another_check_now_is_not_news(self):
        old, new = (report(record("a", "blocked", reason=f"not judged, since {one} fails")) for one in ("x", "y"))
        assert not diff(old, new).changes

    def test_every_pair_of_outcomes_has_its_kind(self):
        pairs = {(old, new): changed(old, new)[0] for old in OUTCOMES for new in OUTCOMES if old != new}
        assert {*pairs.values()} <= {*KINDS}
        assert "" not in pairs.values()


def test_what_is_meant_is_no_regression():
    found = diff(report(record("a"), record("b"), record("c")), report(record("b", "skipped"), record("c")))
    assert found.is_regression()
    assert found.is_regression(["gone"])
    assert found.is_regression(["newly skipped"])
    assert not found.is_regression(["gone", "newly skipped"])
    assert {*REGRESSIONS} == {"gone", "newly skipped", "newly failing", "failing otherwise"}


class TestTimes:
    @pytest.mark.parametrize(
        ("old", "new", "factor", "is_slower"),
        [
            (1.0, 2.1, 2.0, True), (1.0, 2.0, 2.0, False), (0.01, 0.1, 2.0, False), (0.0, 0.2, 2.0, True),
            (1.0, 9.0, None, False),
        ],
    )  # fmt: skip
    def test_a_case_is_slower_by_more_than_the_factor_and_by_more_than_noise(self, old, new, factor, is_slower):
        found = diff(report(record("a", seconds=old)), report(record("a", seconds=new)), factor)
        assert kinds(found) == ([("slower", "a")] if is_slower else [])
        assert not found.is_regression()

    def test_it_is_told_with_its_times(self):
        found = diff(report(record("a", seconds=1)), report(record("a", seconds=3.5)), 2.0)
        assert "  a: 1.00 s, now 3.50 s" in found.lines()


class TestRuns:
    def test_versions_are_compared_each_with_its_own(self):
        runs = [run(), run(torch="2.14.1")]
        old = report(record("a"), record("a", "failed", run=1), runs=runs)
        new = report(record("a", "failed"), record("a", run=1), runs=runs)
        found = diff(old, new)
        assert [str(change) for change in found.changes] == [
            "a (torch 2.13.0): passed -> failed: why it failed", "a (torch 2.14.1): failed -> passed"
        ]  # fmt: skip
        assert found.unlike == []

    def test_a_version_that_is_gone_takes_its_cases_along(self):
        old = report(record("a"), record("a", run=1), runs=[run(), run(torch="2.14.1")])
        found = diff(old, report(record("a")))
        assert [str(change) for change in found.changes] == ["a (torch 2.14.1): passed"]
        assert found.is_regression()

    def test_that_another_version_is_compared_is_told(self):
        found = diff(report(record("a")), report(record("a"), runs=[run(torch="2.14.1", seed=2)]))
        assert found.unlike == ["cpu: torch 2.13.0, seed 0 is compared with torch 2.14.1, seed 2"]
        assert (found.compared, found.changes) == (1, [])

    def test_each_device_has_its_own_runs(self):
        case = "torch.sin::vmap[cuda-float64]"
        cpu, gpu = run(), run(torch="2.13.0+cu126", devices=["cuda"], details={"cuda": "A100"})
        old = report(record("a"), record(case, run=1), runs=[cpu, gpu])
        found = diff(old, report(record(case, "failed"), record("a", run=1), runs=[gpu, cpu]))
        assert kinds(found) == [("newly failing", case)]
        assert found.changes[0].label == ""


class TestIncompleteReports:
    @pytest.mark.parametrize("old", [True, False])
    def test_they_never_show_that_nothing_is_worse(self, old):
        whole, part = report(record("a")), report(record("a"), runs=[run(complete=False)])
        found = diff(part, whole) if old else diff(whole, part)
        assert found.changes == []
        assert found.is_regression(REGRESSIONS)
        assert found.gaps[0].startswith(f"the {'old' if old else 'new'} report: the run with torch 2.13.0")
        assert next(found.lines()) == found.gaps[0]

    def test_nor_does_one_without_cases(self):
        assert diff(report(), report()).is_regression()


def test_cases_that_the_new_report_is_not_about_are_counted():
    old = report(record("a"), record("b"), record("c"), record("x::vmap[npu-int8]"))
    found = diff(old, report(record("a")), is_gone=lambda one: one.id == "b")
    assert kinds(found) == [("gone", "b")]
    assert found.left_aside == {"cpu": 1, "npu": 1}
    assert "not compared: 1 case on npu that this run did not select" in found.lines()


class TestLines:
    def test_regressions_come_first_and_a_count_last(self):
        old = report(record("a"), record("b", "failed"), record("c"), record("d", "failed"))
        new = report(record("b"), record("e"), record("a", "failed"), record("d", "failed"))
        assert [*diff(old, new).lines()] == [
            "newly failing (did not fail before, or is new): 1 case",
            "  a: passed -> failed: why it failed",
            "gone (not there any more): 1 case",
            "  c: passed",
            "mended (failed before, expected or not): 1 case",
            "  b: failed -> passed",
            "new (not there before): 1 case",
            "  e: passed",
            "3 cases in both reports, 1 of them still failing: 1 newly failing, 1 gone, 1 mended, 1 new",
        ]

    def test_many_are_counted(self):
        found = diff(report(record("x")), report(record("x"), *(record(f"a{n}") for n in range(150))))
        told = [*found.lines()]
        assert len(told) == 103
        assert told[-2:] == ["  ... and 50 more", "1 case in both reports, 0 of them still failing: 150 new"]

    def test_names_are_fit_for_a_terminal(self):
        found = diff(report(record("x")), report(record("x"), record("a\x1b[2J", "failed", reason="\x1b[31mred")))
        assert "\x1b" not in "".join(found.lines())
