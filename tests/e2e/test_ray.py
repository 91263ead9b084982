"""`opcheck run --ray` gives the outcomes of the plain run, whatever becomes of the processes of the cluster."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from backends import needs_python_backend

from opcheck.running.outcome import BAD

BACKEND = Path(__file__).resolve().parent.parent.parent / "examples" / "backend"

NO_RAY = importlib.util.find_spec("ray") is None


def needs_ray(test):
    """Mark a test that starts a cluster, which takes ten seconds."""
    return pytest.mark.nightly(pytest.mark.skipif(NO_RAY, reason="ray is not installed")(test))


OPERATORS = '''
"""Operators that end their process, or that of the task of Ray that has started it."""

import ctypes
import itertools
import os
import shutil
import signal
import time

import torch


def fine(x):
    return 2 * x


def wrong(x):
    return 2 * x * (1 + torch._C._functorch.is_batchedtensor(x))


def loses_its_task_once(x):
    try:
        os.close(os.open("lost", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return 2 * x
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(120)


def crashes(x):
    ctypes.string_at(0)


def exits(x):
    os._exit(0)


def hangs_in_c(x):
    sum(itertools.repeat(1, 10**13))


def sleeps(x):
    open(f"asleep-{os.getpid()}", "w").close()
    time.sleep(120)
    return 2 * x
'''

SETTINGS = '[tool.opcheck]\nspecs = ["specs"]\nmodules = ["torch", "ends"]\ndevices = ["devices"]\n'
SPEC = """
[defaults]
dtypes   = { forward = ["float64"] }
supports = { out = false }
samples  = [{ args = [{ shape = [2] }] }]
"""
EXPECTED = """
  [[operator.expect]]
  when    = { check = "vmap" }
  outcome = "error"
  match   = "status 0"
  reason  = "it exits"
