"""Plain `pytest`: what it collects, what it leaves alone, and how it gets on with a project's own tests."""

from __future__ import annotations

import json
import re

import pytest
import torch

OWN_TEST = """
def test_own(request):
    assert True
"""

OTHER_TOML = """
[[operator]]
this = "belongs to somebody else"

[template]
this = "too"
"""


@pytest.fixture(autouse=True)
def others(project):
    """Tests of the project's own, and a TOML file among them that is none of opcheck's business."""
    project.write("tests/test_own.py", OWN_TEST)
    project.write("tests/data/other.toml", OTHER_TOML)
    project.write("other.toml", OTHER_TOML)


@pytest.fixture
def collected(plain_pytest):
    """Return a function that gives the ids of what pytest collects."""

    def collect(*arguments):
        run = plain_pytest("--collect-only", "-q", *arguments)
        assert run.code == 0, run.out
        return [line for line in run.out.splitlines() if "::" in line]

    return collect


def counts(run):
    """Return what the last line of pytest says: `1 failed, 2 passed`."""
    return re.sub(r"^=* ?| in [\d.]+s.*$", "", run.out.splitlines()[-1])


BACKWARD = [
    "specs/bad.toml::demo.wrong::backward[cpu-float64]",
    "specs/good.toml::demo.double::backward[cpu-float64]",
    "specs/good.toml::demo.double[inplace]::backward[cpu-float64]",
]
OWN = ["tests/test_own.py::test_own"]


COUNTING = """
import sys
from collections import Counter
from pathlib import Path

opened = Counter()

def count(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, Path)) and Path(arguments[0]).parent.name == "many":
        opened[str(arguments[0])] += 1

sys.addaudithook(count)

def pytest_sessionfinish():
    print("opened", len(opened), "at most", max(opened.values()))
"""


class TestCollection:
    def test_each_file_is_opened_once(self, project, plain_pytest):
        for number in range(30):
            text = f'[[operator]]\nname = "torch.sin{number}"\nsamples = [{{ use = "mine" }}]\n'
            project.write(f"specs/many/{number}.toml", text)
        project.write("specs/many/mine.toml", '[template]\nabout = "one"\n[[samples]]\nargs = [{ shape = [2] }]\n')
        project.write("conftest.py", COUNTING)
        for given in ("specs", "specs/many"):
            run = plain_pytest("--collect-only", "-q", given)
            assert run.code == 0, run.out
            assert "opened 31 at most 1" in run.out

    @pytest.mark.parametrize("arguments", [[], ["."], ["specs", "tests"], ["-p", "no:cacheprovider"]])
    def test_specs_of_the_project_and_its_tests_are_collected_and_nothing_else(self, collected, arguments):
        assert sorted(collected("-k", "backward or own", *arguments)) == sorted(BACKWARD + OWN)

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["specs/good.toml"], BACKWARD[1:]),
            (["specs/bad.toml::demo.wrong::backward[cpu-float64]"], BACKWARD[:1]),
            ([BACKWARD[2]], BACKWARD[2:]),
            ([BACKWARD[2], BACKWARD[0]], [BACKWARD[2], BACKWARD[0]]),
            (["tests"], OWN),
        ],
    )
    def test_what_the_command_line_names_is_collected(self, collected, arguments, expected):
        assert collected("-k", "backward or own", *arguments) == expected

    def test_files_and_folders_outside_the_settings_can_be_given(self, project, collected):
        project.write("more/sin.toml", '[[operator]]\nname = "torch.sin"\nsamples = [{ use = "unary" }]\n')
        project.write("more/notes.toml", 'title = "no specs"\n')
        case = "more/sin.toml::torch.sin::backward[cpu-float64]"
        for given in ("more", "more/sin.toml", case):
            assert collected(given, "--opcheck-dtype=float64", "-k", "torch.sin::backward") == [case]

    def test_specs_can_be_named_in_the_settings_of_pytest(self, project, collected):
        project.write("pyproject.toml", '[tool.opcheck]\nmodules = ["demo"]\n')
        assert collected("-k", "backward or own") == OWN
        project.write("pytest.ini", "[pytest]\nopcheck_specs = specs/good.toml\n")
        assert collected("-k", "backward or own") == BACKWARD[1:] + OWN

    def test_a_project_that_does_not_use_opcheck_is_undisturbed(self, project, collected):
        project.write("pyproject.toml", '[project]\nname = "somebody"\n')
        for arguments in ([], ["."], ["tests/test_own.py"]):
            assert collected(*arguments) == OWN

    def test_plugins_names_do_not_clash_with_those_of_a_project(self, project, collected):
        project.write("conftest.py", "def pytest_addoption(parser): parser.addoption('--device', default='tpu')\n")
        project.write("pytest.ini", "[pytest]\naddopts = --strict-markers --strict-config\n")
        assert collected("-k", "backward", "--device=gpu") == BACKWARD


