"""The watchdog: it ends processes that hang or hoard, and says why one is gone. Children stand in for workers."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest

from opcheck.run.lifeline import Lifeline, read_output, read_sign, read_trace
from opcheck.run.watchdog import Limits, Watchdog, default_memory


@pytest.fixture
def child():
    """Return a function that starts a Python process with some code; it is ended with the test."""
    started = []

    def start(code):
        process = subprocess.Popen([sys.executable, "-c", f"{READY}; {code}"], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def says(watchdog, name, process, doing="case", since=0.0, what="spec.toml::a::vmap[cpu-float64]"):
    """Write down what a worker does, as it would."""
    sign = {"pid": process.pid, "doing": doing, "what": what, "since": time.monotonic() - since}
    watchdog.path_of(name).write_text(json.dumps(sign))


def is_ended(process, within=10.0):
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


READY = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1); print('ready', flush=True)"
SLEEPS = "import time; time.sleep(60)"
HOARDS = "import time; x = bytearray(200 * 2**20); time.sleep(60)"


def test_a_case_that_takes_too_long_is_ended_and_others_are_not(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits(seconds=5))
    slow, quick = child(SLEEPS), child(SLEEPS)
    says(watchdog, "gw0", slow, since=6)
    says(watchdog, "gw1", quick, since=1)
    watchdog.start()
    assert is_ended(slow)
    assert quick.poll() is None
    assert watchdog.death_of("gw0").cause == "time-out: it takes longer than 5 s"
    watchdog.stop()


def test_a_process_that_has_ended_takes_no_time(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits(seconds=1))
    process = child("import os; os._exit(0)")
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.02)
    says(watchdog, "gw0", process, since=100)
    watchdog.start()
    time.sleep(0.5)
    watchdog.stop()
    assert watchdog.death_of("gw0").cause == "the process exited, with status 0"


def test_a_process_that_runs_no_case_may_take_its_time(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits(seconds=0.1))
    process = child(SLEEPS)
    says(watchdog, "gw0", process, doing="idle", since=100)
    watchdog.start()
    assert not is_ended(process, within=1)
    watchdog.stop()
    assert process.poll() is None


def test_a_case_that_takes_too_much_memory_is_ended(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits(memory=100))
    process = child(HOARDS)
    says(watchdog, "gw0", process)
    watchdog.start()
    assert is_ended(process)
    assert watchdog.death_of("gw0").cause == "out of memory: the process takes more than 100 MiB"
    watchdog.stop()


def test_a_case_within_its_memory_is_left_alone(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits(memory=100_000))
    process = child(HOARDS)
    says(watchdog, "gw0", process)
    watchdog.start()
    assert not is_ended(process, within=0.5)
    watchdog.stop()


def test_a_process_that_has_written_nothing_yet_disturbs_nobody(tmp_path):
    watchdog = Watchdog(tmp_path, Limits(seconds=0.1))
    watchdog.path_of("gw0").write_text("{")
    watchdog.start()
    watchdog.stop()
    assert watchdog.death_of("gw0").cause == "the process is gone"


def test_a_process_that_belongs_to_somebody_else_is_gone(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits())
    process = child("pass")
    process.wait()
    says(watchdog, "gw0", process)
    assert watchdog.death_of("gw0").cause == "the process is gone"


def test_a_case_that_takes_too_long_leaves_its_traceback(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits(seconds=0.2))
    sign = str(watchdog.path_of("gw0"))
    child(f"""