"""
NPU = '[device]\nname = "npu"\ntorch = "cpu"\nresources = { npu = 1 }\n'
REPORTS = ("--report-json", "report.json", "--junitxml", "report.xml")


def operator(name, keys=""):
    return f'[[operator]]\nname = "ends.{name}"\nvariant = "{name}"\n{keys}'


def written(project, *names, file="ends.toml"):
    for old in ("good", "bad"):
        (project.folder / f"specs/{old}.toml").unlink(missing_ok=True)
    project.write("pyproject.toml", SETTINGS)
    project.write("devices/npu.toml", NPU)
    project.write("ends.py", OPERATORS)
    project.write(f"specs/{file}", SPEC + "".join(map(operator, names)))


def processes(folder):
    """Return the processes that an operator has recorded in a folder, and that still run."""
    found = [int(path.name.partition("-")[2]) for path in folder.glob("asleep-*")]
    return [pid for pid in found if os.path.exists(f"/proc/{pid}")]


def many(project):
    written(project, "fine", "wrong", "loses_its_task_once")
    project.write(
        "specs/others.toml",
        SPEC + operator("crashes") + operator("exits", EXPECTED) + operator("hangs_in_c"),
    )


MANY = ("--device", "cpu", "--check=vmap", "--timeout=6", *REPORTS)


@pytest.fixture(scope="module")
def plain(shared):
    def run(project):
        many(project)
        project.write("lost", "")  # not here
        return project.run("opcheck", "run", *MANY)

    return shared("ray-plain", run)


@pytest.fixture(scope="module")
def on_ray(shared):
    def run(project):
        many(project)
        return project.run("opcheck", "run", "--ray", "-n", "2", *MANY)

    return shared("ray-local", run)


@needs_ray
class TestALocalCluster:
    def test_every_case_has_the_outcome_of_the_plain_run(self, plain, on_ray):
        assert on_ray.outcomes == plain.outcomes
        assert set(on_ray.outcomes.values()) == {"passed", "failed", "error", "xfailed"}
        assert (on_ray.code, plain.code) == (1, 1)

    def test_and_its_record_but_for_the_time(self, plain, on_ray):
        for name, record in on_ray.records.items():
            known = plain.records[name]
            assert {**record, "seconds": 0, "message": ""} == {**known, "seconds": 0, "message": ""}
            assert "run just this: opcheck run 'specs/" in record["message"] or record["outcome"] in (
                "passed",
                "xfailed",
            )

    def test_the_junit_report_has_the_same_tests(self, plain, on_ray):
        told = [
            sorted((case["classname"], case["name"], case["kind"]) for case in run.junit) for run in (plain, on_ray)
        ]
        assert told[0] == told[1]
        assert len(told[0]) == len(plain.records)

    def test_a_task_whose_process_is_lost_is_tried_again(self, on_ray):
        lost = {name: record for name, record in on_ray.outcomes.items() if "loses_its_task_once" in name}
        assert set(lost.values()) == {"passed"}
        assert lost

    @pytest.mark.parametrize(
        ("name", "cause"),
        [
            ("crashes", "the process crashed (SIGSEGV), at sample 0"),
            ("hangs_in_c", "time-out: it takes longer than 6 s, at sample 0"),
        ],
    )
    def test_an_operator_that_always_ends_its_process_is_an_error_with_its_cause(self, on_ray, name, cause):
        found = {record["reason"] for key, record in on_ray.records.items() if key.startswith(f"ends.{name}[")}
        assert found == {cause}

    def test_the_terminal_shows_the_run_as_ever(self, plain, on_ray):
        assert on_ray.out.splitlines()[-1].partition(": ")[2] == plain.out.splitlines()[-1].partition(": ")[2]
        assert on_ray.err == ""


@needs_ray
@needs_python_backend
def test_a_device_that_a_module_registers_is_tested_beside_another_one(project):
    shutil.copytree(BACKEND, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"), dirs_exist_ok=True)
    request = ("run", "builtin", "--device", "cpu,sim", "--operator", "torch.cumsum", "--dtype", "float64")
    run = project.run("opcheck", *request, "--ray", "-n", "1", *REPORTS)
    assert {record["device"] for record in run.records.values()} == {"cpu", "sim"}
    wrong = {name: record["reason"] for name, record in run.records.items() if record["outcome"] in BAD}
    assert wrong == {}


@needs_ray
class TestWhatCannotBeRun:
    def test_resources_that_no_node_has_are_an_error(self, shared):
        def run(project):
            written(project, "fine")
            return project.run("opcheck", "run", "--device", "cpu,npu", "--ray", "-n", "1", "--check=vmap", *REPORTS)

        run = shared("ray-resources", run)
        assert run.code == 2
        asked = (
            "no node of the Ray cluster has 1 num_cpus, 1 npu, required by a task on npu; the nodes have: 1 num_cpus"
        )
        assert run.err.startswith(f"opcheck: {asked}; start a cluster that has it (`ray start --head ")
        assert run.records == {}

    def test_a_device_that_nobody_has_named_and_no_node_has_is_skipped_and_counted(self, shared):
        def run(project):
            written(project, "fine")
            return project.run("opcheck", "run", "--ray", "-n", "1", "--check=vmap", *REPORTS)

        run = shared("ray-unnamed", run)
        assert run.code == 0
        fine = "ends.fine[fine]::vmap[{}-float64]"
        assert run.outcomes[fine.format("cpu")] == "passed"
        skipped = run.records[fine.format("npu")]
        assert skipped["outcome"] == "skipped"
        assert skipped["reason"].startswith(
            "the device npu is not present: no node of the Ray cluster has the resources"
        )

    def test_a_name_that_does_not_exist_is_told_before_its_task_runs_a_case(self, shared):
        def run(project):
            written(project, "fine", "fin")
            return project.run("opcheck", "run", "--device", "cpu", "--ray", "-n", "1", "--check=vmap", *REPORTS)

        run = shared("ray-unknown", run)
        assert run.code == 2
        assert run.err.startswith("specs/ends.toml:10:8: ")
        assert 'did you mean "ends.fine"' in run.err
        assert run.records == {}
        assert "Traceback" not in run.err


@needs_ray
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "terminate"])
def test_a_signal_ends_the_run_and_the_cluster_and_keeps_the_reports(shared, number):
    def run(project):
        written(project, "sleeps")
        project.write("specs/first.toml", SPEC + operator("fine"))
        process = project.start("opcheck", "run", "--device", "cpu", "--ray", "-n", "2", "--check=vmap", *REPORTS)
        deadline = time.monotonic() + 150
        while not (project.records() and processes(project.folder)) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(number)
        run = project.finish(process)
        deadline = time.monotonic() + 20
        while processes(project.folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        run.err += f"{len(processes(project.folder))} left"
        return run

    run = shared(f"ray-{number}", run)
    assert run.code == 2
    assert set(run.outcomes.values()) == {"passed"}
    assert run.out.splitlines()[-1].startswith("interrupted after ")
    assert run.err == "0 left"


@needs_ray
def test_the_first_failure_ends_the_run(shared):
    def run(project):
        written(project, "wrong", "sleeps")
        return project.run(
            "opcheck", "run", "--device", "cpu", "--ray", "-n", "1", "-x", "--operator", "ends.wrong", *REPORTS
        )

    run = shared("ray-x", run)
    assert run.code == 1
    assert "stopped at a failure, after " in run.out.splitlines()[-1]
    assert "failed" in run.outcomes.values()


@needs_ray
def test_a_cluster_that_runs_already_is_joined_and_its_resources_are_asked_for(shared, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)

    def run(project):
        written(project, "fine")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        start = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}", "--num-cpus=1",
            "--include-dashboard=false", "--disable-usage-stats",
            f"--object-store-memory={100 * 2**20}", f"--resources={json.dumps({'npu': 1})}",
        ]  # fmt: skip
        head = subprocess.Popen(start, cwd=project.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(8):
                run = project.run(
                    "opcheck", "run", "--device", "npu", "--ray", f"127.0.0.1:{port}", "--check=vmap", *REPORTS
                )
                if run.code != 2:
                    break
                time.sleep(2)
        finally:
            head.terminate()
            head.wait()
        return run

    run = shared("ray-joined", run)
    assert (run.code, run.err) == (0, "")
    assert run.outcomes == {"ends.fine[fine]::vmap[npu-float64]": "passed"}


class TestRequests:
    def test_without_ray_the_package_to_install_is_named(self, cli, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        run = cli("run", "-n", "1", "--ray")
        assert run.code == 2
        assert run.err.startswith("opcheck: --ray needs the package ray (")
        assert run.err.endswith("install it: pip install 'opcheck[ray]'\n")

    def test_specs_are_not_taken_for_an_address(self, cli):
        run = cli("run", "-n", "1", "--ray", "specs")
        assert run.code == 2
        assert '"specs" is not the address of a Ray cluster; expected auto, HOST:PORT or nothing' in run.err

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (
                ("-n", "2", "--ray", "auto"),
                "-n cannot be used with --ray auto: it sets only the size of a cluster that opcheck starts; drop -n, "
                "or use --ray without an address",
            ),
            (("--in-process", "-n", "1", "--ray"), "--ray cannot be used with --in-process"),
        ],
    )
    def test_what_does_not_go_together_is_refused(self, cli, options, why):
        run = cli("run", *options)
        assert (run.code, run.err) == (2, f"opcheck: {why}\n")
