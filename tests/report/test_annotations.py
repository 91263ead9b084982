"""Annotations of GitHub."""

from __future__ import annotations

import re

from report_files import record

from opcheck.report.annotations import github_annotations

COMMAND = re.compile(r"::(?P<kind>\w+) (?P<properties>.*?)::(?P<data>.*)")


def read(line: str) -> dict[str, str]:
    """Take a command apart as GitHub's runner does."""
    found = COMMAND.fullmatch(line)
    assert found, line
    properties = dict(one.split("=", 1) for one in found["properties"].split(","))
    for escape, sign in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        properties = {name: value.replace(escape, sign) for name, value in properties.items()}
    data = found["data"].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    return {"kind": found["kind"], "data": data, **properties}


def annotations(*records, **keys):
    return [*map(read, github_annotations([records], **keys))]


def test_a_failure_is_an_error_at_its_line():
    (found,) = annotations(record("a"), record("b", "failed", message="all\nof it", file="specs/a b.toml", line=7))
    assert found == {
        "kind": "error", "file": "specs/a b.toml", "line": "7", "col": "8", "title": "failed: b", "data": "all\nof it"
    }  # fmt: skip


def test_signs_that_mean_something_survive():
    name, message = "torch.x[a,b]::vmap[cpu-int8]", "50 % of\r\n::error::%0A 100%25"
    (line,) = github_annotations([[record(name, "failed", message=message, file="a,b:c%.toml")]])
    assert len(line.splitlines()) == 1
    found = read(line)
    assert (found["file"], found["title"]) == ("a,b:c%.toml", f"failed: {name}")
    assert found["data"] == message.replace("\r", "\\r")


def test_no_property_moves_a_cursor():
    (line,) = github_annotations([[record("a\x1b[2Jb", "failed", file="specs/a\x1b[31m\r\u202eb.toml")]])
    assert line.isprintable()
    found = read(line)
    assert (found["file"], found["title"]) == ("specs/a\\x1b[31m\\r\\u202eb.toml", "failed: a\\x1b[2Jb")


def test_without_a_message_the_reason_is_told():
    assert annotations(record("b", "failed"))[0]["data"] == "why it failed"


def test_only_bad_outcomes_are_annotated():
    assert annotations(*(record(kind, kind) for kind in ("passed", "skipped", "xfailed"))) == []
    assert len(annotations(*(record(kind, kind) for kind in ("failed", "error", "xpassed", "inconclusive")))) == 4


def test_what_is_not_in_the_repository_has_no_place():
    for file in ("builtin/unary.toml", "/home/x.toml", "../x.toml", ""):
        assert "file" not in annotations(record("b", "failed", file=file))[0]


def test_a_line_that_is_not_known_is_left_out():
    found = annotations(record("b", "failed", line=0, column=0))[0]
    assert found["file"] == "specs/unary.toml"
    assert "line" not in found


def test_a_project_may_be_in_a_folder_of_its_repository():
    assert annotations(record("b", "failed"), folder="python/ops")[0]["file"] == "python/ops/specs/unary.toml"


def test_what_follows_from_a_failure_is_counted_with_it():
    blocked = record("torch.sin::vmap[cpu-float64]", "blocked", fields={"blocked_by": "backward"})
    (found,) = annotations(record("torch.sin::backward[cpu-float64]", "failed"), blocked)
    assert found["data"].endswith("\n\nthe same cause: 1 more")


def test_a_case_that_fails_in_two_runs_has_two():
    assert len([*github_annotations([[record("b", "failed")], [record("b", "failed")]])]) == 2


def test_the_rest_is_counted():
    found = annotations(*(record(f"b{number}", "failed") for number in range(13)))
    assert [one["kind"] for one in found] == ["error"] * 10 + ["warning"]
    assert found[-1]["data"] == "3 of 13 failures have no annotation: see the report"
    assert [one["kind"] for one in annotations(*(record(str(n), "failed") for n in range(3)), most=2)][-1] == "warning"


def test_a_long_message_is_cut():
    assert len(annotations(record("b", "failed", message="x" * 100_000))[0]["data"]) < 5000