from pathlib import Path
from opcheck.run.lifeline import Lifeline
import time
def mine(): time.sleep(60)
line = Lifeline(Path({sign!r}))
line.catch_crashes()
line.say('case', 'a')
mine()""")
    watchdog.start()
    deadline = time.monotonic() + 20
    while not watchdog.death_of("gw0").cause.startswith("time-out") and time.monotonic() < deadline:
        time.sleep(0.05)
    watchdog.stop()
    assert "in mine" in watchdog.death_of("gw0").trace


def test_without_limits_nothing_is_ended_until_nobody_waits_any_more(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits())
    process = child(SLEEPS)
    says(watchdog, "gw0", process, since=10**6)
    watchdog.start()
    assert not is_ended(process, within=0.5)
    watchdog.stop()
    assert is_ended(process)


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("import os; os._exit(0)", 0, "the process exited, with status 0"),
        ("raise SystemExit(3)", 3, "the process exited, with status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, "the process crashed (SIGSEGV)"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            -9,
            "the process was killed (SIGKILL), as by a system that runs out of memory",
        ),
    ],
)
def test_the_end_of_a_process_is_told(tmp_path, child, code, status, cause):
    watchdog = Watchdog(tmp_path, Limits())
    process = child(code)
    says(watchdog, "gw0", process)
    assert watchdog.death_of("gw0").cause == cause
    assert process.wait() == status  # who started it can still ask


def test_a_process_that_ends_between_cases_is_told_so(tmp_path, child):
    watchdog = Watchdog(tmp_path, Limits())
    says(watchdog, "gw0", child("import os; os._exit(7)"), doing="idle", what="spec.toml::a::vmap[cpu-float64]")
    assert watchdog.death_of("gw0").cause == (
        "the process exited, with status 7, before this case began, after spec.toml::a::vmap[cpu-float64]"
    )


def test_the_memory_of_a_machine_is_shared_among_its_workers():
    available = psutil.virtual_memory().available / 2**20
    assert 0.7 * available < default_memory(1) < 0.9 * available
    assert default_memory(4) == pytest.approx(default_memory(1) / 4, rel=0.1)


class TestLifeline:
    def test_what_was_said_last_is_read(self, tmp_path):
        lifeline = Lifeline(tmp_path / "gw0.sign")
        for what in ("a long name of a case", "short", "a name"):
            lifeline.say("case", what)
            sign = read_sign(tmp_path / "gw0.sign")
            assert (sign.doing, sign.what) == ("case", what)
            assert 0 <= time.monotonic() - sign.since < 10

    @pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', "[]"])
    def test_what_is_half_written_is_nothing(self, tmp_path, text):
        (tmp_path / "gw0.sign").write_text(text)
        assert read_sign(tmp_path / "gw0.sign") is None
        assert read_sign(tmp_path / "gw1.sign") is None

    def test_a_traceback_is_cut_where_opcheck_called(self, tmp_path):
        from opcheck.run.lifeline import PACKAGE

        trace = (
            f'Fatal\n  File "mine.py", line 3 in mine\n  File "{PACKAGE}/run/runner.py", line 1 in run\n  File "x"\n'
        )
        (tmp_path / "gw0.trace").write_text(trace)
        assert read_trace(tmp_path / "gw0.sign") == 'Fatal\n  File "mine.py", line 3 in mine'
        assert read_trace(tmp_path / "gw0.sign", start=6) == '  File "mine.py", line 3 in mine'
        assert read_trace(tmp_path / "gw1.sign") == ""

    @pytest.mark.parametrize(
        ("last", "told"), [("os.abort()", "Aborted"), ("os.kill(os.getpid(), signal.SIGUSR1); time.sleep(0.1)", "")]
    )
    def test_a_process_that_crashes_or_is_asked_leaves_the_traceback_of_its_main_thread(self, tmp_path, last, told):
        code = f"""
import os, signal, threading, time
from pathlib import Path
from opcheck.run.lifeline import Lifeline
def beside(): time.sleep(60)
def mine(): {last}
threading.Thread(target=beside, daemon=True).start()
Lifeline(Path({str(tmp_path / "gw0.sign")!r})).catch_crashes()
mine()
"""
        subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
        trace = read_trace(tmp_path / "gw0.sign")
        assert trace.startswith(f"Fatal Python error: {told}" if told else "Stack (most recent call first):")
        assert "in mine" in trace
        assert "in beside" not in trace

    def test_a_long_traceback_is_shortened_and_holds_no_list_of_extensions(self, tmp_path):
        frames = [f'  File "mine.py", line {number} in f' for number in range(30)]
        text = "\n".join(["Fatal", "", *frames, "", "Extension modules: torch._C (total: 1)"])
        (tmp_path / "gw0.trace").write_text(text)
        assert read_trace(tmp_path / "gw0.sign", most=3).splitlines() == ["Fatal", *frames[:2], "  ..."]
        assert read_trace(tmp_path / "gw0.sign", most=100).splitlines() == ["Fatal", *frames]
        (tmp_path / "gw0.trace").write_text("one\ntwo")
        assert read_trace(tmp_path / "gw0.sign", most=2).splitlines() == ["one", "two"]

    def test_the_end_of_what_was_printed_is_kept(self, tmp_path):
        (tmp_path / "gw0.out").write_bytes(b"x" * 5000 + b"\xff the end\n")
        assert read_output(tmp_path / "gw0.sign", most=10) == "\\xff the end"
        assert read_output(tmp_path / "gw1.sign") == ""
