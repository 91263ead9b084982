"""What `opcheck run` shows."""

from __future__ import annotations

import io
import re
from itertools import takewhile

import pytest
from rich.console import Console

from opcheck.report.terminal import TerminalReport
from opcheck.running.outcome import Outcome


@pytest.fixture
def report():
    return TerminalReport(Console(file=io.StringIO(), width=100))


def shown(report):
    return report.console.file.getvalue().splitlines()


def record(number, outcome="passed", reason="", message="", **keys):
    known = {
        "id": f"torch.x{number}::backward[cpu-float64]", "operator": f"torch.x{number}", "check": "backward",
        "variant": "function", "device": "cpu", "dtype": "float64", "family": "unary", "outcome": outcome,
        "reason": reason, "message": message,
    }  # fmt: skip
    return Outcome(**known | keys)


@pytest.mark.parametrize(
    ("seconds", "bars"), [(0.125, []), (0.5, [20, 40]), (4, [*range(3, 51, 3)]), (60, [*range(1, 51)])]
)
def test_a_log_file_gets_a_bar_at_most_every_ten_seconds(report, monkeypatch, seconds, bars):
    now = [1000.0]
    monkeypatch.setattr("opcheck.report.terminal.time.monotonic", lambda: now[0])
    report.start(50)
    for number in range(50):
        now[0] += seconds
        report.add(record(number))
    report.stop()
    assert [int(re.search(r"(\d+)/50", line)[1]) for line in shown(report)] == bars


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


def test_one_cause_is_told_once(report):
    report.start(5)
    refused = "the operator refuses the sample: ValueError: no"
    for check in ("backward", "forward_ad"):
        report.add(record(1, "error", refused, check=check, id=f"torch.x1::{check}[cpu-float64]"))
    report.add(record(1, "error", "another", check="vmap", id="torch.x1::vmap[cpu-float64]"))
    blocked = {"check": "derived", "id": "torch.x1::derived[cpu-float64]", "fields": {"blocked_by": "vmap"}}
    report.add(record(1, "blocked", "not judged, since another", **blocked))
    report.add(record(2, "error", refused))
    assert shown(report) == [
        f"error torch.x1::backward[cpu-float64]: {refused}",
        "error torch.x1::vmap[cpu-float64]: another",
        f"error torch.x2::backward[cpu-float64]: {refused}",
    ]


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


def test_the_messages_of_failures_follow_the_notes(report):
    report.add(record(1, "failed", "why", "the message"))
    report.add(record(2, fields={"notes": {"0": ["a note"]}}))
    report.summary(0)
    note, heading, message, totals = shown(report)[-4:]
    assert note == "note torch.x2: a note"
    assert " failed torch.x1::backward[cpu-float64] " in heading
    assert (message, totals) == ("the message", "2 cases in 0.0 s: 1 passed, 1 failed")


def test_the_summary_tells_each_reason_once(report):
    for number in range(3):
        report.add(record(number, "skipped", "the device cuda is not present: " + "no driver, " * 20 + "none"))
    report.add(record(4, "xfailed", "https://example.org/1"))
    report.summary(0)
    assert "skipped 3 cases: the device cuda is not present: " + "no driver, " * 20 + "none" in shown(report)
    assert "xfailed 1 case: https://example.org/1" in shown(report)
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


def console(width):
    return Console(file=io.StringIO(), width=width)


FAMILIES = [
    "activation", "binary", "convolution", "extremes", "fft", "linalg", "loss", "normalization", "nn", "pooling",
    "random", "scattering",
]  # fmt: skip
CHECKS = ["backward", "batched_forward_grad", "device_consistency", "scalarized_second_order"]
MIXED = ["passed", "failed", "error", "skipped", "xfailed", "xpassed", "inconclusive"]


def many():
    """Yield records of many families, and of all outcomes in some of them."""
    for row, check in enumerate(CHECKS):
        for column, family in enumerate(FAMILIES):
            for kind in MIXED[: 1 + (row * column) % 7]:
                for number in range(100 if kind == "passed" else 12):
                    yield record(number, kind, check=check, family=family)


def cells(lines):
    """Return the cells of all tables in a report, by family and check."""
    found = {}
    for line in lines:
        parts = re.split(r"\s{3,}", line.strip())
        if parts[0] == "check":
            families = parts[1:]
        elif parts[0] in CHECKS:
            assert len(parts) == 1 + len(families), line
            found |= {(family, parts[0]): cell for family, cell in zip(families, parts[1:], strict=True)}
    return found


