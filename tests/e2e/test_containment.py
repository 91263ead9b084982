"""What an operator does to its process costs its own case, and no other."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

OPERATORS = '''
"""Some operators that end their process, each in its own way."""

import ctypes
import itertools
import os
import sys
import time

import torch


def fine(x):
    return 2 * x


def crashes(x):
    ctypes.string_at(0)


def exits(x):
    os._exit(0)


def hangs(x):
    while True:
        time.sleep(0.1)


def hangs_in_c(x):
    sum(itertools.repeat(1, 10**13))


def hoards(x):
    kept = []
    while True:
        kept.append(torch.ones(2**24))


def interrupts(x):
    raise KeyboardInterrupt


def skips(x):
    import pytest

    pytest.skip("not me")


def closes(x):
    sys.stdout.close()
    return 2 * x


KEPT = []


def opens(x):
    def inner(y):
        yield y

    from torch._functorch.eager_transforms import grad_increment_nesting

    KEPT.append(grad_increment_nesting())
    KEPT[-1].__enter__()
    return 2 * x
'''

SETTINGS = '[tool.opcheck]\nspecs = ["many.toml"]\nmodules = ["torch", "ends"]\n'
DEFAULTS = """
[defaults]
dtypes   = { forward = ["float64"] }
supports = { out = false }
samples  = [{ args = [{ shape = [2] }] }]
"""
ENDS = {
    "crashes": "the process crashed (SIGSEGV), at sample 0",
    "exits": "the process exited, with status 0, at sample 0",
    "hangs": "time-out: it takes longer than 6 s, at sample 0",
    "hangs_in_c": "time-out: it takes longer than 6 s, at sample 0",
    "hoards": "out of memory: the process takes more than 1500 MiB, at sample 0",
}
"""Operators at which a process ends, and the reason that is given."""
HELD = {
    "interrupts": "the operator ends the process: KeyboardInterrupt",
    "skips": "the operator ends the process: Skipped: not me",
    "opens": "side effect: the operator leaves a transform of torch.func open",
    "closes": "side effect: the operator leaves standard output closed",
}
"""Operators that would end a run, hollow it out, or spoil the process for all others, if that were not seen to."""
COUNT = 200
LIMITS = ("--check=vmap", "--timeout=6", "--memory=1500", "--report-json", "report.json")


def spec(ends):
    """Return a spec of many operators, with those that end their process spread among them."""
    places = dict(zip(range(7, COUNT, COUNT // max(len(ends), 1)), ends, strict=bool(ends)))
    entries = [
        f'[[operator]]\nname = "ends.{places.get(index, "fine")}"\nvariant = "v{index}"\n' for index in range(COUNT)
    ]
    return DEFAULTS + "".join(entries)


def written(project, ends):
    project.write("pyproject.toml", SETTINGS)
    project.write("ends.py", OPERATORS)
    project.write("many.toml", spec(ends))


@pytest.fixture(scope="module")
def in_one_process(shared):
    def run(project):
        written(project, [*HELD, *ENDS])
        return project.run("opcheck", "run", *LIMITS)

    return shared("ends-one-process", run)


EXPECTING = """
[[operator]]
name = "ends.{}"

  [[operator.expect]]
  when    = {{ check = "vmap" }}
  outcome = "error"
  match   = "status 0"
  reason  = "it exits"
