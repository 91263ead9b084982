"""What operators put into their messages, and disks without room: no report is lost, and none does harm."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from report_files import lines

ODD = r'''
"""Operators with odd errors."""

import logging

import torch


class Nameless(type):
    @property
    def __name__(cls):
        raise ValueError("no name")


class Mute(Exception, metaclass=Nameless):
    def __str__(self):
        raise Mute

    __repr__ = __str__


class Masked(Exception):
    @property
    def __class__(self):
        raise Mute


class Text(str):
    def split(self, *_):
        raise Mute

    encode = __getitem__ = split

    def __str__(self):
        return self


class Worded(Exception):
    def __str__(self):
        return Text("of a class of its own \udc81")


ERRORS = {
    "surrogate": lambda: RuntimeError("half a pair: \udc80"),
    "mute": Mute,
    "masked": Masked,
    "worded": Worded,
    "endless": lambda: RuntimeError("x" * 10_000_000),
    "escapes": lambda: RuntimeError("\x1b]0;owned\x07\x1b[2J\rpassed \u202eevil \x00\x0b ]]> <&"),
}


def raising(name):
    def raises(x):
        logging.getLogger("odd").warning("logged \udc82")
        print("printed \x1b[2J")
        raise ERRORS[name]()

    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, v):
            raise ERRORS[name]()

    def late(x):
        return Late.apply(x)

    return raises, late


for name in ERRORS:
    for function, prefix in zip(raising(name), ("", "late_")):
        function.__name__ = function.__qualname__ = prefix + name
        globals()[prefix + name] = function
del function
'''

NAMES = ["surrogate", "mute", "masked", "worded", "endless", "escapes"]

SPEC = """
[[operator]]
name     = "odd.{}"
dtypes   = {{ forward = ["float64"] }}
supports = {{ out = false, vmap = false, forward_ad = false, batched_grad = false }}
samples  = [{{ args = [{{ shape = [2] }}] }}]
"""

TOLD = {
    "surrogate": r"RuntimeError: half a pair: \udc80",
    "mute": "Mute: (the message is unavailable: __str__ raised Mute)",
    "masked": "Masked",
    "worded": r"Worded: of a class of its own \udc81",
    "endless": "xxx ... (9999564 characters left out)",
    "escapes": "RuntimeError: \x1b]0;owned\x07\x1b[2J passed \u202eevil \x00",
}

REPORTS = ("--report-json", "report.json", "--junitxml", "report.xml")
PLAIN = ("specs/odd.toml", "--opcheck-check=backward", "--opcheck-report-json=report.json", "--junitxml=report.xml")
IDS = {f"odd.{prefix}{name}::backward[cpu-float64]": name for name in NAMES for prefix in ("", "late_")}


def odd(project):
    project.write("odd.py", ODD)
    settings = (project.folder / "pyproject.toml").read_text()
    project.write("pyproject.toml", settings.replace('"demo"', '"demo", "odd"'))
    project.write("specs/odd.toml", "".join(SPEC.format(prefix + name) for name in NAMES for prefix in ("", "late_")))


WAYS = {
    "opcheck": ("opcheck", "run", "specs/odd.toml", "--check=backward", *REPORTS),
    "pytest": ("pytest", *PLAIN),
    "pytest_parallel": ("pytest", *PLAIN, "-n", "2"),
}


@pytest.fixture(
    scope="module",
    params=[way if way == "opcheck" else pytest.param(way, marks=pytest.mark.nightly) for way in WAYS],
)
def told(request, shared):
    """A run of operators with odd errors."""

    def run(project):
        odd(project)
        return project.run(*WAYS[request.param])

    return shared(f"odd_{request.param}", run)


class TestOddErrors:
    def test_each_case_comes_to_its_outcome_in_each_report(self, told):
        assert {name: record["outcome"] for name, record in told.records.items()} == {
            name: "failed" if "late" in name else "error" for name in IDS
        }
        assert sorted(case["name"] for case in told.junit) == sorted(IDS)
        assert {case["classname"] for case in told.junit} == {"specs.odd"}
        assert told.code == 1

    def test_each_reason_says_what_the_operator_said(self, told):
        for name, kind in IDS.items():
            assert TOLD[kind] in told.records[name]["reason"]

    def test_each_message_can_be_encoded_and_read(self, told):
        for record in told.records.values():
            assert json.dumps(record, ensure_ascii=False).encode()
            assert len(record["message"]) < 110_000
            assert "run just this: opcheck run" in record["message"]

    def test_nothing_does_anything_to_the_terminal(self, told):
        shown = told.out.replace("printed \x1b[2J", "")  # pytest's own report shows what was printed as it is
        assert [sign for sign in shown if not sign.isprintable() and sign != "\n"] == []
        assert r"\x1b]0;owned\x07\x1b[2J" in shown
        assert max(map(len, shown.splitlines())) < 2000

    def test_there_is_no_traceback_of_opcheck_or_pytest(self, told):
        assert "Traceback" not in told.out + told.err
        assert "INTERNALERROR" not in told.out + told.err


FULL = """
import resource, sys