class TestSelection:
    def test_marks_select(self, collected):
        assert collected("-m", "backward and quick and float64 and cpu") == BACKWARD[1:]

    def test_a_whole_id_selects(self, collected):
        assert collected("-k", "demo.double[inplace]::backward[cpu-float64]") == BACKWARD[2:]

    def test_options_of_the_plugin_select(self, collected):
        chosen = {"check": "backward", "operator": "*.double", "tag": "quick", "device": "cpu", "dtype": "double"}
        assert collected("specs", *(f"--opcheck-{name}={value}" for name, value in chosen.items())) == BACKWARD[1:]

    @pytest.mark.parametrize(
        ("option", "begin", "end"),
        [
            ("check=bakward", 'unknown check "bakward"; expected one of ', 'did you mean "backward"?'),
            ("dtype=flaot32", 'unknown dtype "flaot32"; expected one of ', 'did you mean "float32"?'),
            ("device=cud", 'unknown device "cud"; expected one of ', 'did you mean "cuda"?'),
            ("report-json=specs", "the report cannot be written: [Errno 21] Is a directory: ", "/specs'"),
        ],
    )
    def test_a_wrong_name_is_told(self, plain_pytest, option, begin, end):
        run = plain_pytest("specs", f"--opcheck-{option}")
        (line,) = [line for line in run.err.splitlines() if line]
        assert line.startswith(f"ERROR: {begin}")
        assert line.endswith(end)
        assert run.code == pytest.ExitCode.USAGE_ERROR

    def test_specs_that_the_settings_name_and_that_do_not_exist_are_told(self, project, plain_pytest):
        project.write("pyproject.toml", '[tool.opcheck]\nspecs = ["spec"]\n')
        run = plain_pytest()
        expected = 'expected a TOML file, or a folder of them; did you mean "specs"?'
        assert run.err == f'ERROR: pyproject.toml:2:10: no such file or folder: "spec"; {expected}\n\n'
        assert run.code == pytest.ExitCode.USAGE_ERROR
        assert plain_pytest("tests").code == 0  # no specs are requested

    @pytest.mark.parametrize("option", ["-oopcheck_specs=nope", "--opcheck-specs=nope"])
    def test_specs_that_an_option_names_and_that_do_not_exist_are_told(self, plain_pytest, option):
        run = plain_pytest(option)
        what = "no such file or folder of specs, which opcheck_specs or --opcheck-specs names"
        assert run.err == f"ERROR: nope: {what}\n\n"
        assert run.code == pytest.ExitCode.USAGE_ERROR

    def test_settings_beside_the_specs_that_do_not_apply_are_named_with_a_mistake(self, project, plain_pytest):
        project.write("below/pyproject.toml", '[tool.opcheck]\nmodules = ["torch", "mylib"]\n')
        project.write("below/sin.toml", '[[operator]]\nname = "mylib.sin"\nsamples = [{ use = "unary" }]\n')
        lines = plain_pytest("below/sin.toml").out.splitlines()
        assert (
            "the settings of below/pyproject.toml do not apply: those of pyproject.toml do; expected opcheck to run in "
            "below"
        ) in lines

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (["--opcheck-operator=demo.duble"], 'no operator matches "demo.duble"; did you mean "demo.double"?'),
            (["--opcheck-tag=nope", "-n", "2"], 'unknown tag "nope"; expected quick'),
        ],
    )
    def test_operators_and_tags_that_do_not_exist_are_told(self, plain_pytest, options, why):
        run = plain_pytest("specs/good.toml", "tests", *options)
        assert f"ERROR: {why}" in run.out.splitlines()
        assert run.code == pytest.ExitCode.USAGE_ERROR

    def test_a_project_below_is_collected_with_its_specs(self, project, plain_pytest):
        """From a folder without settings, `pytest PROJECT` must not pass for the tests of the project alone."""
        operator = '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]\n'
        project.write("other/pyproject.toml", '[tool.pytest.ini_options]\n[tool.opcheck]\nspecs = ["specs"]\n')
        project.write("other/specs/sin.toml", operator)
        project.write("other/test_own.py", "def test_own(): pass\n")
        assert "::torch.sin::" in plain_pytest("other", "--collect-only", "-q").out

    def test_an_id_that_the_selection_leaves_out_is_told(self, plain_pytest):
        run = plain_pytest("specs/good.toml::demo.double::backward[cpu-float64]", "--opcheck-check=vmap")
        why = 'the selection (--opcheck-check vmap) leaves out "demo.double::backward[cpu-float64]"'
        assert f"specs/good.toml: {why}" in run.out.splitlines()
        assert run.code == 2

    def test_an_id_that_does_not_exist_is_told_with_the_nearest_one(self, plain_pytest):
        run = plain_pytest("specs/good.toml::demo.duble::backward[cpu-float64]")
        right, wrong = "demo.double::backward[cpu-float64]", "demo.duble::backward[cpu-float64]"
        assert f'specs/good.toml has no case "{wrong}"; did you mean "{right}"?' in run.out.splitlines()
        assert "Traceback" not in run.out + run.err
        assert run.code == 2


