"""What a process knows of its operator can be read when it is gone, and said in words."""

from __future__ import annotations

import faulthandler

import pytest

from opcheck.draft.workplace import Trial, Workplace
from opcheck.settings import Settings

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


def test_what_a_process_has_written_tells_how_far_it_came(tmp_path, monkeypatch):
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *args, **kwargs: None)
    workplace = Workplace(Settings(modules=("torch",)), 60.0, journals=tmp_path)
    crash, call = "the process crashed (SIGSEGV)", "in the call { args = [{ shape = [2], low = 0.1, high = 0.9 }] }"
    assert sine().ended_by(crash, workplace).ended == [f"{crash}, before it was called"]
    sine(call=SAMPLE).write(workplace)
    own = sine().ended_by(crash, workplace)
    assert (own.call, own.hangs, own.refusal, own.ended) == (SAMPLE, False, f"{crash}, {call}", [f"{crash}, {call}"])
    assert own.again() == sine(skip=(SAMPLE,), ended=own.ended)
    assert sine().ended_by(crash, workplace).call is None  # of another process, which has written nothing
    own.write(workplace)
    (tmp_path / "torch.sin.trace").write_text("Timeout (0:00:20)!")
    own = sine().ended_by(crash, workplace)
    assert (own.hangs, own.refusal) == (True, f"it takes longer than 60 s, {call}")
