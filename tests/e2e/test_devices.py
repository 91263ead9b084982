"""Devices in a run: profiles from the command line, what they leave out, and operators that break a device."""

from __future__ import annotations

import json
import re

import pytest

NIGHTLY = pytest.mark.nightly

OPERATORS = '''
"""Operators, and a device on the CPU that one of them breaks for good, as a device-side assert does."""

BROKEN = []


def wait():
    if BROKEN:
        raise RuntimeError("device-side assert triggered")


def seed(number):
    wait()


def fine(x):
    wait()
    return 2 * x


def asserts(x):
    BROKEN.append(True)
    wait()
'''

NPU = """
[device]
name        = "npu"
torch       = "cpu"
module      = "opnpu"
synchronize = "opnpu:wait"
seed        = "opnpu:seed"
hint        = { always = true }
lacks       = ["complex"]
"""
DENY = 'deny = ["*.denied"]\n'
SETTINGS = '[tool.opcheck]\nspecs = ["many.toml"]\nmodules = ["torch", "opnpu"]\n'
DEFAULTS = """
[defaults]
dtypes   = { forward = ["float64", "complex128"] }
supports = { out = false }
samples  = [{ args = [{ shape = [2] }] }]
"""
OWN = 'synchronize = "demo:wait"\nseed        = "demo:seed"\n'
DENIED = '[[operator]]\nname = "mine.denied"\ntarget = "opnpu:fine"\n'
REPORT = ("--report-json", "report.json")
COUNT, BAD = 30, 7
CASE = "opnpu.asserts[v7]::vmap[npu-float64]"


def written(project, spec):
    project.write("pyproject.toml", SETTINGS)
    project.write("opnpu.py", OPERATORS)
    project.write("npu.toml", NPU + (DENY if DENIED in spec else ""))
    project.write("many.toml", DEFAULTS + spec)
    return project


def many():
    names = ["asserts" if index == BAD else "fine" for index in range(COUNT)]
    return "".join(f'[[operator]]\nname = "opnpu.{name}"\nvariant = "v{index}"\n' for index, name in enumerate(names))


class TestWhatIsLeftOut:
    """A denied operator has one case of `vmap` on the device, and each has none in complex128."""

    LINE = "left out on npu: 1 case (deny), 1 (lacks complex128)"
    OPTIONS = ("--device=npu,cpu", "--check=vmap", "--device-profile", "npu.toml")
    ROWS = tuple({"device": "npu", "reason": reason, "cases": 1} for reason in ("deny", "lacks complex128"))
    FINE = '[[operator]]\nname = "opnpu.fine"\n'

    def test_a_run_counts_it_in_the_summary_and_in_the_report(self, cli, project):
        written(project, self.FINE + DENIED)
        run = cli("run", *self.OPTIONS, *REPORT)
        assert run.out.splitlines()[-2:-1] == [self.LINE]
        assert tuple(run.header["left_out"]) == self.ROWS
        assert len(run.records) == 5
        assert run.code == 0

    def test_a_selection_applies(self, cli, project):
        written(project, self.FINE + DENIED)
        run = cli("run", *self.OPTIONS, "--dtype=float64", "-k", "npu")
        assert run.out.splitlines()[-2] == "left out on npu: 1 case (deny), counted before -k, -m and --lf"
        run = cli("run", *self.OPTIONS, "many.toml::opnpu.fine::vmap[npu-float64]")
        assert "left out" not in run.out

    def test_a_request_that_nothing_is_left_of_says_why(self, cli, project):
        written(project, self.FINE + DENIED)
        run = cli("run", *self.OPTIONS[1:], "--device=npu", "--operator=mine.denied")
        assert run.err == "opcheck: the request selects no case\nopcheck: left out on npu: 1 case (deny)\n"
        assert run.code == 2

    @pytest.mark.nightly
    @pytest.mark.parametrize("processes", [0, 2])
    def test_plain_pytest_counts_it(self, project, processes):
        written(project, self.FINE + DENIED)
        options = [option.replace("--", "--opcheck-") for option in (*self.OPTIONS, *REPORT)]
        run = project.run("pytest", "many.toml", *options, *(["-n2"] if processes else []))
        assert f"opcheck: {self.LINE}" in run.out.splitlines()
        assert tuple(run.header["left_out"]) == self.ROWS
        assert run.code == 0


