"""What is left when a run does not come to its end."""

from __future__ import annotations

import signal
import time
import xml.etree.ElementTree as ElementTree

import pytest

SLOW = """
[[operator]]
name     = "demo.slow"
dtypes   = { forward = ["float64"] }
supports = { out = false, vmap = false, forward_ad = false }
samples  = [{ args = [{ shape = [1] }] }]

[[operator]]
name     = "demo.hangs"
dtypes   = { forward = ["float64"] }
supports = { out = false, vmap = false, forward_ad = false }
samples  = [{ args = [{ shape = [1] }] }]
"""

REPORT = ("--report-json", "report.json")


def interrupted(project, number, *options, before=()):
    """Run two operators, the second of which hangs, and send a signal once something has finished.

    before: the words of a command that runs opcheck.
    """
    project.write("slow.toml", SLOW)
    project.write("hang", "")
    process = project.start(
        *before, "opcheck", "run", "slow.toml", "--check", "variants,grad_dtypes", *options, *REPORT
    )
    deadline = time.monotonic() + 120
    while len(project.records()) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    return project.finish(process)


@pytest.mark.parametrize(
    ("number", "options"),
    [
        pytest.param(signal.SIGINT, (), marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, (), marks=pytest.mark.nightly),
        (signal.SIGINT, ("-n", "2")),
    ],
    ids=["interrupt", "terminate", "interrupt-parallel"],
)
def test_a_signal_leaves_a_report_of_what_had_finished(shared, request, number, options):
    run = shared(request.node.callspec.id, lambda project: interrupted(project, number, *options))
    assert run.code == 2
    assert run.outcomes == {
        "demo.slow::grad_dtypes[cpu-float64]": "passed",
        "demo.slow::variants[cpu-float64]": "passed",
    }
    assert run.out.splitlines()[-1] == "interrupted after 2 of 4 cases"
    assert run.header["complete"] is False
    assert run.header["seconds"] > 0
    assert "Traceback" not in run.out + run.err


IN_BACKGROUND = (
    "python",
    "-c",
    """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(os.path.join(os.path.dirname(sys.executable), sys.argv[1]), sys.argv[1:])
""",
)
"""Runs a command as a shell script does in the background: it ignores SIGINT."""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-n", "2"), id="workers", marks=pytest.mark.nightly),
        pytest.param(("--in-process",), id="in-process"),
    ],
)
def test_sigterm_ends_a_run_in_the_background(shared, options):
    def run(project):
        return interrupted(project, signal.SIGTERM, *options, before=IN_BACKGROUND)

    ended = shared(f"background {options}", run)
    assert ended.code == 2
    assert ended.out.splitlines()[-1] == "interrupted after 2 of 4 cases"


LARGE = """
import os
def block(x):
    if x.shape[0] > 16:
        os.abort()
    return 2 * x
"""
VARIANTS, DERIVED = "demo.aborts::variants[cpu-float64]", "large.block::derived[cpu-float64]"


@pytest.fixture(scope="module")
def crashed(shared):
    def run(project):
        project.write("large.py", LARGE)
        project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["demo", "large"]\n')
        project.write("crash.toml", SLOW.replace("demo.hangs", "demo.aborts"))
        alone = SLOW.partition('[[operator]]\nname     = "demo.hangs"')[0]
        project.write("large.toml", alone.replace("demo.slow", "large.block").replace("[1]", "[3]"))
        cases = ("crash.toml::demo.slow::variants[cpu-float64]", f"crash.toml::{VARIANTS}", f"large.toml::{DERIVED}")
        words = (*cases, "--seed=7", *REPORT, "--junitxml=report.xml")
        done = project.run("opcheck", "run", *words)
        done.err = (project.folder / "report.xml").read_text()
        return done

    return shared("crash", run)


@pytest.mark.nightly
def test_a_crash_of_the_only_process_costs_the_cases_that_crash(crashed):
    assert crashed.code == 1
    assert crashed.outcomes == {
        "demo.slow::variants[cpu-float64]": "passed",
        VARIANTS: "error",
        DERIVED: "error",
    }
    assert crashed.header["complete"] is True
    places = {(one["file"], one["line"]) for one in crashed.records.values()}
    assert places == {("crash.toml", 3), ("crash.toml", 9), ("large.toml", 3)}


@pytest.mark.nightly
def test_a_crash_at_a_derived_sample_says_at_which(crashed):
    record = crashed.records[DERIVED]
    assert record["reason"] == "the process crashed (SIGABRT), at sample 0 with size 3 -> 17"


@pytest.mark.nightly
def test_junit_says_what_became_of_the_process(crashed):
    record = crashed.records[VARIANTS]
    told = {case[0].text: case for case in ElementTree.fromstring(crashed.err).iter("testcase") if len(case)}
    assert set(told) == {crashed.records[name]["message"] for name in (VARIANTS, DERIVED)}
    case = told[record["message"]]
    (error,) = case
    assert (error.tag, error.get("message")) == ("error", record["reason"])
    assert error.get("message") == "the process crashed (SIGABRT), at sample 0"
    assert float(case.get("time")) > 0


def test_a_crash_names_the_seed(crashed):
    for name, record in crashed.records.items():
        assert record["seed"] == 7
        rerun = f"run just this: opcheck run --seed 7 '{record['file']}::{name}'"
        assert (rerun in record["message"]) == (record["outcome"] == "error")


