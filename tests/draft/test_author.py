"""What a draft says of failures: one line for each thing that goes wrong."""

import pytest

from opcheck.checks.jacobian.compare import REMEDY
from opcheck.draft.author import Author, lines_of
from opcheck.draft.draft import Draft
from opcheck.draft.workplace import Trial, Workplace
from opcheck.running.own_process import Ended
from opcheck.settings import Settings


def record(check, reason, operator="mylib.f", diagnosis=(), dtype="float64"):
    return {
        "operator": operator, "dtype": dtype, "id": f"{operator}::{check}", "reason": reason,
        "fields": {"diagnosis": [{"text": text} for text in diagnosis]}, "outcome": "failed", "message": reason,
    }  # fmt: skip


def test_an_exception_that_several_checks_meet_is_one_line():
    error = "RuntimeError: shapes cannot be multiplied"
    records = [
        record("backward", f"backward: backward raised {error}"),
        record("dtypes", f"dtypes: backward is claimed for float64, but is refused: {error}"),
        record("dtypes", f"dtypes: backward is claimed for float64, but is refused: {error}", operator="mylib.g"),
        record("dtypes", "dtypes: backward is claimed for float64, but is refused: RuntimeError: another one"),
    ]
    assert [line.partition(": ")[0] for line in lines_of(records)] == [
        "mylib.f::backward, mylib.g::dtypes and 1 more",
        "mylib.f::dtypes",
    ]


def test_what_many_operators_meet_is_one_line_in_full():
    reason = f"the function has parts that {'carry no tangents, ' * 10}and here is what to do"
    records = [record("forward_ad", "", f"f{index}", diagnosis=[reason]) for index in range(60)]
    ids = ", ".join(f"f{index}::forward_ad" for index in range(3))
    assert lines_of(records) == [f"{ids} and 57 more: {reason}"]


def test_a_gradient_may_be_meant_to_differ_from_the_derivative(tmp_path):
    said = []
    author = Author("f", tmp_path, Settings(), Workplace(Settings(), 1.0), 1, lambda *lines: said.extend(lines))
    for reason in ("purity: x changes", f"backward: not the numerical one\n{REMEDY}"):
        author.trials = [Trial("f", records={"f": record("backward", reason)})]
        author.report(interrupted=True)
    assert said.count(REMEDY) == 1


@pytest.mark.parametrize(("script", "promised"), [("", False), ("import torch", True), (Ended("it is late"), False)])
def test_scripts_are_promised_where_there_is_one(tmp_path, monkeypatch, script, promised):
    said = []
    author = Author("f", tmp_path, Settings(), Workplace(Settings(), 1.0), 1, lambda *lines: said.extend(lines))
    author.trials = [Trial("f", draft=Draft("f", [{}]), records={"f": record("backward", "backward: wrong", "f")})]
    monkeypatch.setattr(author, "_apart", lambda *_: iter([script]))
    assert author.report() == 1
    assert any("all failures in plain torch" in line for line in said) == promised


def test_an_exception_comes_first_in_its_line():
    error = "RuntimeError: shapes cannot be multiplied"
    one = record("dtypes", f"dtypes: backward is claimed for float64, but is refused: {error}")
    one["fields"] |= {"raised": error, "remedy": {"key": "dtypes.backward", "write": "-float64"}}
    assert lines_of([one]) == [f"mylib.f::dtypes: backward raised {error}"]


def test_a_diagnosis_of_a_plugin_may_be_a_text():
    one = record("own", "own: too large")
    one["fields"]["diagnosis"] = "by a check of the project"
    assert lines_of([one]) == ["mylib.f::own: own: too large"]


def test_a_diagnosis_takes_the_place_of_a_reason():
    records = [record("backward", "a long story", diagnosis=["twice what it should be"]), record("purity", "x changes")]
    assert lines_of(records) == ["mylib.f::backward: twice what it should be", "mylib.f::purity: x changes"]