class TestProfilesOnTheCommandLine:
    def test_each_command_knows_them(self, cli, project):
        written(project, '[[operator]]\nname = "opnpu.fine"\ndevices = ["npu"]\n')
        assert cli("validate").err.startswith('many.toml:8:12: unknown device "npu"')
        assert cli("validate", "--device-profile=npu.toml").code == 0
        assert cli("list", "--device-profile=npu.toml", "--check=vmap").out == "opnpu.fine::vmap[npu-float64]\n"
        assert "on npu: forward float64" in cli("show", "opnpu.fine", "--device-profile=npu.toml").out

    def test_a_rerun_command_names_them(self, cli, project):
        written(project, '[[operator]]\nname = "opnpu.fine"\nvariant = "x"\nsupports = { vmap = false }\n')
        run = cli("run", "--device=npu", "--check=unsupported", "--device-profile=npu.toml", *REPORT)
        (message,) = [record["message"] for record in run.records.values() if record["outcome"] == "failed"]
        rerun = message.splitlines()[-1]
        assert rerun.startswith("run just this: opcheck run --device-profile npu.toml 'many.toml::opnpu.fine[x]::")

    def test_mistakes_in_them_are_told(self, cli, project):
        written(project, '[[operator]]\nname = "opnpu.fine"\n')
        project.write(
            "npu.toml", NPU + '[[device.expect]]\nwhen.operator = "no.such"\noutcome = "fail"\nreason = "x"\n'
        )
        for command in ("run", "validate"):
            run = cli(command, "--device-profile=npu.toml")
            assert (run.code, run.err.partition(";")[0]) == (
                2, "npu.toml:11:1: this expectation matches no case on the device"
            )  # fmt: skip

    def test_a_denial_of_nothing_is_a_mistake(self, cli, project):
        written(project, '[[operator]]\nname = "opnpu.fine"\n')
        project.write("npu.toml", NPU + 'deny = ["opnpu.fine", "torch.linalg.*",\n  "opnpu.fin"]\n')
        for command in ("run", "validate"):
            run = cli(command, "--device-profile=npu.toml")
            assert run.err == (
                'npu.toml:11:3: "opnpu.fin" matches no operator: nothing is denied by it; '
                'expected an id, a name or a glob pattern of operators; did you mean "opnpu.fine"?\n'
            )
            assert run.code == 2

    @pytest.mark.parametrize("match", ["", 'match = "numerical one"\n'])
    def test_what_rests_on_an_expected_failure_is_covered_by_it(self, cli, project, match):
        first_only = "supports = { out = false, forward_ad = false, second_order = false }"
        written(project, f'[[operator]]\nname = "demo.wrong"\n{first_only}\n')
        project.write("pyproject.toml", SETTINGS.replace("opnpu", "demo"))
        when = 'when = { operator = "demo.*", check = "backward" }'
        expect = f'[[device.expect]]\n{when}\noutcome = "flaky"\nreason = "known"\n{match}'
        project.write("npu.toml", NPU.replace("opnpu:", "demo:").replace("opnpu", "demo").replace(OWN, "") + expect)
        options = ("--device=npu", "--check=backward,accuracy", "--dtype=float64")
        run = cli("run", "--device-profile=npu.toml", *options, *REPORT)
        assert run.outcomes == {f"demo.wrong::{check}[npu-float64]": "xfailed" for check in ("backward", "accuracy")}
        assert run.code == 0

    def test_an_expectation_that_nothing_meets_is_told_with_its_place(self, cli, project):
        written(project, '[[operator]]\nname = "opnpu.fine"\n')
        expect = '[[device.expect]]\nwhen = { operator = "opnpu.*" }\noutcome = "fail"\nreason = "known"\n'
        project.write("npu.toml", NPU + expect)
        run = cli("run", "--device-profile=npu.toml", "--device=npu", "--check=vmap", *REPORT)
        assert run.outcomes == {"opnpu.fine::vmap[npu-float64]": "xpassed"}
        assert "npu.toml:10:1: expected to fail, but holds: known" in run.out
        assert run.code == 1


class TestADeviceThatAnOperatorBreaks:
    OPTIONS = ("--device=npu", "--check=vmap", "--dtype=float64")

    @pytest.mark.nightly
    @pytest.mark.parametrize("processes", ["1", "2"])
    def test_it_costs_one_case_and_a_process(self, project, processes):
        written(project, many())
        run = project.run("opcheck", "run", *self.OPTIONS, "--device-profile=npu.toml", "-n", processes, *REPORT)
        bad = {name: record["reason"] for name, record in run.records.items() if record["outcome"] != "passed"}
        assert bad == {CASE: "the device npu is unusable since this case: device-side assert triggered"}
        assert len(run.records) == COUNT
        assert run.code == 1

    @pytest.mark.nightly
    def test_in_one_process_later_cases_are_not_run(self, project):
        written(project, many())
        options = [option.replace("--", "--opcheck-") for option in (*self.OPTIONS, *REPORT)]
        run = project.run("pytest", "many.toml", *options, "--opcheck-device-profile=npu.toml")
        reasons = {name: re.sub("unusable since.*", "", record["reason"]) for name, record in run.records.items()}
        assert list(run.outcomes.values()) == ["passed"] * BAD + ["error"] * (COUNT - BAD)
        assert set(list(reasons.values())[BAD + 1 :]) == {"not run: the device npu is "}
        assert CASE in list(run.records.values())[-1]["reason"]


