"""The watchdog: it ends processes that hang or hoard, and says why one is gone. Children stand in for workers."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest

from opcheck.running.watchdog import NO_SIGN, Watchdog, default_memory, read_output, read_sign, read_trace


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


READY = "print('ready', flush=True)"
SLEEPS = "import time; time.sleep(60)"
HOARDS = "import time; x = bytearray(200 * 2**20); time.sleep(60)"

WORKER = """
import ctypes, sys, threading, time
from pathlib import Path
from opcheck.running.worker import Worker
def beside(): time.sleep(60)
def sleeps(): time.sleep(60)
def hangs(): ctypes.PyDLL(None).sleep(60)  # and holds the lock of Python
threading.Thread(target=beside, daemon=True).start()
worker = Worker(Path(sys.argv[1]), 0.5)
with worker.imports(""): pass
"""


def worked(watchdog, code):
    """Let a worker with a limit of half a second run some code; return its exit status and why it ended."""
    command = [sys.executable, "-c", WORKER + code, str(watchdog.path_of("gw0"))]
    with subprocess.Popen(command) as process:
        path, death = watchdog.path_of("gw0"), None
        while death is None or death.cause == "the process closed its connection":
            time.sleep(0.05)
            death = watchdog.death_of("gw0") if read_sign(path).pid else None
        return process.wait(), death


@pytest.mark.parametrize("what", ["sleeps", "hangs"])
def test_a_case_that_takes_too_long_ends_with_its_traceback(tmp_path, what):
    status, death = worked(Watchdog(tmp_path, seconds=0.5), f"with worker.busy('a'): {what}()")
    assert (status, death.cause, death.is_time_out) == (1, "time-out: it takes longer than 0.5 s", True)
    assert death.sign.what == "a"
    assert f"in {what}" in death.trace
    assert "in beside" not in death.trace


def test_a_case_that_takes_too_long_once_a_fork_of_it_has_crashed_is_a_time_out(tmp_path):
    code = "import os\nwith worker.busy('a'):\n    if os.fork() == 0: os.abort()\n    os.wait(); sleeps()"
    _, death = worked(Watchdog(tmp_path, seconds=0.5), code)
    assert (death.cause, death.is_time_out) == ("time-out: it takes longer than 0.5 s", True)


def test_an_import_that_hangs_ends_with_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr("opcheck.running.watchdog.IMPORTING", 1.0)  # more than the limit of a case
    code = "import opcheck.running.watchdog\nopcheck.running.watchdog.IMPORTING = 1.0\n"
    code += "with worker.imports('demo.f'): sleeps()"
    status, death = worked(Watchdog(tmp_path, seconds=0.5), code)
    assert (status, death.cause, death.is_time_out) == (1, "time-out: it takes longer than 1 s", True)
    assert death.sign.what == "demo.f"
    assert "in sleeps" in death.trace


def test_what_a_case_tried_last_is_said_and_not_what_one_before_it_did(tmp_path):
    code = "with worker.busy('a'): worker.note('sample 0')\n"
    code += "with worker.busy('b'):\n    worker.note('a longer line'); worker.note('sample 1'); os.abort()"
    _, death = worked(Watchdog(tmp_path), f"import os\n{code}")
    assert death.cause == "the process crashed (SIGABRT), at sample 1"
    (tmp_path / "other").mkdir()
    _, death = worked(Watchdog(tmp_path / "other"), f"import os\n{code.replace('worker.note', 'str')}")
    assert death.cause == "the process crashed (SIGABRT)"


def test_a_case_that_closes_the_output_closes_it_for_no_other(tmp_path):
    code = "import os\nwith worker.busy('a'): os.close(1); os.close(2)\n"
    code += "with worker.busy('b'): print('said', flush=True); os._exit(0)"
    status, death = worked(Watchdog(tmp_path), code)
    assert (status, death.sign.what, death.trace) == (0, "b", "said")


def test_the_time_of_one_case_is_not_that_of_another_nor_of_what_lies_between(tmp_path):
    code = "for _ in range(3):\n    with worker.busy('a'): time.sleep(0.25)\n    time.sleep(0.3)\nsys.exit(5)"
    status, death = worked(Watchdog(tmp_path, seconds=0.5), code)
    assert (status, death.cause) == (5, "the process exited, with status 5, before this case began, after a")


def test_a_case_that_takes_too_much_memory_is_ended(tmp_path, child):
    watchdog = Watchdog(tmp_path, memory=100)
    process = child(HOARDS)
    says(watchdog, "gw0", process)
    watchdog.start()
    assert is_ended(process)
    assert watchdog.death_of("gw0").cause == "out of memory: the process takes more than 100 MiB"
    watchdog.stop()


FORKS = """
import multiprocessing, os
def forks():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    print(process.pid, flush=True)
"""


@pytest.mark.parametrize(
    "code",
    ["with worker.busy('a'): forks(); os._exit(3)", "forks(); os._exit(3)", "forks(); time.sleep(60)"],
    ids=["ends-in-a-case", "ends-idle", "is-stopped"],
)
def test_what_a_worker_has_started_ends_with_it(tmp_path, code):
    watchdog = Watchdog(tmp_path)
    command = [sys.executable, "-c", WORKER + FORKS + code, str(watchdog.path_of("gw0"))]
    with subprocess.Popen(command) as process:
        watchdog.start()
        while not (text := read_output(watchdog.path_of("gw0"))):
            time.sleep(0.05)
        if "sleep" in code:
            watchdog.stop()
        assert is_gone(int(text))
        assert process.wait() == (-9 if "sleep" in code else 3)
    watchdog.stop()


def is_gone(number, within=10.0):
    """Return whether a process ends in time. Nobody may reap it, in a container."""
    try:
        process, deadline = psutil.Process(number), time.monotonic() + within
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.05)
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_case_within_its_memory_is_left_alone(tmp_path, child):
    watchdog = Watchdog(tmp_path, memory=100_000)
    process = child(HOARDS)
    says(watchdog, "gw0", process)
    watchdog.start()
    assert not is_ended(process, within=0.5)
    watchdog.stop()


def test_a_process_that_has_written_nothing_yet_disturbs_nobody(tmp_path):
    watchdog = Watchdog(tmp_path, memory=1)
    watchdog.path_of("gw0").write_text("{")
    watchdog.start()
    watchdog.stop()
    assert watchdog.death_of("gw0").cause == "the process is gone"


def test_a_process_that_belongs_to_somebody_else_is_gone(tmp_path, child):
    watchdog = Watchdog(tmp_path)
    process = child("pass")
    process.wait()
    says(watchdog, "gw0", process)
    assert watchdog.death_of("gw0").cause == "the process is gone"


def test_without_limits_nothing_is_ended_until_nobody_waits_any_more(tmp_path, child):
    watchdog = Watchdog(tmp_path)
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
    watchdog = Watchdog(tmp_path)
    process = child(code)
    says(watchdog, "gw0", process)
    assert watchdog.death_of("gw0").cause == cause
    assert process.wait() == status  # who started it can still ask


def test_a_process_that_ends_between_cases_is_told_so(tmp_path, child):
    watchdog = Watchdog(tmp_path)
    says(watchdog, "gw0", child("import os; os._exit(7)"), doing="idle", what="spec.toml::a::vmap[cpu-float64]")
    assert watchdog.death_of("gw0").cause == (
        "the process exited, with status 7, before this case began, after spec.toml::a::vmap[cpu-float64]"
    )


def test_the_memory_of_a_machine_is_shared_among_its_workers():
    available = psutil.virtual_memory().available / 2**20
    assert 0.7 * available < default_memory(1) < 0.9 * available
    assert default_memory(4) == pytest.approx(default_memory(1) / 4, rel=0.1)


class TestLifelines:
    def test_what_was_said_last_is_read(self, tmp_path):
        code = (
            "import os\nfor what in ('a long name of a case', 'short', 'a name'):\n    with worker.busy(what): pass\n"
        )
        _, death = worked(Watchdog(tmp_path), f"{code}with worker.busy('last'): os._exit(0)")
        assert (death.sign.doing, death.sign.what) == ("case", "last")
        assert 0 <= time.monotonic() - death.sign.since < 10
        assert 0 <= death.seconds < 10

    @pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', "[]"])
    def test_what_is_half_written_is_nothing(self, tmp_path, text):
        (tmp_path / "gw0.sign").write_text(text)
        assert read_sign(tmp_path / "gw0.sign") == NO_SIGN
        assert read_sign(tmp_path / "gw1.sign") == NO_SIGN

    def test_a_traceback_is_cut_where_opcheck_called(self, tmp_path):
        from opcheck.running.watchdog import PACKAGE

        trace = (
            f'Fatal\n  File "mine.py", line 3 in mine\n  File "{PACKAGE}/run/runner.py", line 1 in run\n  File "x"\n'
        )
        (tmp_path / "gw0.trace").write_text(trace)
        assert read_trace(tmp_path / "gw0.sign") == 'Fatal\n  File "mine.py", line 3 in mine'
        assert read_trace(tmp_path / "gw1.sign") == ""

    def test_a_process_that_crashes_leaves_the_traceback_of_its_main_thread(self, tmp_path):
        status, death = worked(Watchdog(tmp_path), "import os\ndef mine(): os.abort()\nmine()")
        assert (status, death.cause) == (-6, "the process crashed (SIGABRT)")
        trace = read_trace(tmp_path / "gw0.sign")
        assert trace.startswith("Fatal Python error: Aborted")
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
