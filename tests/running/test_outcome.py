"""Outcomes as data."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from opcheck.running import Outcome
from opcheck.running.outcome import BAD, KINDS, rerun_of


def test_the_outcomes_that_fail_a_run_are_these():
    assert {kind for kind in KINDS if kind in BAD} == {"failed", "error", "xpassed", "inconclusive", "blocked"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_knows_whether_it_fails_a_run(case_of, kind):
    assert Outcome.of(case_of(), kind).is_bad == (kind not in ("passed", "skipped", "xfailed"))


@pytest.mark.parametrize(
    ("diagnosis", "headline"),
    [
        (None, "it is wrong"),
        ([], "it is wrong"),
        ([{"text": "a sign is lost"}, {"text": "and a factor"}], "it is wrong: a sign is lost"),
        ([{"text": "is wrong"}], "it is wrong"),
        ("of another program", "it is wrong"),
        (["of another program"], "it is wrong"),
    ],
)
def test_a_headline_has_the_first_finding_unless_the_reason_says_it(case_of, diagnosis, headline):
    assert Outcome.of(case_of(), "failed", "it is wrong", diagnosis=diagnosis).headline == headline


def test_a_record_is_plain_data(case_of):
    fields = {
        "row": 1, "worst": math.nan, "bound": -math.inf, "error": 0.5, "ok": True, "none": None,
        "place": (1, [2.0]), "tensor": torch.tensor(3), "by": {1: torch.float64},
    }  # fmt: skip
    record = Outcome.of(case_of(), "failed", "why", "all", **fields).record()
    assert record == {
        "id": "operators.right.square::backward[cpu-float64]", "operator": "operators.right.square",
        "variant": "function", "check": "backward", "device": "cpu", "dtype": "float64", "family": "spec",
        "outcome": "failed", "reason": "why", "seconds": 0.0, "message": "all", "seed": 0,
        "fields": {
            "row": 1, "worst": "nan", "bound": "-inf", "error": 0.5, "ok": True, "none": None,
            "place": [1, [2.0]], "tensor": "tensor(3)", "by": {"1": "torch.float64"},
        },
        "file": record["file"], "line": 3, "column": 11, "rerun": "", "toml": "",
    }  # fmt: skip
    assert record["file"].endswith("spec.toml")
    assert json.loads(json.dumps(record, allow_nan=False)) == record


class Unprintable:
    def __str__(self):
        raise ValueError("no")


def test_a_record_can_be_encoded_whatever_a_message_consists_of(case_of):
    fields = {"text": "\udc80", "\udc81": [Unprintable()]}
    outcome = Outcome.of(case_of(), "failed", "why \udc80", "all\n\udc80", **fields)
    assert (outcome.reason, outcome.message) == (r"why \udc80", "all\n\\udc80")
    record = outcome.record()
    assert record["fields"] == {
        "text": r"\udc80",
        r"\udc81": ["(Unprintable that cannot be shown: ValueError: no)"],
    }
    assert json.dumps(record, ensure_ascii=False).encode()


def test_a_reason_is_one_line(case_of):
    assert Outcome.of(case_of(), "xfailed", "see\n  issue 3\r\n").reason == "see issue 3"


def test_endless_texts_are_cut_with_a_word_on_how_much_and_keep_their_end(case_of):
    outcome = Outcome.of(case_of(), "failed", "x" * 10**7, "y" * 10**7 + "\n\nrun just this: opcheck run a")
    assert outcome.reason.endswith("xxx ... (9998050 characters left out)")
    assert "yyy ... (9900080 characters left out) ... yyy" in outcome.message
    assert outcome.message.endswith("yyy\n\nrun just this: opcheck run a")
    assert len(outcome.message) <= 100_000
    assert replace(outcome, seconds=1.0).message == outcome.message


def command(file, name, engine=None, seed=0, derive="", seed_of_project=0, least="none"):
    case = SimpleNamespace(
        id=name, base_seed=seed, device=None, operator=SimpleNamespace(document=SimpleNamespace(file=file)),
        kind=SimpleNamespace(least=least), check="z",
    )  # fmt: skip
    settings = SimpleNamespace(seed=seed_of_project, engine="batched", derive="standard", option_for=lambda device: "")
    return rerun_of(case, settings, engine, derive)


def test_the_command_that_runs_a_case_alone_survives_a_shell():
    assert command("a b.toml", "x[y]::z[cpu-int8]") == "opcheck run 'a b.toml::x[y]::z[cpu-int8]'"
    assert command("a.toml", "x::z", "torch") == "opcheck run --engine torch a.toml::x::z"
    assert command("a.toml", "x::z", seed_of_project=7) == "opcheck run --seed 0 a.toml::x::z"
    assert command("a.toml", "x::z", "torch", 3) == "opcheck run --engine torch --seed 3 a.toml::x::z"
    assert command("a.toml", "x::z", "batched", derive="none") == "opcheck run a.toml::x::z"
    assert (
        command("a.toml", "x::z", derive="none", least="standard") == "opcheck run --check z --derive none a.toml::x::z"
    )
    assert command("a.toml", "x::z", least="thorough") == "opcheck run --check z a.toml::x::z"
    assert (
        command("a.toml", "x::z", derive="thorough", least="thorough") == "opcheck run --derive thorough a.toml::x::z"
    )
    assert command("a.toml", "x::z", derive="thorough") == "opcheck run --derive thorough a.toml::x::z"


@pytest.mark.parametrize("folder", ["a b", "it's", 'say "x"', "$HOME", "a[1]", "a::b", "a\\b", "`ls`", "!1", "é"])
def test_the_command_names_files_of_all_kinds(folder):
    words = shlex.split(command(f"{folder}/a.toml", "x[y]::z[cpu-int8]"))
    assert words == ["opcheck", "run", f"{folder}/a.toml::x[y]::z[cpu-int8]"]


def test_the_command_does_not_take_a_file_for_an_option():
    assert command("-a.toml", "x::z") == "opcheck run ./-a.toml::x::z"