class TestRunning:
    def test_a_failing_case_shows_its_message_and_no_traceback(self, plain_pytest):
        run = plain_pytest("specs", "--opcheck-check=backward", "--opcheck-report-json=report.json")
        assert counts(run) == "1 failed, 2 passed"
        assert run.records["demo.wrong::backward[cpu-float64]"]["message"] in run.out
        assert "run just this: opcheck run 'specs/bad.toml::demo.wrong::backward[cpu-float64]'" in run.out.splitlines()
        assert "Traceback" not in run.out
        assert ".py:" not in run.out

    def test_the_report_has_what_a_conftest_marks(self, project, plain_pytest):
        project.write(
            "conftest.py",
            "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n    for item in items:\n"
            "        known = pytest.mark.xfail(reason='known')\n"
            "        item.add_marker(known if 'wrong' in item.nodeid else pytest.mark.skip(reason='later'))\n",
        )
        run = plain_pytest("specs", "--opcheck-check=backward", "--opcheck-report-json=report.json")
        assert counts(run) == "2 skipped, 1 xfailed"
        outcomes = {(record["outcome"], record["reason"]) for record in run.records.values()}
        assert outcomes == {("skipped", "later"), ("xfailed", "known")}
        assert "is not the numerical one" in run.records["demo.wrong::backward[cpu-float64]"]["message"]

    def test_the_summary_of_pytest_gives_the_reason(self, plain_pytest, monkeypatch):
        monkeypatch.setenv("COLUMNS", "200")
        run = plain_pytest("--opcheck-check", "backward", "specs/bad.toml")
        wrong = "FAILED specs/bad.toml::demo.wrong::backward[cpu-float64] - backward: the reverse-mode Jacobian is not"
        assert any(line.startswith(wrong) for line in run.out.splitlines()), run.out

    def test_what_failed_can_be_run_again(self, plain_pytest):
        options = ("specs", "--opcheck-check=backward", "-q")
        assert counts(plain_pytest(*options)) == "1 failed, 2 passed"
        assert counts(plain_pytest(*options, "--lf")) == "1 failed"
        assert counts(plain_pytest(*options, "-x")) == "1 failed"

    def test_an_absent_device_is_one_line(self, project, plain_pytest):
        project.write("npu.toml", '[device]\nname = "npu"\ntorch = "warp"\n')
        run = plain_pytest("specs/good.toml", "--opcheck-device-profile=npu.toml", "--opcheck-check=backward", "-q")
        (line,) = [line for line in run.out.splitlines() if "npu" in line]
        assert line.startswith("opcheck: 2 cases skipped: the device npu is not present: torch knows no device 'warp'")
        assert counts(run) == "2 passed, 2 skipped"
        assert run.code == 0

    def test_a_mistake_in_a_profile_is_a_usage_error(self, project, plain_pytest):
        project.write("npu.toml", '[device]\nnamee = "npu"\n')
        run = plain_pytest("specs/good.toml", "--opcheck-device=cpu", "--opcheck-device-profile=npu.toml", "-q")
        assert run.code == pytest.ExitCode.USAGE_ERROR
        assert 'ERROR: npu.toml:2:1: unknown key "namee"' in run.err

    @pytest.mark.nightly
    def test_an_absent_device_that_is_named_is_a_usage_error(self, plain_pytest):
        for name in ("mps", "cpu,mps"):
            run = plain_pytest("specs", f"--opcheck-device={name}", "--opcheck-check=backward", "-q")
            assert run.code == pytest.ExitCode.USAGE_ERROR
            assert "ERROR: the device mps is not present: torch.mps.is_available() is False" in run.err

    def test_tests_and_specs_run_side_by_side(self, plain_pytest):
        assert counts(plain_pytest("-k", "own or backward")).startswith("1 failed, 3 passed")

    def test_a_time_out_is_told_without_a_traceback(self, project, plain_pytest):
        project.write("hang", "")
        project.write("more/hang.toml", '[[operator]]\nname = "demo.hangs"\nsamples = [{ args = [{ shape = [2] }] }]\n')
        run = plain_pytest("more", "--timeout=0.3", "--opcheck-check=vmap", "--opcheck-dtype=float64")
        assert "demo.hangs::vmap[cpu-float64]: time-out: it takes longer than 0.3 s" in run.out.splitlines()
        assert "demo.py" not in run.out.split("FAILURES")[1]
        assert counts(run) == "1 failed"

    def test_the_limit_of_the_project_needs_pytest_timeout(self, project, plain_pytest):
        settings = (project.folder / "pyproject.toml").read_text()
        project.write("pyproject.toml", settings.replace("[tool.opcheck]", "[tool.opcheck]\ntimeout = 30"))
        options = ("specs", "--opcheck-check=vmap", "-p", "no:timeout", "--strict-markers", "-W", "error")
        run = plain_pytest(*options)
        assert run.code == 0, run.out
        assert "opcheck: without pytest-timeout, the timeout of [tool.opcheck] has no effect" in run.out

    def test_marks_are_listed_with_what_the_checks_claim(self, project):
        listed = project.run("pytest", "--markers").out  # in this process, pytest would know the marks of another run
        assert "@pytest.mark.backward: opcheck: the reverse-mode Jacobian equals the numerical one" in listed

    def test_output_of_an_operator_is_shown_with_its_failure(self, project, plain_pytest):
        project.write("chatty.py", "def chatty(x):\n    print('so it goes')\n    raise RuntimeError('no')\n")
        settings = (project.folder / "pyproject.toml").read_text()
        project.write("pyproject.toml", settings.replace('"demo"', '"demo", "chatty"'))
        project.write("more/chatty.toml", '[[operator]]\nname = "chatty.chatty"\nsamples = [{ use = "unary" }]\n')
        run = plain_pytest("more", "--opcheck-check=backward", "--opcheck-dtype=float64")
        assert "so it goes" in run.out.split("Captured stdout call")[1]
        assert counts(run) == "1 failed"


