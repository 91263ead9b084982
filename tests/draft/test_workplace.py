"""What a process knows of its operator is there when it is gone, and said in words."""

from __future__ import annotations

from opcheck.draft.workplace import EXAMPLES, Trial
from opcheck.running.own_process import Ended

SAMPLE = {"args": [{"shape": [2], "low": 0.1, "high": 0.9}]}


def sine(**keys):
    return Trial("torch.sin", [[SAMPLE]], **keys)


def test_what_a_process_has_told_tells_how_far_it_came():
    crash, step = "the process crashed (SIGSEGV)", "in the call { args = [{ shape = [2] }] }"
    assert sine().ended_by(Ended(crash)).ended == [f"{crash}, before it was called"]
    own = sine().ended_by(Ended(crash, news={"begun": True, "call": SAMPLE, "step": step}))
    assert (own.call, own.hangs, own.refusal, own.ended) == (SAMPLE, False, f"{crash}, {step}", [f"{crash}, {step}"])
    late = sine().ended_by(Ended("it takes longer than 60 s", is_late=True, news={"call": SAMPLE, "step": step}))
    assert (late.hangs, late.refusal) == (True, f"it takes longer than 60 s, {step}")


def test_examples_that_end_the_process_are_no_fault_of_the_operator():
    own = sine().ended_by(Ended("the process exited, with status 3", news={"call": EXAMPLES}))
    assert (own.ended, own.is_called) == ([], False)