class TestPresence:
    """A device on the CPU, whose module is in the folder of the project."""

    CHECK = ("--check=backward",)

    @pytest.fixture(autouse=True)
    def _project(self, project):
        project.write("pyproject.toml", '[tool.opcheck]\nspecs = ["many.toml"]\nmodules = ["torch"]\ndevices = ["d"]\n')
        project.write("many.toml", '[[operator]]\nname = "torch.sin"\nvariants = []\ndtypes = ["float64"]\n' + SAMPLES)

        project.write("d/.keep", "")

    def device(self, project, source="", keys="", torch="cpu"):
        project.write("opghost.py", source)
        project.write("d/ghost.toml", f'[device]\nname = "ghost"\ntorch = "{torch}"\nmodule = "opghost"\n{keys}\n')

    @pytest.mark.nightly
    def test_a_device_that_is_present_is_tested(self, cli, project):
        self.device(project, "print('hello')")
        shown = cli("devices")
        assert "ghost    present (1)" in shown.out
        run = cli("run", *self.CHECK, *REPORT)
        assert run.outcomes == {f"torch.sin::backward[{name}-float64]": "passed" for name in ("cpu", "ghost")}
        assert run.code == 0

    @pytest.mark.parametrize(
        ("source", "keys", "torch", "why"),
        [
            ("import os; os.kill(os.getpid(), 11)", "", "cpu", "importing opghost: the process crashed (SIGSEGV)"),
            pytest.param(
                "import os; os._exit(0)",
                "",
                "cpu",
                "importing opghost: the process exited, with status 0",
                marks=NIGHTLY,
            ),
            pytest.param(
                "raise OSError('no driver')", "", "cpu", "importing opghost failed: OSError: no driver", marks=NIGHTLY
            ),
            pytest.param("", "", "warp", "torch knows no device 'warp': ", marks=NIGHTLY),
            pytest.param("", 'seed = "opghost:sow"', "cpu", 'seed = "opghost:sow" is not there: ', marks=NIGHTLY),
            pytest.param(
                "", 'synchronize = "opgost:wait"', "cpu", 'synchronize = "opgost:wait" is not there: ', marks=NIGHTLY
            ),
        ],
    )
    def test_a_device_that_cannot_be_used_costs_itself_and_is_a_mistake_if_named(
        self, cli, project, source, keys, torch, why
    ):
        self.device(project, source, keys, torch)
        run = cli("run", *self.CHECK, *REPORT)
        assert run.outcomes["torch.sin::backward[cpu-float64]"] == "passed"
        assert run.outcomes["torch.sin::backward[ghost-float64]"] == "skipped"
        assert f"skipped 1 case: the device ghost is not present: {why}" in run.out
        assert run.code == 0
        run = cli("run", *self.CHECK, "--device=cpu,ghost")
        assert run.err.startswith(f"opcheck: the device ghost is not present: {why}")
        assert (run.code, run.err.count("\n")) == (2, 1)

    @pytest.mark.nightly
    def test_a_device_that_hangs_or_prints_costs_itself(self, cli, project, monkeypatch):
        monkeypatch.setattr("opcheck.devices.presence.SECONDS", 20)
        self.device(project, "import time\nprint('hello')\ntime.sleep(600)")
        devices = {one["name"]: one for one in json.loads(cli("devices", "--json").out)}
        assert devices["ghost"]["reason"] == "importing opghost takes longer than 20 s"
        assert devices["cpu"]["present"]

    def test_a_name_that_is_empty_is_a_mistake(self, cli, plain_pytest):
        run = cli("run", "--device=")
        assert (run.code, run.err) == (2, 'opcheck: "" names no device; expected one of cpu, cuda, mps, xpu\n')
        assert plain_pytest("many.toml", "--opcheck-device=").code == pytest.ExitCode.USAGE_ERROR

    def test_an_absent_device_that_is_named_is_a_mistake_without_a_profile_of_the_project(self, cli):
        run = cli("run", "--device=mps")
        assert run.err == "opcheck: the device mps is not present: torch.mps.is_available() is False\n"
        assert run.code == 2

    def test_a_run_that_skips_everything_has_tested_nothing(self, cli, project):
        project.write("many.toml", (project.folder / "many.toml").read_text() + SKIPPED)
        run = cli("run", *self.CHECK, *REPORT)
        assert set(run.outcomes.values()) == {"skipped"}
        assert run.err == "opcheck: nothing was tested: every case was skipped, 1 in all: not today\n"
        assert "interrupted" not in run.out
        assert run.code == 2


SAMPLES = "samples = [{ args = [{ shape = [2] }] }]\n"
SKIPPED = '[[operator.expect]]\nwhen = { check = "backward" }\noutcome = "skip"\nreason = "not today"\n'