QUARANTINE = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and report.failed:
        report.outcome, report.wasxfail = "skipped", "quarantined"
    return report
"""


class TestParts:
    """What a project or a plugin has to do with the phases of a test holds for cases too."""

    OPTIONS = ("specs", "--opcheck-check=backward", "--opcheck-report-json=report.json")

    @pytest.mark.parametrize(
        ("mark", "expected"),
        [("skip(reason='later')", "3 skipped"), ("xfail(strict=False)", "1 xfailed, 2 xpassed")],
    )
    def test_marks_that_a_project_sets_act(self, project, plain_pytest, mark, expected):
        hook = f"for item in items: item.add_marker(pytest.mark.{mark})"
        project.write("conftest.py", f"import pytest\ndef pytest_collection_modifyitems(items):\n    {hook}\n")
        assert counts(plain_pytest(*self.OPTIONS)) == expected

    def test_a_failure_that_a_project_expects_in_its_report_is_one_in_ours(self, project, plain_pytest):
        project.write("conftest.py", QUARANTINE)
        run = plain_pytest(*self.OPTIONS)
        assert counts(run) == "2 passed, 1 xfailed"
        assert sorted(run.outcomes.values()) == ["passed", "passed", "xfailed"]
        assert {one["reason"] for one in run.records.values()} == {"", "quarantined"}

    @pytest.mark.parametrize("phase", ["setup", "call", "teardown"])
    def test_hooks_of_a_project_run_around_each_case(self, project, plain_pytest, phase):
        hook = f"def pytest_runtest_{phase}(item): open('seen', 'a').write(item.name + '\\n')\n"
        project.write("conftest.py", hook)
        assert counts(plain_pytest(*self.OPTIONS)) == "1 failed, 2 passed"
        assert len((project.folder / "seen").read_text().splitlines()) == 3

    def test_a_case_goes_through_the_phases_of_a_test(self, plain_pytest):
        lines = plain_pytest(*self.OPTIONS, "--durations=0", "-vv").out.splitlines()
        phases = [line.split()[1] for line in lines if re.match(r"[\d.]+s (setup|call|teardown)", line)]
        assert sorted(phases) == ["call"] * 3 + ["setup"] * 3 + ["teardown"] * 3

    @pytest.mark.nightly
    def test_a_case_runs_whatever_pytests_own_plugins_are_called(self, project):
        project.write("renaming.py", RENAMED)
        run = project.run("python", "-m", "pytest", "-p", "renaming", *self.OPTIONS)
        assert counts(run) == "1 failed, 2 passed"

    def test_reports_have_keywords_and_logs(self, project, plain_pytest):
        project.write("conftest.py", LISTENING)
        project.write("chatty.py", CHATTY)
        settings = (project.folder / "pyproject.toml").read_text()
        project.write("pyproject.toml", settings.replace('"demo"', '"demo", "chatty"'))
        project.write("more/chatty.toml", '[[operator]]\nname = "chatty.logs"\nsamples = [{ use = "unary" }]\n')
        run = plain_pytest("more", "--opcheck-check=backward", "--opcheck-dtype=float64")
        assert "so it goes" in run.out.split("Captured log call")[1]
        assert "keywords: True" in run.out

    def test_an_exception_in_a_finalizer_is_charged_to_the_case_that_caused_it(self, project, plain_pytest):
        project.write("chatty.py", CHATTY)
        settings = (project.folder / "pyproject.toml").read_text()
        project.write("pyproject.toml", settings.replace('"demo"', '"demo", "chatty"'))
        names = ("chatty.ends_badly", "demo.double")
        entries = [f'[[operator]]\nname = "{name}"\nsupports = {{ out = false }}\n' for name in names]
        project.write("more/bad.toml", "[defaults]\nsamples = [{ args = [{ shape = [2] }] }]\n" + "".join(entries))
        options = ("--opcheck-check=vmap", "--opcheck-dtype=float64", "--opcheck-report-json=report.json")
        run = plain_pytest("more", *options, "-W", "error")
        assert run.outcomes == {
            "chatty.ends_badly::vmap[cpu-float64]": "error",
            "demo.double::vmap[cpu-float64]": "passed",
        }
        assert counts(run) == "1 failed, 1 passed"

    def test_a_debugger_stops_where_the_operator_raised(self, project, plain_pytest, monkeypatch):
        project.write("stops.py", STOPS)
        monkeypatch.syspath_prepend(project.folder)
        project.write("more/raises.toml", '[[operator]]\nname = "demo.raises"\nsamples = [{ use = "unary" }]\n')
        options = ("--opcheck-check=backward", "--opcheck-dtype=float64", "--pdb", "--pdbcls=stops:Stop")
        plain_pytest("more", *options)
        assert (project.folder / "stopped").read_text() == "raises: not today"


STOPS = """
import pdb


