"""The commands that run nothing: list, show, schema, devices, validate, and the command line as a whole."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opcheck
from opcheck.cli import COMMANDS, main
from opcheck.planning.vocabulary import vocabulary
from opcheck.spec.schema import json_schema


class TestList:
    def test_lines_are_case_ids(self, cli):
        run = cli("list", "specs/good.toml", "--check", "backward,vmap")
        assert run.out.splitlines() == [
            "demo.double::backward[cpu-float64]",
            "demo.double::vmap[cpu-float64]",
            "demo.double[inplace]::backward[cpu-float64]",
        ]
        assert (run.code, run.err) == (0, "")

    def test_json_has_an_object_for_each_case(self, cli):
        run = cli("list", "--json", "--operator", "demo.double", "--check", "backward")
        first = {
            "operator": "demo.double", "check": "backward", "device": "cpu", "dtype": "float64", "samples": ["0"],
            "file": "specs/good.toml", "line": 8,
        }  # fmt: skip
        assert json.loads(run.out) == [
            {**first, "id": "demo.double::backward[cpu-float64]", "variant": "function"},
            {**first, "id": "demo.double[inplace]::backward[cpu-float64]", "variant": "inplace"},
        ]

    def test_devices_can_be_named_whether_present_or_not(self, cli):
        run = cli("list", "--check=backward", "--operator=*.wrong", "--device", "cuda,cpu")
        assert run.out.splitlines() == ["demo.wrong::backward[cuda-float64]", "demo.wrong::backward[cpu-float64]"]

    def test_no_case_is_no_line(self, cli):
        assert cli("list", "--check=backward", "--dtype=int8").out == ""
        assert json.loads(cli("list", "--json", "--check=backward", "--dtype=int8").out) == []

    def test_names_that_do_not_exist_are_told(self, cli):
        run = cli("list", "--device=cud", "--check=backward")
        assert run.err == 'opcheck: unknown device "cud"; expected one of cpu, cuda, mps, xpu; did you mean "cuda"?\n'
        assert run.code == 2


HOSTILE = r"""
[[operator]]
name    = "demo.double"
notes   = "first\u001b[2J\nsecond\u202e\rthird"
samples = [{ args = [{ shape = [2] }], kwargs = { text = "\u009b2J\u0007" } }]
[[operator.expect]]
when    = { check = "backward" }
outcome = "fail"
reason  = "\u001b]0;owned\u0007"
"""


class TestHostileText:
    def test_what_specs_say_is_refused_and_does_nothing(self, cli, project):
        project.write("hostile\x1b[2J.toml", HOSTILE)
        run = cli("show", "demo.double", "hostile\x1b[2J.toml")
        assert run.code == 2
        assert run.out == ""
        assert [sign for sign in run.err if not sign.isprintable() and sign != "\n"] == []
        assert run.err.splitlines()[0].startswith(r"hostile\x1b[2J.toml:4:")

    def test_names_of_files_are_shown_and_do_nothing(self, cli, project):
        (project.folder / "specs/good.toml").rename(project.folder / "hostile\x1b[2J.toml")
        run = cli("show", "demo.double", "hostile\x1b[2J.toml")
        assert run.out.splitlines()[0] == r"demo.double  hostile\x1b[2J.toml:8  family hostile\x1b[2J"

    def test_names_without_end_are_refused(self, cli, project):
        project.write("long.toml", f'[[operator]]\nname = "demo.{"x" * 100_000}"\nsamples = [{{ use = "unary" }}]\n')
        for command in ("list", "show"):
            run = cli(command, *(["demo." + "x" * 100_000] if command == "show" else []), "long.toml")
            assert run.err == "long.toml:2:8: a path of 100005 characters is too long; expected at most 200\n"
            assert run.code == 2

    def test_a_request_that_cannot_be_met_is_repeated_without_its_escapes(self, cli):
        run = cli("show", "demo.\x1b[2Jdouble")
        assert run.err == 'opcheck: no operator "demo.\\x1b[2Jdouble" among 2; did you mean "demo.double"?\n'


class TestShow:
    def test_claims_samples_and_cases_are_shown(self, cli):
        run = cli("show", "demo.double")
        lines = run.out.splitlines()
        assert lines[0] == "demo.double  specs/good.toml:8  family good"
        assert "  on cpu: forward float64; backward float64" in lines
        assert "  on cpu: not supported: out" in lines
        assert "    0  line 5  { args = [{ shape = [2] }] }" in lines
        assert "    demo.double[inplace]::backward [cpu-float64]" in lines
        assert run.code == 0

    @pytest.mark.parametrize("words", [[], ["specs"], ["specs/good.toml", "specs/bad.toml"]])
    def test_all_operators_of_specs_are_shown(self, cli, words):
        run = cli("show", *words)
        heads = [line.split()[0] for line in run.out.splitlines() if "  family " in line]
        assert sorted(heads) == ["demo.double", "demo.wrong"]
        assert run.code == 0

    def test_a_selection_leaves_some_cases(self, cli):
        lines = cli("show", "demo.double", "--check=dtypes", "--dtype=integral").out.splitlines()
        assert lines[-2] == "  5 cases:"
        assert lines[-1].startswith("    demo.double::dtypes [cpu-uint8] [cpu-int8]")

    def test_a_misspelt_name_is_told(self, cli):
        run = cli("show", "demo.duble")
        assert run.err == 'opcheck: no operator "demo.duble" among 2; did you mean "demo.double"?\n'
        assert run.code == 2
        assert cli("show", "demo.double", "--check=bakward").code == 2


@pytest.fixture(scope="module")
def schema():
    return json_schema(vocabulary())


class TestSchema:
    def test_it_is_printed_or_written(self, cli, project, schema):
        assert json.loads(cli("schema").out) == schema
        project.write(
            "specs/templates/own.toml", "[template]\n[[samples]]\nargs = [1]\n"
        )  # which is the project's alone
        assert json.loads(cli("schema").out) == schema
        run = cli("schema", "--output", "spec.schema.json")
        assert (run.code, run.out) == (0, "")
        assert json.loads((project.folder / "spec.schema.json").read_text()) == schema

    def test_a_file_that_cannot_be_written_is_told(self, cli):
        folder, full = cli("schema", "--output", "specs"), cli("schema", "--output", "/dev/full")
        assert folder.code == full.code == 2
        assert folder.err.endswith("specs is a folder; expected a file\n")
        assert full.err == "opcheck: [Errno 28] No space left on device: '/dev/full'\n"

    def test_folders_are_made_as_for_reports(self, cli, project):
        assert cli("schema", "--output", "new/folder/schema.json").code == 0
        assert json.loads((project.folder / "new/folder/schema.json").read_text())["title"]


KEYS = (
    "name", "torch", "file", "inherits", "about", "module", "seed", "synchronize", "resources", "dtypes", "allow",
    "deny", "present", "reason", "count", "detail", "lacks", "expect",
)  # fmt: skip
"""What `opcheck devices --json` says of a device. Other programs read it."""


class TestDevices:
    def test_each_device_has_a_line(self, cli):
        lines = cli("devices").out.splitlines()
        assert lines[0].startswith("cpu      present (1)")
        assert lines[1].startswith("cuda     ")

    @pytest.mark.nightly
    def test_json_has_an_object_for_each_device(self, cli, project):
        project.write(
            "devices/ghost.toml",
            '[device]\nname = "ghost"\ninherits = "base"\nmodule = "ghost_backend"\nlacks = ["complex"]\n'
            'dtypes = ["float8_e8m0fnu"]\nallow = ["torch.*"]\nseed = "ghost_backend:seed"\n',
        )
        project.write(
            "devices/base.toml",
            '[device]\nname = "base"\nabout = "both"\ntorch = "xpu"\nlacks = ["float64"]\ndeny = ["torch.sin"]\n'
            '[[device.expect]]\nwhen = { check = "vmap" }\noutcome = "fail"\nreason = "known"\n',
        )
        project.write("pyproject.toml", '[tool.opcheck]\ndevices = ["devices"]\n')
        ghost = json.loads(cli("devices", "--json").out)[-1]
        assert ghost == {
            "name": "ghost", "torch": "xpu", "present": False, "count": 0, "detail": "", "about": "both",
            "file": "devices/ghost.toml", "inherits": "base", "module": "ghost_backend",
            "lacks": ["float64", "complex64", "complex128"], "dtypes": ["float8_e8m0fnu"],
            "allow": ["torch.*"], "deny": ["torch.sin"], "expect": 1, "seed": "ghost_backend:seed", "synchronize": None,
            "resources": {},
            "reason": "importing ghost_backend failed: ModuleNotFoundError: No module named 'ghost_backend'",
        }  # fmt: skip

    def test_every_device_has_every_key(self, cli):
        records = json.loads(cli("devices", "--json").out)
        assert [record["name"] for record in records] == ["cpu", "cuda", "mps", "xpu"]
        assert {tuple(record) for record in records} == {KEYS}
        assert [record["lacks"] for record in records] == [[], [], ["float64", "complex128"], []]

    @pytest.mark.nightly
    def test_a_profile_on_the_command_line_is_one_of_them(self, cli, project):
        project.write("mine.toml", '[device]\nname = "mine"\ntorch = "cpu"\nmodule = "bad_backend"\n')
        project.write("bad_backend.py", "raise SystemExit(3)\n")
        lines = cli("devices", "--device-profile", "mine.toml").out.splitlines()
        assert lines[-1] == "mine     absent: importing bad_backend failed: SystemExit: 3"
        run = cli("devices", "--device-profile=nowhere.toml")
        assert (run.code, run.err) == (2, "nowhere.toml:1:1: cannot be read: No such file or directory\n")

    def test_a_wrong_profile_is_told_with_its_place(self, cli, project):
        project.write("devices/ghost.toml", '[device]\nname = "ghost"\nlack = []\n')
        project.write("pyproject.toml", '[tool.opcheck]\ndevices = ["devices"]\n')
        run = cli("devices")
        assert run.err.startswith('devices/ghost.toml:3:1: unknown key "lack"')
        assert run.code == 2


class TestValidate:
    def test_the_number_of_operators_and_samples_is_told(self, cli):
        assert cli("validate").out == "2 operators, 2 samples: no mistakes found\n"
        assert cli("validate", "specs/good.toml").out == "1 operator, 1 sample: no mistakes found\n"

    def test_names_are_looked_up_where_asked_for(self, cli):
        assert cli("validate", "--resolve").code == 0

    def test_references_are_looked_up_too(self, cli):
        samples = "samples = [{ args = [{ shape = [2] }] }]"
        text = f'[[operator]]\nname = "torch.sin"\nreference = "numpy.sinn"\n{samples}\n'
        Path("specs/sin.toml").write_text(text)
        run = cli("validate", "--resolve", "specs/sin.toml")
        assert (run.code, run.err.partition(":13: ")[0]) == (2, "specs/sin.toml:3")
        assert 'did you mean "numpy.sin"?' in run.err

    def test_classes_are_no_operators(self, cli):
        Path("specs/class.toml").write_text('[[operator]]\nname = "torch.nn.Linear"\nsamples = [{ use = "unary" }]\n')
        run = cli("validate", "--resolve", "specs/class.toml")
        what = (
            '"torch.nn.Linear" is a class, and a module has to be constructed first (in a spec, say how: '
            "module = { args = [...] })"
        )
        assert (run.code, run.err) == (2, f"specs/class.toml:2:8: {what}\n")

    def test_with_the_key_module_they_have_to_be_classes_of_modules(self, cli):
        path = Path("specs/class.toml")
        text = '[[operator]]\nname = "{}"\nmodule = {{ args = [3, 2] }}\nsamples = [{{ args = [{{ shape = [3] }}] }}]\n'
        path.write_text(text.format("torch.nn.Linear"))
        assert cli("validate", "--resolve", "specs/class.toml").code == 0
        assert "  module { args = [3, 2] }" in cli("show", "torch.nn.Linear", "specs/class.toml").out.splitlines()
        path.write_text(text.format("torch.sin"))
        run = cli("validate", "--resolve", "specs/class.toml")
        what = '"torch.sin" is not a class of modules, as the key module says, but builtin_function_or_method'
        assert (run.code, run.err) == (2, f"specs/class.toml:2:8: {what}\n")


class TestCommandLine:
    def test_the_version_is_that_of_the_package(self, cli):
        assert cli("--version").out == f"opcheck {opcheck.__version__}\n"

    def test_an_unknown_command_is_told_with_those_that_there_are(self, cli):
        run = cli("lsit")
        expected = f"expected one of {', '.join(COMMANDS)}"
        assert run.err == f'opcheck: unknown command "lsit"; {expected}; did you mean "list"?\n'
        assert run.code == 2

    @pytest.mark.parametrize("option", [["--jsn"], ["--jsn=1"]])
    def test_an_unknown_option_names_the_nearest(self, cli, option):
        run = cli("devices", *option)
        expected = "expected one of --json, --device-profile"
        assert run.err == f'opcheck: unknown argument "--jsn"; {expected}; did you mean "--json"?\n'
        run = cli("validate", "--device", "cpu")
        assert run.err.startswith('opcheck: unknown argument "--device"; ')
        assert run.code == 2

    def test_no_command_is_a_mistake(self, cli):
        assert cli().code == 2

    @pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
    def test_help_is_there_for_everything(self, cli, arguments):
        run = cli(*arguments)
        assert run.out.startswith("usage: opcheck")
        assert (run.code, run.err) == (0, "")

    def test_commands_can_follow_each_other_in_one_process(self, cli):
        assert [cli(name).code for name in ("list", "validate", "schema", "list")] == [0, 0, 0, 0]

    def test_python_m_opcheck_is_the_command(self):
        done = subprocess.run(
            [sys.executable, "-m", "opcheck", "--version"], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"opcheck {opcheck.__version__}\n"

    def test_a_reader_that_goes_away_is_no_error(self, project):
        script = Path(sys.executable).parent / "opcheck"
        reading = subprocess.Popen(
            [script, "list", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        reading.stdout.close()
        assert reading.stderr.read() == ""
        assert reading.wait(timeout=60) == 0

    @pytest.mark.parametrize(
        "command",
        [
            "validate",
            "list",
            pytest.param("run specs/good.toml --check=vmap --report-json=r.json", marks=pytest.mark.nightly),
        ],
    )
    def test_a_closed_output_is_no_error(self, project, command):
        line = f"{sys.executable} -m opcheck {command} <&- >&-"
        done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        if "--report-json" in command:
            assert json.loads(Path("r.json").read_text().splitlines()[-1])["complete"] is True

    def test_an_interrupt_gives_exit_code_2(self, monkeypatch, project):
        def interrupt(options):
            raise KeyboardInterrupt

        monkeypatch.setattr("opcheck.cli.schema.run", interrupt)
        assert main(["schema"]) == 2


def test_commands_leave_the_process_as_it_was(cli, monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    environment = dict(os.environ)
    for arguments in (["validate"], ["list"], ["schema"]):
        assert cli(*arguments).code == 0
        assert gc.isenabled()
        assert not frozen
        assert dict(os.environ) == environment


def test_a_mistake_is_seen_however_alike_the_file_looks(cli, project):
    path = project.folder / "specs/good.toml"
    assert cli("validate").code == 0
    stat = path.stat()
    path.write_text(path.read_text().replace("tags ", "tgas "))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    run = cli("validate")
    assert run.code == 2
    assert 'unknown key "tgas"' in run.err
    assert not (project.folder / ".opcheck_cache").exists()


@pytest.mark.parametrize("command", [["validate"], ["list"], ["run"], ["show", "torch.sin"]])
def test_without_specs_nobody_elses_are_taken(cli, project, command):
    project.write("pyproject.toml", "[tool.opcheck]\n")
    (project.folder / "specs").rename(project.folder / "elsewhere")
    run = cli(*command)
    assert run.code == 2
    assert "no specs here: name files or folders of them" in run.err
    assert "`builtin` is the shipped library" in run.err
