"""What `opcheck run` shows."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from opcheck.report.terminal import TerminalReport


@pytest.fixture
def report():
    return TerminalReport(Console(file=io.StringIO(), width=100))


def shown(report):
    return report.console.file.getvalue().splitlines()


def record(number, outcome="passed", reason="", message="", **keys):
    return {
        "id": f"torch.x{number}::backward[cpu-float64]", "operator": f"torch.x{number}", "check": "backward",
        "family": "unary", "outcome": outcome, "reason": reason, "message": message, **keys,
    }  # fmt: skip


def test_a_log_file_gets_a_bar_for_each_tenth(report):
    report.start(50)
    for number in range(50):
        report.add(record(number))
    report.stop()
    assert [re.search(r"(\d+)/50", line)[1] for line in shown(report)] == [str(5 * n) for n in range(1, 11)]


@pytest.mark.parametrize("total", [1, 7, 50])
def test_on_a_terminal_the_bar_moves_and_ends_full(total):
    report = TerminalReport(Console(file=io.StringIO(), width=100, force_terminal=True))
    report.start(total)
    for number in range(total):
        report.add(record(number, "xfailed" if number == 0 else "passed"))
    report.stop()
    bars = re.findall(rf"(\d+)/{total}\D", report.console.file.getvalue())
    assert bars == sorted(bars, key=int)
    assert bars[-1] == str(total)
    assert len(set(bars)) >= min(total, 2)
    assert "1 xfailed" in report.console.file.getvalue()


def test_a_bad_case_is_told_at_once_on_one_line_however_long(report):
    report.start(1)
    report.add(record(1, "failed", "wrong [bold]by[/] " + "far " * 50 + "away"))
    assert shown(report)[0] == "failed torch.x1::backward[cpu-float64]: wrong [bold]by[/] " + "far " * 50 + "away"


@pytest.mark.parametrize("outcome", ["failed", "error", "xpassed", "inconclusive"])
def test_messages_of_bad_cases_are_shown(report, outcome):
    report.add(record(1, outcome, "why", "line one\n  [line] two"))
    report.add(record(2))
    assert report.has_failed
    report.failures()
    assert f" {outcome} torch.x1::backward[cpu-float64] " in shown(report)[0]
    assert shown(report)[1:] == ["line one", "  [line] two"]


@pytest.mark.parametrize("outcome", ["passed", "skipped", "xfailed"])
def test_other_cases_are_not(report, outcome):
    report.add(record(1, outcome, "why", "message"))
    report.failures()
    assert not report.has_failed
    assert shown(report) == []


def test_the_summary_has_a_cell_for_each_family_and_check(report):
    report.add(record(1))
    report.add(record(2, "failed"))
    report.add(record(3, check="vmap", family="nn"))
    report.summary(1.25)
    rows = [line.split() for line in shown(report) if line.split()[:1] in (["check"], ["backward"], ["vmap"])]
    assert rows == [
        ["check", "nn", "unary", "all"],
        ["backward", "-", "1", "1F", "1", "1F"],
        ["vmap", "1", "-", "1"],
    ]
    assert shown(report)[-1] == "3 cases in 1.2 s: 2 passed, 1 failed"


def test_the_summary_tells_each_reason_once(report):
    for number in range(3):
        report.add(record(number, "skipped", "the device cuda is not present: " + "no driver, " * 20 + "none"))
    report.add(record(4, "xfailed", "https://example.org/1"))
    report.summary(0)
    assert "skipped 3 cases: the device cuda is not present: " + "no driver, " * 20 + "none" in shown(report)
    assert "xfailed 1 cases: https://example.org/1" in shown(report)
    assert shown(report)[-1] == "4 cases in 0.0 s: 3 skipped, 1 xfailed"


def test_a_run_of_nothing_has_no_table(report):
    report.summary(0)
    assert shown(report) == ["0 cases in 0.0 s: no cases"]


def test_a_terminal_is_drawn_on_by_time_not_by_case(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("opcheck.report.terminal.time.monotonic", lambda: now[0])
    report = TerminalReport(Console(file=io.StringIO(), width=100, force_terminal=True))
    drawn = []
    report.start(1000)
    monkeypatch.setattr(report._progress, "refresh", lambda: drawn.append(len(report.records)))
    for number in range(1000):
        now[0] += 1 / 1024
        report.add(record(number))
    assert drawn[:3] == [1, 104, 207]  # 0.1 s are more than 102 of these
    assert drawn[-1] == 1000
    assert len(drawn) == 11