class Stop(pdb.Pdb):
    def interaction(self, frame, error):
        trace = error.__traceback__ if isinstance(error, BaseException) else error
        while trace.tb_next is not None:
            trace = trace.tb_next
        open("stopped", "w").write(f"{trace.tb_frame.f_code.co_name}: not today")
"""

RENAMED = """
import _pytest.runner


class Runner:
    __module__ = "_pytest.runner"


for name in dir(_pytest.runner):
    if name.startswith("pytest_") and name != "pytest_addoption":
        setattr(Runner, name, staticmethod(getattr(_pytest.runner, name)))


def pytest_addoption(pluginmanager):
    pluginmanager.unregister(name="runner")
    pluginmanager.register(Runner(), "renamed")
"""

LISTENING = """
def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats["failed"]:
        print("keywords:", "chatty.logs::backward[cpu-float64]" in report.keywords)
"""

CHATTY = """
import logging


def logs(x):
    logging.getLogger().warning('so it goes')
    raise RuntimeError('no')


class Bad:
    def __del__(self):
        raise ValueError('gone')


def ends_badly(x):
    Bad()
    return 2 * x
"""


OWN_SURROUNDINGS = """
import gc
import torch

torch.set_num_threads(2)


def test_the_process_is_as_it_was():
    assert torch.get_num_threads() == 2
    assert gc.isenabled()