import pytest
from opcheck.cli import main

program, size, *arguments = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
sys.exit(main(arguments) if program == "opcheck" else pytest.main(arguments))
"""


def full(project, size, *command):
    """Run a command where no file may grow over a size, as if the disk were full."""
    project.write("full.py", FULL)
    return project.run(sys.executable, "full.py", command[0], str(size), *command[1:])


CHECKED = ("--check=backward,variants",)
WITHOUT_ROOM = {
    "opcheck": ("opcheck", "run", "specs/good.toml", *CHECKED, "--report-json=report.json"),
    "pytest": ("pytest", "specs/good.toml", "--opcheck-check=backward,variants", "--opcheck-report-json=report.json"),
}


@pytest.mark.nightly
@pytest.mark.skipif(torch.__version__ < "2.13", reason="torch wrote a file, too, as its compiler was imported")
@pytest.mark.parametrize("way", ["opcheck", "pytest"])
def test_a_report_that_finds_no_room_costs_nothing_else(shared, way):
    """What was written is whole, the run goes on to its end, says once what is missing and why, and is no success."""
    done = shared(f"full_{way}", lambda project: full(project, 1200, *WITHOUT_ROOM[way]))
    assert set(done.outcomes.values()) == {"passed"}
    (line,) = [line for line in done.out.splitlines() if "is incomplete" in line]
    assert re.search(r"report\.json is incomplete: [2-4] of 5 lines are missing: File too large$", line)
    assert 1 <= len(done.records) < 3
    assert "3 passed" in done.out
    assert "Traceback" not in done.out + done.err
    assert done.code == 1


@pytest.mark.nightly
def test_a_full_disk_under_the_output_costs_neither_the_run_nor_its_report(shared):
    command = "opcheck run specs/good.toml --check=backward,variants --report-json=report.json > /dev/full"

    def run(project):
        return project.run("/bin/sh", "-c", f"{shlex.quote(os.path.dirname(sys.executable))}/{command}")

    done = shared("full_output", run)
    assert set(done.outcomes.values()) == {"passed"}
    assert len(done.outcomes) == 3
    assert done.err.splitlines() == ["opcheck: the output is incomplete: No space left on device"]
    assert done.code == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("specs", "--junitxml must be a filename, given: specs"),  # as pytest itself says
        ("demo.py/report.xml", "the report cannot be written: [Errno 20] Not a directory"),
        ("demo.py/deep/report.xml", "the report cannot be written: [Errno 20] Not a directory"),
        ("/proc/report.xml", "the report cannot be written: [Errno 2] No such file or directory"),
    ],
)
@pytest.mark.parametrize("program", ["opcheck", "pytest"])
def test_a_junit_report_that_cannot_be_written_is_told_before_anything_runs(cli, plain_pytest, name, why, program):
    if program == "opcheck":
        done = cli("run", "specs/good.toml", "--junitxml", name)
        assert done.code == 2
        assert "cases in" not in done.out
    else:
        done = plain_pytest("specs/good.toml", "--junitxml", name)
        assert done.code == pytest.ExitCode.USAGE_ERROR
        assert "collected" not in done.out
    (line,) = [line for line in done.err.splitlines() if line]
    assert line.startswith(f"ERROR: {why}")


@pytest.mark.parametrize("name", ["specs", "demo.py/report.json", "-"])
def test_a_json_report_that_cannot_be_written_is_told_before_anything_runs(cli, name):
    done = cli("run", "specs/good.toml", "--report-json", name)
    (line,) = [line for line in done.err.splitlines() if line]
    assert line.startswith("ERROR: the report cannot be written: ")
    assert (done.code, done.out) == (2, "")


def test_a_report_to_a_pipe_is_whole_when_the_run_ends(cli, project):
    os.mkfifo("pipe")
    with ThreadPoolExecutor() as pool:
        reader = pool.submit(Path("pipe").read_text)
        done = cli("run", "specs/good.toml", "--check=backward", "--report-json=pipe")
        if done.code == 2:
            os.close(os.open("pipe", os.O_RDWR))  # refused: the reader waits
        received = reader.result(timeout=60)
    assert done.code == 0
    header, *cases, end = map(json.loads, received.splitlines())
    assert (header["devices"], len(cases), end["complete"]) == (["cpu"], 2, True)
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


@pytest.mark.nightly
def test_standard_output_in_a_file_keeps_what_is_there(project):
    words = ("run", "specs/good.toml", "--check=backward", "--in-process", "--report-json=/dev/stdout")
    with open("kept", "w") as kept:
        kept.write("before\n")
        kept.flush()
        done = subprocess.run([sys.executable, "-m", "opcheck", *words], stdout=kept, timeout=240, check=False)
        kept.write("after\n")
    text = Path("kept").read_text()
    assert done.returncode == 0
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert '{"schema": ' in text
    assert "2 cases in " in text


def test_a_full_device_is_told_at_the_end(cli):
    done = cli("run", "specs/good.toml", "--check=backward", "--report-json=/dev/full")
    assert done.code == 1
    assert done.out.splitlines()[-1] == (
        "error the report /dev/full is incomplete: 4 of 4 lines are missing: No space left on device"
    )


class TestFailuresAtTheEnd:
    """A JUnit report that cannot be written after all costs neither the summary nor the other report."""

    @pytest.fixture(autouse=True)
    def link(self, project):
        (project.folder / "full.xml").symlink_to("/dev/full")

    def test_the_summary_and_the_other_report_are_there(self, cli):
        done = cli("run", "--check=backward", "--report-json=report.json", "--junitxml=full.xml")
        assert len(done.records) == 3
        assert any(line.startswith("3 cases in ") for line in done.out.splitlines())
        last = done.out.splitlines()[-1]
        assert last.startswith("error the report ")
        assert last.endswith("/full.xml cannot be written: No space left on device")
        assert "Traceback" not in done.out + done.err
        assert done.code == 1

    def test_a_run_in_which_all_held_is_no_success(self, cli):
        assert cli("run", "specs/good.toml", "--check=backward", "--junitxml=full.xml").code == 1

    def test_plain_pytest_tells_it_too(self, plain_pytest):
        options = ("--opcheck-check=backward", "--opcheck-report-json=report.json", "--junitxml=full.xml")
        done = plain_pytest("specs/good.toml", *options)
        (line,) = [line for line in done.out.splitlines() if "cannot be written" in line]
        assert line.startswith("opcheck: the report ")
        assert " 2 passed in" in done.out.splitlines()[-1]
        assert len(done.records) == 2
        assert done.code == 1

    def test_a_folder_that_goes_away_meanwhile_is_told(self, project, cli):
        project.write(
            "gone.py", "import shutil\ndef gone(x):\n    shutil.rmtree('out', ignore_errors=True)\n    return 2 * x\n"
        )
        project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["gone"]\n')
        text = SPEC.format("gone").replace("odd.gone", "gone.gone")
        project.write("gone.toml", text)
        os.mkdir("out")
        done = cli(
            "run", "gone.toml", "--check=backward", "--report-json=out/a/report.json", "--junitxml=out/report.xml"
        )
        assert done.code == 0  # both folders are made again
        assert len(lines(project.folder / "out/a/report.json")) == 3
        shutil.rmtree("out")


class TestJUnit:
    def test_other_tests_keep_their_names(self, project, plain_pytest):
        project.write("tests/test_own.py", "class TestIt:\n    def test_own(self): pass\n")
        plain_pytest("-k", "own or backward", "--junitxml=report.xml", "--junitprefix=mine")
        assert [(case["classname"], case["name"]) for case in project.junit()] == [
            ("mine.specs.bad", "demo.wrong::backward[cpu-float64]"),
            ("mine.specs.good", "demo.double::backward[cpu-float64]"),
            ("mine.specs.good", "demo.double[inplace]::backward[cpu-float64]"),
            ("mine.tests.test_own.TestIt", "test_own"),
        ]

    def test_pytest_may_do_without_it(self, plain_pytest):
        done = plain_pytest("specs/good.toml", "--opcheck-check=backward", "-p", "no:junitxml")
        assert "2 passed" in done.out
        assert done.code == 0
