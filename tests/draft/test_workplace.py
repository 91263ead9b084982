"""What a process knows of its operator is there when it is gone, and said in words."""

from __future__ import annotations

import pytest

from opcheck.draft.workplace import Trial
from opcheck.running.own_process import Ended

SAMPLE = {"args": [{"shape": [2], "low": 0.1, "high": 0.9}]}


def sine(**keys):
    return Trial("torch.sin", [[SAMPLE]], **keys)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (sine(), "before it was called"),
        (sine(call=SAMPLE), "in the call { args = [{ shape = [2], low = 0.1, high = 0.9 }] }"),
        (sine(call={"examples": "torch.sin"}), "in the examples in its documentation"),
        (sine(case="torch.sin::vmap[cpu-float64]"), "in the case torch.sin::vmap[cpu-float64]"),
    ],
)
def test_what_was_going_on_is_said(own, words):
    assert own.doing() == words


def test_what_a_process_has_told_tells_how_far_it_came():
    crash, call = "the process crashed (SIGSEGV)", "in the call { args = [{ shape = [2], low = 0.1, high = 0.9 }] }"
    assert sine().ended_by(Ended(crash)).ended == [f"{crash}, before it was called"]
    own = sine().ended_by(Ended(crash, news={"begun": True, "call": SAMPLE}))
    assert (own.call, own.hangs, own.refusal, own.ended) == (SAMPLE, False, f"{crash}, {call}", [f"{crash}, {call}"])
    assert own.again() == sine(skip=(SAMPLE,), ended=own.ended)
    late = sine().ended_by(Ended("it takes longer than 60 s", is_late=True, news={"call": SAMPLE}))
    assert (late.hangs, late.refusal) == (True, f"it takes longer than 60 s, {call}")