"""


def test_specs_leave_the_process_to_a_projects_own_tests_as_it_was(project, plain_pytest, monkeypatch):
    frozen = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(True))
    project.write("tests/test_own.py", OWN_SURROUNDINGS)
    threads = torch.get_num_threads()
    try:
        run = plain_pytest("specs/good.toml", "tests", "--opcheck-check=backward")
    finally:
        torch.set_num_threads(threads)
    assert counts(run) == "3 passed"
    assert not frozen


@pytest.mark.nightly
def test_a_crash_in_a_worker_is_a_verdict_wherever_the_report_is_written(project, tmp_path_factory):
    project.write("ends.py", "import os\n\ndef ends(x):\n    os.abort()\n")
    settings = (project.folder / "pyproject.toml").read_text()
    project.write("pyproject.toml", settings.replace('"demo"', '"demo", "ends"'))
    project.write("more/ends.toml", '[[operator]]\nname = "ends.ends"\nsamples = [{ args = [{ shape = [2] }] }]\n')
    out = tmp_path_factory.mktemp("out") / "report.json"
    options = ("-n1", "--opcheck-check=vmap", "--opcheck-dtype=float64", "--opcheck-report-json", str(out))
    project.run("pytest", "more", *options)  # pytest looks for the root from the files among its arguments, too
    record, end = (json.loads(line) for line in out.read_text().splitlines()[-2:])
    assert (record["outcome"], record["reason"], end["complete"]) == ("error", "the process crashed", True)


def test_plain_pytest_says_what_it_cannot_contain(plain_pytest):
    run = plain_pytest("specs/good.toml", "--opcheck-check=backward")
    assert "opcheck: cases run in the pytest process: an operator that crashes, exits or hangs stops" in run.out
    assert "opcheck: cases run" not in plain_pytest("tests").out


@pytest.mark.nightly
def test_no_warnings_of_torch_about_its_own_code(project):
    # In a process of its own, since torch imports that code once. The rule of vmap for forward mode uses torch.jit.
    run = project.run("pytest", "specs/good.toml", "--opcheck-check", "batched_forward_grad", "-p", "no:cacheprovider")
    assert "passed" in run.out
    assert "warnings summary" not in run.out
