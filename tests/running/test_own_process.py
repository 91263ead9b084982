"""Each item has an answer, or a reason why it has none, whatever becomes of the process of another one."""

from __future__ import annotations

import os
import signal
import time

import pytest

from opcheck.running.own_process import Ended, apart, split_results, tell

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")


def work(item):
    what, number = item
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "exit":
        os._exit(3)
    if what == "raise":
        raise ValueError(f"{number} is odd")
    if what == "hang":
        time.sleep(60)
    if what == "slow":
        time.sleep(0.3)
    return number, os.getpid()


def test_answers_come_in_order_from_processes_of_their_own():
    items = [("slow", 0), ("plain", 1), ("plain", 2), ("slow", 3), ("plain", 4)]
    answers = list(apart(work, items, 2))
    assert [number for number, _ in answers] == [0, 1, 2, 3, 4]
    assert len({process for _, process in answers} | {os.getpid()}) == 6


@pytest.mark.parametrize("processes", [1, 3])
def test_what_ends_a_process_costs_one_answer(processes):
    items = [("crash", 0), ("plain", 1), ("exit", 2), ("raise", 3), ("hang", 4), ("plain", 5)]
    one, two, three, four, five, six = apart(work, items, processes, seconds=1.0)
    assert (one, three) == (
        Ended("the process crashed (SIGSEGV)"),
        Ended("the process exited, with status 3"),
    )
    assert (four, five) == (Ended("ValueError: 3 is odd"), Ended("it takes longer than 1 s", is_late=True))
    assert (two[0], six[0]) == (1, 5)


def test_what_a_process_has_told_is_known_when_it_has_ended():
    def tells(item):
        tell(step=1, other=item[0])
        tell(0.5, step=2)
        return work(item)

    answered, crashed, hung, raised = apart(tells, [(what, 0) for what in ("plain", "crash", "hang", "raise")], 1, 60.0)
    assert answered[0] == 0
    assert crashed.news == {"step": 2, "other": "crash"}
    assert hung == Ended("it takes longer than 0.5 s", is_late=True, news={"step": 2, "other": "hang"})
    assert raised == Ended("ValueError: 0 is odd", news={"step": 2, "other": "raise"})


def test_where_no_process_waits_nothing_is_told():
    def tells(number):
        tell(1.0, step=number)
        return number

    assert list(apart(tells, [1, 2], 1, forks=False)) == [1, 2]


def test_what_is_printed_there_is_no_output_of_this_process(capfd):
    def prints(number):
        os.write(1, b"printed\n")
        return number

    assert list(apart(prints, [1, 2], 2)) == [1, 2]
    assert capfd.readouterr() == ("", "printed\n" * 2)


def test_who_wants_no_more_leaves_no_process():
    begun = time.monotonic()
    answers = apart(work, [("plain", 0), ("hang", 1), ("hang", 2)], 2)
    assert next(answers)[0] == 0
    answers.close()
    assert time.monotonic() - begun < 10


def test_nothing_is_called_for_nothing():
    assert list(apart(work, [], 2)) == []


def test_without_a_fork_this_process_does_the_work():
    items = [("plain", 0), ("raise", 1), ("plain", 2)]
    assert list(apart(work, items, 2, forks=False)) == [
        (0, os.getpid()),
        Ended("ValueError: 1 is odd"),
        (2, os.getpid()),
    ]


def test_where_nothing_can_be_forked_fresh_processes_do_the_work():
    answers = list(apart(work, [("plain", 0), ("crash", 1)], 1, forks=False, fresh=True))
    assert (answers[0][0], answers[1]) == (0, Ended("the process crashed (SIGSEGV)"))
    assert answers[0][1] != os.getpid()


def test_an_interrupt_is_for_the_process_that_waits():
    def interrupted(item):
        os.kill(os.getpid(), signal.SIGINT)
        return item

    assert list(apart(interrupted, [1], 1)) == [1]


def test_answers_are_parted_from_what_has_none():
    assert split_results(["a", "b", "c"], [1, Ended("gone"), 3]) == ({"a": 1, "c": 3}, {"b": "gone"})
