"""The page of a report: one file, all of the report's text in it, and none of it as markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import pytest
from many_cases import many_cases

from opcheck.report.content import LeftOut, Report
from opcheck.report.html import HERE, SCRIPTS, duration, encoding, moment, rendered
from opcheck.running.outcome import KINDS

HOSTILE = """</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;'"--><!--{{ 7 * 7 }}\u2028"""


def data_of(page: str) -> dict:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def with_records(*changes: dict) -> Report:
    report = many_cases(len(changes))
    for run in report.runs:
        run.records = [replace(one, **change) for one, change in zip(run.records, changes, strict=False)]
    return report


def decoded(data: dict, index: int) -> dict:
    """What the script makes of a case."""
    columns = {name: column[index] for name, column in data["columns"].items()}
    found = {name: data["tables"][name][place] for name, place in columns.items() if name in data["tables"]}
    subject = found["operator"] + ("" if found["variant"] == "function" else f"[{found['variant']}]")
    usual = f"{subject}::{found['check']}[{found['device']}-{found['dtype']}]"
    name = data["ids"].get(str(index), usual)
    outcome = data["outcomes"][columns["outcome"]]
    rerun = found["rerun"].replace("\0", name)
    return {**found, "id": name, "outcome": outcome, "run": columns["run"], "line": columns["line"], "rerun": rerun}


def test_each_case_comes_out_as_it_went_in():
    report = many_cases(300)
    run = report.runs[0]
    run.records[7] = replace(run.records[7], id="an id of its own")
    run.records[8] = replace(run.records[8], variant="inplace")
    data = json.loads(json.dumps(encoding.encoded(report)))
    cases = [(number, record) for number, run in enumerate(report.runs) for record in run.records]
    for index, (number, record) in enumerate(cases):
        expected = {**record.record(), "run": number}
        found = decoded(data, index)
        assert found == {name: expected[name] for name in found}
    assert set(data["ids"]) == {"7", "8"}, "other ids follow from the rest"


def test_many_cases_take_little_room():
    page = rendered(many_cases(20_000))
    assert len(page) < 2_500_000


def test_numbers_keep_twelve_digits_and_what_is_not_finite():
    window = {"name": "J", "rows": 1, "columns": 4, "wrong": [[0, 0]]}
    numbers = [[1 / 3, 2.0, "nan", "-inf"]]
    report = with_records({"fields": {"jacobians": [{**window, "numerical": numbers, "analytical": numbers}]}})
    (found,) = data_of(rendered(report))["details"]["0"]["jacobians"]
    assert found["analytical"] == [[0.333333333333, 2, "nan", "-inf"]]


@pytest.mark.parametrize(
    "fields", [{"jacobians": "none"}, {"worst": [1]}, {"diagnosis": {"a": None}}, {"jacobians": [{}]}]
)
def test_fields_of_other_peoples_checks_are_kept_as_they_are(fields):
    details = encoding.encoded(with_records({"fields": fields}))["details"][0]
    assert details["fields"] == fields


def test_no_text_of_a_report_is_markup():
    hostile = {
        **dict.fromkeys(("torch", "python", "platform", "started"), HOSTILE), "command": [HOSTILE],
        "devices": [HOSTILE], "details": {HOSTILE: HOSTILE}, "selection": {HOSTILE: [HOSTILE]},
        "left_out": [LeftOut(device=HOSTILE, reason=HOSTILE, cases=1)],
    }  # fmt: skip
    page = rendered(Report([run.model_copy(update=hostile) for run in many_cases(200, HOSTILE).runs]))
    clean = rendered(many_cases(200))
    assert page.count("<script") == clean.count("<script") == 2
    assert page.count("<img") == page.count("<!--") == 0
    assert "49" not in data_of(page)["tables"]["operator"][0]
    assert data_of(page)["tables"]["operator"][0] == f"{HOSTILE}torch.operator_000"


def test_the_page_allows_its_own_script_and_nothing_else():
    page = rendered(many_cases(3))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy"\s+content="(.*?)"', page)
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    for name, (text,) in {"script-src": script, "style-src": style}.items():
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy.replace("&#43;", "+")
    assert "default-src 'none'" in policy
    linked = set(re.findall(r"""(?:src|href)=["']([^"']*)""", page.replace(script[0], "")))
    assert linked == {"data:,", "#view=untested"}, "it fetches nothing"


def test_each_part_of_the_script_is_used_and_fits_on_a_few_screens():
    assert sorted(SCRIPTS) == sorted(path.stem for path in (HERE / "script").iterdir())
    lengths = {path.name: len(path.read_text().splitlines()) for path in (HERE / "script").iterdir()}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_the_outcomes_of_the_script_are_those_of_opcheck():
    text = (HERE / "script" / "data.js").read_text()
    assert set(re.findall(r'^  \["(\w+)", "', text, re.MULTILINE)) == set(KINDS)


def test_the_header_tells_of_each_run():
    page = rendered(many_cases(16))
    assert page.startswith("<!doctype html>")
    assert "<title>opcheck report · cpu, npu · torch 2.13.0, 2.14.1</title>" in page
    assert page.count("02 Jan 2026, 03:04 UTC") == 2
    assert "20 min 34 s" in page
    assert "NPU 3" in page
    assert "Not all of it ran:" in page


def test_a_report_without_cases_or_runs_is_a_page_too():
    assert "The run" in rendered(Report([]))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (61, "1 min 1 s"), (7500, "2 h 5 min")]
)
def test_durations_are_told_in_words(seconds, text):
    assert duration(seconds) == text


def test_a_moment_that_is_none_is_shown_as_it_is():
    assert moment("2026-01-02T03:04:05Z") == "02 Jan 2026, 03:04 UTC"
    assert moment("yesterday") == "yesterday"