"""


@pytest.fixture(scope="module")
def in_two_processes(shared):
    """Some of the same, and two operators that are expected to exit: one does, the other crashes."""

    def run(project):
        written(project, [])
        text = spec(["hangs_in_c", *HELD]) + "".join(map(EXPECTING.format, ("exits", "crashes")))
        project.write("many.toml", text)
        return project.run("opcheck", "run", "-n", "2", *LIMITS)

    return shared("ends-two-processes", run)


def reasons(run):
    """Return the reasons of what did not pass, by the id of the operator."""
    found = {name.partition("::")[0]: record for name, record in run.records.items()}
    return {name: record["reason"] for name, record in found.items() if record["outcome"] != "passed"}


@pytest.mark.nightly
def test_cases_that_end_their_process_are_errors_and_all_others_have_their_usual_outcomes(in_one_process):
    run = in_one_process
    assert run.code == 1
    assert len(run.records) == COUNT
    told = {name.partition("[")[0].removeprefix("ends."): reason for name, reason in reasons(run).items()}
    assert told == HELD | ENDS
    bad = {name: record for name, record in run.records.items() if record["outcome"] != "passed"}
    failed = {name.partition("[")[0] for name, record in bad.items() if record["outcome"] == "failed"}
    assert failed == {"ends.opens", "ends.closes"}
    for name, record in bad.items():
        assert f"run just this: opcheck run 'many.toml::{name}'" in record["message"]
    hung = next(record for record in bad.values() if "hangs_in_c" in record["operator"])
    assert "in hangs_in_c" in hung["message"]  # where it was
    assert "opcheck/" not in hung["message"].partition("run just this")[0]  # not how it got there
    for record in bad.values():
        assert record["seconds"] > (6 if "time-out" in record["reason"] else 0)
    assert run.out.splitlines()[-1].endswith(f"{COUNT - len(told)} passed, 2 failed, {len(told) - 2} error")
    assert "Traceback" not in run.out + run.err


@pytest.mark.nightly
def test_so_it_is_in_two_processes(in_two_processes):
    run = in_two_processes
    assert run.code == 1
    assert len(run.records) == COUNT + 2
    told = {name.partition("[")[0]: reason for name, reason in reasons(run).items()}
    assert told == {
        **{f"ends.{name}": reason for name, reason in HELD.items()},
        "ends.hangs_in_c": ENDS["hangs_in_c"],
        "ends.crashes": ENDS["crashes"],
        "ends.exits": "it exits",
    }
    assert run.out.splitlines()[-1].endswith(f"{COUNT - 5} passed, 2 failed, 4 error, 1 xfailed")
    assert "Traceback" not in run.out + run.err


@pytest.mark.nightly
def test_after_two_time_outs_the_other_cases_of_an_operator_are_blocked(shared):
    checks = ("vmap", "purity", "variants", "context", "dtypes")

    def run(project):
        written(project, [])
        project.write("many.toml", DEFAULTS + '[[operator]]\nname = "ends.hangs"\n[[operator]]\nname = "ends.fine"\n')
        limits = ("--check", ",".join(checks), "--timeout=2", "--report-json", "report.json")
        return project.run("opcheck", "run", "-n", "1", *limits)

    run = shared("two-time-outs", run)
    assert run.code == 1
    assert {run.outcomes[f"ends.fine::{check}[cpu-float64]"] for check in checks} == {"passed"}
    hung = [run.records[f"ends.hangs::{check}[cpu-float64]"] for check in checks]
    assert sorted(one["outcome"] for one in hung) == ["blocked"] * 3 + ["error"] * 2
    assert {one["reason"] for one in hung if one["outcome"] == "error"} == {
        "time-out: it takes longer than 2 s, at sample 0"
    }
    told = [line for line in run.out.splitlines() if "two cases timed out" in line]
    assert len(told) == 2  # at once, and in the end


@pytest.mark.nightly
def test_a_crash_that_the_spec_expects_is_no_failure_and_another_end_is_one(in_two_processes):
    outcomes = in_two_processes.outcomes
    assert outcomes["ends.exits::vmap[cpu-float64]"] == "xfailed"
    assert outcomes["ends.crashes::vmap[cpu-float64]"] == "error"


@pytest.mark.nightly
def test_an_import_that_hangs_is_told_and_ends_the_run(shared):
    def run(project):
        project.write("hangs_early.py", "import time\ntime.sleep(1000)\n")
        project.write("pyproject.toml", SETTINGS.replace('"ends"', '"hangs_early"'))
        project.write("many.toml", DEFAULTS + '[[operator]]\nname = "hangs_early.now"\n')
        return project.run("opcheck", "run", "--timeout=5")

    run = shared("hanging_import", run)
    what = "a process ended before its first case, importing hangs_early.now: time-out: it takes longer than 30 s"
    assert what in run.err
    assert run.code == 2


@pytest.mark.nightly
def test_an_import_that_ends_the_process_is_told_and_no_success(shared):
    def run(project):
        project.write("leaves_early.py", "import os\nos._exit(0)\n")
        project.write("pyproject.toml", SETTINGS.replace('"ends"', '"leaves_early"'))
        project.write("many.toml", DEFAULTS + '[[operator]]\nname = "leaves_early.now"\n')
        return project.run("opcheck", "run", *LIMITS)

    run = shared("import", run)
    assert run.code == 2
    what = "a process ended before its first case, importing leaves_early.now: the process exited, with status 0"
    assert run.err == f"opcheck: {what}\n"


@pytest.mark.nightly
def test_a_worker_that_hangs_in_c_does_not_keep_a_run_from_being_interrupted(shared):
    def run(project):
        written(project, ["hangs_in_c"])
        process = project.start("opcheck", "run", "--check=vmap", "--report-json", "report.json")
        deadline = time.monotonic() + 120
        while len(project.records()) < 7 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        run = project.finish(process)
        run.err += f"ended after {time.monotonic() - begin:.0f} s"
        return run

    run = shared("hangs", run)
    assert run.code == 2
    assert len(run.records) >= 7
    assert run.out.splitlines()[-1].startswith("interrupted after ")
    assert int(run.err.rpartition("ended after ")[2].removesuffix(" s")) < 15


@pytest.mark.nightly
def test_a_crash_at_a_derived_sample_says_which_and_what_to_do(shared):
    def run(project):
        large = "\n\ndef crashes_if_large(x):\n    return crashes(x) if x.numel() > 16 else 2 * x\n"
        project.write("ends.py", OPERATORS + large)
        project.write("pyproject.toml", SETTINGS)
        project.write("many.toml", DEFAULTS + '[[operator]]\nname = "ends.crashes_if_large"\n')
        return project.run("opcheck", "run", "--check=derived", "--report-json", "report.json")

    (record,) = shared("derived_crash", run).records.values()
    assert record["reason"] == "the process crashed (SIGSEGV), at sample 0 with size 2 -> 17"
    assert "remove this variation from vary" in record["message"]


FORKS = """
import multiprocessing
import os
import subprocess
import sys
import time