@pytest.mark.parametrize("width", [60, 80, 120, 160, 400])
def test_the_table_is_whole_at_any_width(width):
    report = TerminalReport(console(width))
    for each in many():
        report.add(each)
    report.summary(0)
    lines = shown(report)
    table = list(takewhile(lambda line: "torch.x" not in line, lines))  # the failures follow
    assert [line for line in table[1:] if len(line.rstrip()) > width] == []
    assert "…" not in "".join(table)
    found = cells(table)
    assert set(found) == {(family, check) for family in [*FAMILIES, "all"] for check in CHECKS}
    assert found["binary", "device_consistency"] == "100 12F 12E"
    assert found["pooling", "scalarized_second_order"] == "100 12F 12E 12s 12x 12X 12?"
    assert found["all", "backward"] == "1200"
    assert lines[0] == (
        "cases passed by check and family (F failed, E error, s skipped, x xfailed, X xpassed, ? inconclusive)"
    )


def test_one_table_is_shown_where_there_is_room():
    for width, tables in ((60, 12), (400, 1)):
        report = TerminalReport(console(width))
        for family in FAMILIES:
            for number in range(3):
                report.add(record(number, family=family))
        report.summary(0)
        assert len([line for line in shown(report) if line.split()[:1] == ["check"]]) <= tables


def test_names_that_are_too_wide_are_folded_not_cut():
    report = TerminalReport(console(40))
    report.add(record(1, family="f" * 100, check="c" * 100))
    report.summary(0)
    text = "".join(shown(report))
    assert (text.count("f") - text.count("of f"), "…" in text) != (0, True)
    assert text.count("ffffffffff") >= 5
    assert text.count("cccccccccc") >= 5


@pytest.mark.parametrize(
    ("width", "kinds", "expected"),
    [
        (60, 2, "3500 failed"),
        (80, 7, "1000F 1000E 1000s 1000x 1000X 1000?"),
        (120, 4, "1750 failed  1750 error  1750 skipped"),
        (160, 7, "1000 failed  1000 error  1000 skipped  1000 xfailed  1000 xpassed  1000 inconclusive"),
    ],
)
def test_the_bar_has_room_for_all_counts(monkeypatch, width, kinds, expected):
    report = TerminalReport(console(width))
    monkeypatch.setattr(report, "_line", lambda *_: None)  # the bar alone
    report.start(7000)
    for number in range(7000):
        if number == 6999:
            monkeypatch.setattr("opcheck.report.terminal.PERIOD_OF_LINES", 0)
        report.add(record(number, MIXED[number % kinds]))
    *_, last = shown(report)
    assert last.split(" 7000/7000 ")[1].split(maxsplit=1)[1].rstrip() == expected
    assert len(last) <= width


ESCAPES = "\x1b]0;owned\x07\x1b[2J\rpassed \u202eevil [bold]x[/] :smile:"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\rpassed \u202eevil [bold]x[/] :smile:"
REASON = SHOWN.replace(r"\r", " ")  # which is one line


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_in_a_record_does_anything_to_the_terminal(terminal):
    report = TerminalReport(Console(file=io.StringIO(), width=400, force_terminal=terminal, color_system=None))
    report.start(5)
    texts = {"id": ESCAPES, "family": ESCAPES, "check": ESCAPES}
    for outcome in ("failed", "error", "skipped", "xfailed", "passed"):
        report.add(record(1, outcome, ESCAPES, f"first\n{ESCAPES}", **texts))
    report.stop()
    report.summary(1, [ESCAPES])
    text = report.console.file.getvalue()
    assert [sign for sign in ("\x07", "\x1b]", "\x1b[2J\r", "\rpassed", "\u202e") if sign in text] == []
    lines = text.splitlines()
    assert f"failed {SHOWN}: {REASON}" in text
    assert lines.count(SHOWN) == 2  # the message, with its lines as they are
    assert f"skipped 1 case: {REASON}" in lines
    assert f"xfailed 1 case: {REASON}" in lines
    assert f"error {SHOWN}" in lines


def test_overlong_names_are_cut_with_a_word_on_how_much():
    report = TerminalReport(console(100))
    report.start(1)
    report.add(record(1, "failed", id="x" * 100_000, family="y" * 100_000))
    report.stop()
    report.summary(0)
    text = report.console.file.getvalue()
    assert "xxx ... (99050 characters left out):" in text
    assert len(text) < 15_000


def test_the_id_of_a_failure_is_whole_however_narrow_the_terminal():
    report = TerminalReport(console(40))
    name = "torch.nn.functional.scaled_dot_product_attention::fwd_over_rev[cpu-complex128]"
    report.add(record(1, "failed", "why", "message", id=name))
    report.failures()
    assert shown(report) == ["─" * 40, f"failed {name}", "message"]


def test_what_is_wrong_with_other_reports_is_told_at_the_end(report):
    report.add(record(1))
    report.summary(0, ["the report a.json is incomplete: 1 of 2 lines are missing: No space left on device"])
    assert shown(report)[-1] == (
        "error the report a.json is incomplete: 1 of 2 lines are missing: No space left on device"
    )