@pytest.mark.nightly
def test_a_worker_of_plain_pytest_that_crashes_costs_its_case_which_a_spec_may_expect(plain_pytest, project):
    expect = '[[operator.expect]]\nwhen = { check = "variants" }\noutcome = "error"\nreason = "known"\n'
    project.write("specs/deep/crash.toml", SLOW.replace("demo.hangs", "demo.aborts") + ALSO_ABORTS + expect)
    options = ("--opcheck-check=variants", "--opcheck-report-json=report.json", "--junitxml=report.xml")
    run = plain_pytest("specs/deep/crash.toml", "-n1", *options)
    assert run.outcomes == {
        "demo.slow::variants[cpu-float64]": "passed",
        "demo.aborts::variants[cpu-float64]": "error",
        "demo.aborts[again]::variants[cpu-float64]": "xfailed",
    }
    assert (run.code, run.header["complete"]) == (1, True)
    record = run.records["demo.aborts::variants[cpu-float64]"]
    assert (record["reason"], record["family"], record["line"]) == ("the process crashed", "deep", 9)
    assert "crashed while running" in record["message"]
    rerun = "run just this: opcheck run 'specs/deep/crash.toml::demo.aborts::variants[cpu-float64]'"
    assert rerun in record["message"]
    assert rerun in run.out
    names = {(case["classname"], case["name"]) for case in run.junit}
    assert ("specs.deep.crash", "demo.aborts::variants[cpu-float64]") in names


ALSO_ABORTS = """
[[operator]]
name     = "demo.aborts"
variant  = "again"
dtypes   = { forward = ["float64"] }
supports = { out = false, vmap = false, forward_ad = false }
samples  = [{ args = [{ shape = [1] }] }]

"""


@pytest.mark.nightly
def test_a_crash_in_process_keeps_the_report_of_what_had_finished(shared):
    def run(project):
        project.write("crash.toml", SLOW.replace("demo.hangs", "demo.aborts"))
        return project.run("opcheck", "run", "crash.toml", "--in-process", "--check", "variants,grad_dtypes", *REPORT)

    run = shared("crash-in-process", run)
    assert run.code == -signal.SIGABRT
    assert (run.header["complete"], run.header["seconds"]) == (False, None)
    assert run.outcomes == {
        "demo.slow::grad_dtypes[cpu-float64]": "passed",
        "demo.slow::variants[cpu-float64]": "passed",
    }


@pytest.mark.parametrize("program", ["opcheck", pytest.param("pytest", marks=pytest.mark.nightly)])
def test_an_operator_that_swallows_its_time_out_does_not_pass(cli, plain_pytest, project, program):
    project.write("demo.py", SWALLOWS)
    project.write("slow.toml", SLOW.partition("\n\n")[0].replace("demo.slow", "demo.swallows"))
    if program == "opcheck":
        run = cli("run", "slow.toml", "--timeout=0.3", "--check=grad_dtypes", *REPORT)
    else:
        run = plain_pytest(
            "slow.toml", "--timeout=0.3", "--opcheck-check=grad_dtypes", "--opcheck-report-json=report.json"
        )
    (record,) = run.records.values()
    assert record["outcome"] == "error"
    assert record["reason"].startswith("time-out: it took ")
    assert record["reason"].endswith(" s, longer than 0.3 s, and swallowed the interrupt")
    assert run.code == 1


SWALLOWS = """
import time


def swallows(x):
    try:
        time.sleep(1)
    except BaseException:
        pass
    return 2 * x
"""


def test_a_time_out_ends_the_case_alone(cli, project):
    project.write("hang", "")
    project.write("slow.toml", SLOW)
    run = cli("run", "slow.toml", "--timeout=3", "--check=variants", *REPORT)
    assert run.code == 1
    assert run.outcomes == {"demo.slow::variants[cpu-float64]": "passed", "demo.hangs::variants[cpu-float64]": "error"}
    record = run.records["demo.hangs::variants[cpu-float64]"]
    assert record["reason"] == "time-out: it takes longer than 3 s"
    assert record["message"].splitlines()[-1] == (
        "run just this: opcheck run 'slow.toml::demo.hangs::variants[cpu-float64]'"
    )


@pytest.mark.nightly
def test_a_reader_that_goes_away_ends_the_run_without_a_traceback(shared):
    def run(project):
        process = project.start("opcheck", "run", "--check", "backward,variants")
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        return project.finish(process)

    assert "Traceback" not in (shared("pipe", run).err or "")


EARLY = """
[[operator]]
name     = "early.double"
dtypes   = { forward = ["float64"] }
samples  = [{ args = [{ shape = [1] }] }]
"""


@pytest.mark.parametrize(
    "end",
    [
        "import ctypes; ctypes.string_at(0)",
        pytest.param("import os, signal, time; os.kill(os.getppid(), 15); time.sleep(600)", marks=pytest.mark.nightly),
    ],
    ids=["crash", "terminate"],
)
def test_a_run_that_ends_before_its_first_case_is_not_complete(project, cli, end):
    project.write("early.py", end)
    project.write("early.toml", EARLY)
    project.write("pyproject.toml", "[tool.opcheck]\nspecs = ['specs']\nmodules = ['torch', 'demo', 'early']\n")
    assert cli("run", "specs/good.toml", "--check=backward", "--report-json", "good.json").code == 0
    done = project.run("opcheck", "run", "early.toml", "--device", "cpu", "--check=backward", *REPORT)
    assert (done.code, done.records) == (2, {})
    assert (done.header["complete"], done.header["cases"]) == (False, None)
    project.write("early.json", (project.folder / "report.json").read_text())
    merged = cli("report", "merge", "good.json", "early.json", "-o", "all.json")
    shown, compared = cli("report", "markdown", "all.json"), cli("report", "diff", "good.json", "all.json")
    assert (merged.code, compared.code) == (1, 1)
    for text in (merged.err, shown.out, compared.out):
        assert "the run on cpu with torch " in text
        assert "ended before its cases were known" in text