def noted(number):
    with open("started", "a") as file:
        file.write(f"{number}\\n")


def sleeps_beside():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    process.start()
    noted(process.pid)


def keeps(x):
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    noted(child)
    noted(subprocess.Popen(["sleep", "1000"]).pid)
    return 2 * x


def child_leaves(x):
    child = os.fork()
    if child == 0:
        sys.exit(7)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
    return 2 * x


def child_goes_on(x):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
    return 2 * x


def starts_and_hangs(x):
    sleeps_beside()
    time.sleep(1000)


def starts_and_exits(x):
    sleeps_beside()
    os._exit(3)
"""


OF_FORKS = {
    "starts_and_exits": "the process exited, with status 3, at sample 0",
    "child_leaves": "",
    "starts_and_hangs": "time-out: it takes longer than 6 s, at sample 0",
    "child_goes_on": "",
    "keeps": "",
}
"""What becomes of the operators in `FORKS`, in the order in which they are called."""


@pytest.mark.parametrize(
    "names", [("starts_and_exits", "keeps"), pytest.param((*OF_FORKS,), marks=pytest.mark.nightly)], ids=["two", "all"]
)
def test_a_process_that_an_operator_starts_neither_holds_up_a_run_nor_outlives_it(project, names):
    project.write("forks.py", FORKS)
    project.write("pyproject.toml", SETTINGS.replace("ends", "forks"))
    project.write("many.toml", DEFAULTS + "".join(f'[[operator]]\nname = "forks.{name}"\n' for name in names))
    run = project.run("opcheck", "run", "--check=dtypes", "--timeout=6", "--report-json", "report.json", seconds=200)
    reasons = {record["operator"].removeprefix("forks."): record["reason"] for record in run.records.values()}
    assert reasons == {name: OF_FORKS[name] for name in names}
    assert run.code == 1
    started = [int(line) for line in (project.folder / "started").read_text().split()]
    assert len(started) >= 3
    assert [number for number in started if is_running(number)] == []


def is_running(number):
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
