"""Taplo, which editors check TOML with, accepts every shipped spec, and marks a mistake where it is.

Where a value may be of several kinds, it marks the whole value. `taplo lint` repeats a message about a table or an
array for each of the values inside; the first place is the table's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.planning import kinds
from opcheck.spec.load import builtin_folder

ROOT = Path(__file__).resolve().parent.parent.parent
TOLD = re.compile(r"^error: (.*)\n +┌─ (.*):(\d+:\d+)$", re.MULTILINE)


def spec(*lines, name='"torch.sin"', samples='[{ use = "unary" }]'):
    return "\n".join(["[[operator]]", f"name    = {name}", f"samples = {samples}", *lines, ""])


def expect(when='check = "backward"', outcome="fail", reason='reason = "known"'):
    return spec("[[operator.expect]]", f"when = {{ {when} }}", f'outcome = "{outcome}"', reason)


def sample(args="{ shape = [2] }", rest=""):
    return spec(samples=f"[{{ args = [{args}]{rest} }}]")


MISTAKES = {
    "a key": (spec("dtype = []"), "4:9", "unknown key; expected one of"),
    "the name's key": (spec().replace("name ", "nmae "), "2:11", "unknown key; expected one of"),
    "a key of supports": (spec("supports = { forward = false }"), "4:24", "unknown key; expected one of backward,"),
    "a key of when": (expect('chek = "backward"'), "5:17", "unknown key; expected one of check, variant,"),
    "a key of defaults": ('[defaults]\nname = "a.b"\n' + spec(), "2:8", "unknown key; expected one of dtypes,"),
    "a key with a table": (spec("support = { vmap = true }"), "4:11", "unknown key; expected one of"),
    "an outcome": (expect(outcome="fails"), "6:11", '"fails" is not one of ["fail",'),
    "a device": (spec('devices = ["cdua"]'), "4:12", '"cdua" is not one of ["cpu","cuda",'),
    "an order": (spec('orders = ["backward"]'), "4:11", '"backward" is not one of ["rev_over_fwd",'),
    "no dotted path": (spec(name='"sin"'), "2:11", '"sin" does not match'),
    "no version condition": (expect('torch = "2.12"'), "5:18", '"2.12" does not match'),
    "a number for a name": (spec(name="3"), "2:11", '3 is not of type "string"'),
    "text for a list": (spec('tags = "fast"'), "4:8", '"fast" is not of type "array"'),
    "a number for a boolean": (spec("reseed = 1"), "4:10", '1 is not of type "boolean"'),
    "text for a boolean": (spec('supports = { vmap = "no" }'), "4:21", '"no" is not of type "boolean"'),
    "text for a number": (spec('tolerance = { atol = "1e-3" }'), "4:22", '"1e-3" is not of types "null", "number"'),
    "no operators": ('operator = "torch.sin"\n', "1:12", '"torch.sin" is not of type "array"'),
    "an empty file": ("", "1:1", '"operator" is a required property'),
    "an empty when": (expect("").replace("{  }", "{}"), "5:8", "{} has less than 1 property"),
    "no name": (spec().replace('name    = "torch.sin"\n', ""), "1:1", '"name" is a required property'),
    "no reason": (expect(reason=""), "4:1", '"reason" is a required property'),
    "a single bracket": (spec().replace("[[operator]]", "[operator]"), "1:1", 'is not of type "array"'),
    "a header": (spec().replace("[[operator]]", "[[operators]]"), "1:1", '"operator" is a required property'),
    "a check with tolerances": (spec("tolerance = { check = { bakward = {} } }"), "4:23", '"bakward" is not one of'),
}  # fmt: skip
"""Mistakes with the place and the beginning of the message."""

OF_SEVERAL_KINDS = {
    "a key of a sample": (spec(samples="[{ kwarg = 1 }]"), "3:12"),
    "a key of a tensor": (sample("{ shap = 2 }"), "3:12"),
    "a key of a literal": (sample("{ none = true, low = 1 }"), "3:12"),
    "a key of dtypes": (spec('dtypes = { forwards = "all" }'), "4:10"),
    "a key of reference": (spec('reference = { name = "numpy.sin" }'), "4:13"),
    "a parameter": (spec(samples='[{ use = "unary", lo = 1 }]'), "3:12"),
    "arguments of a template": (spec(samples='[{ use = "unary", args = [1] }]'), "3:12"),
    "a template": (spec(samples='[{ use = "unari" }]'), "3:12"),
    "a dtype of the shorthand": (spec('dtypes = ["int46"]'), "4:10"),
    "a dtype": (spec('dtypes = { forward = ["flaot32"] }'), "4:10"),
    "a tensor's dtype": (sample('{ shape = [2], dtype = "float" }'), "3:12"),
    "a structure": (sample('{ shape = [2, 2], structure = "posdef" }'), "3:12"),
    "a layout": (sample('{ shape = [2, 2], layout = "coo" }'), "3:12"),
    "a check": (expect('check = "bakward"'), "5:18"),
    "one of several checks": (expect('check = ["vmap", "bakward"]'), "5:18"),
    "a variant": (spec('variants = ["out"]'), "4:13"),
    "no kind": (spec('variants = [{ target = "torch.sin_" }]'), "4:13"),
    "no reference": (spec('reference = "numpysin"'), "4:13"),
    "a number for a shape": (sample("{ shape = 2 }"), "3:12"),
    "a negative size": (sample("{ shape = [-2] }"), "3:12"),
    "no shape": (sample("{ low = 2 }"), "3:12"),
    "shape and values": (sample("{ shape = [1], values = [2] }"), "3:12"),
    "a pair of one": (sample("{ complex = [1] }"), "3:12"),
    "one value for a grid": (sample(rest=", grid = { dim = 1 }"), "3:12"),
}
"""Mistakes inside a value of several kinds, with its place."""


@pytest.fixture(scope="module")
def taplo():
    """Return a function that lints with Taplo, and gives what it says: the file's name, the place, the message."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("taplo", path=places)
    if program is None:
        reason = "taplo, of the extra `test`, is not installed"
        (pytest.fail if "COMPLETE" in os.environ else pytest.skip)(reason)

    def lint(*arguments, cwd):
        done = subprocess.run(
            [program, "lint", "--colors", "never", *arguments], cwd=cwd, capture_output=True, text=True, check=False
        )
        found = TOLD.findall(done.stderr)
        assert bool(found) == bool(done.returncode), done.stderr
        assert "found files total=0" not in done.stderr, done.stderr
        return [(Path(file).stem, place, message) for message, file, place in found]

    return lint


@pytest.fixture
def installed(cli):
    run = cli("schema", "--install")
    assert (run.code, run.err) == (0, "")
    assert run.out == "wrote opcheck.schema.json, .taplo.toml, .vscode/settings.json\n"


def test_every_shipped_spec_is_accepted(cli, project, taplo):
    assert cli("schema", "--output", "spec.schema.json").code == 0
    schema = (project.folder / "spec.schema.json").as_uri()
    builtin = ROOT / "opcheck" / "spec" / "builtin"
    examples = [ROOT / "examples" / name / "specs" for name in ("custom_op", "cpp_op")]
    folders = [builtin_folder(), *examples, builtin / "templates", builtin / "devices"]
    assert taplo("--schema", schema, *(f"{folder}/**/*.toml" for folder in folders), cwd=project.folder) == []


@pytest.mark.usefixtures("installed")
def test_every_mistake_is_marked_where_it_is(project, taplo):
    every = MISTAKES | {name: (*one, "is not valid under any of the schemas") for name, one in OF_SEVERAL_KINDS.items()}
    for mistake, (text, *_) in every.items():
        project.write(f"specs/sub/folder/{mistake.replace(' ', '_')}.toml", text)
    told = {}
    for file, place, message in taplo(cwd=project.folder):
        told.setdefault(file.replace("_", " "), (place, message))
    assert {mistake: place for mistake, (place, _) in told.items()} == {name: every[name][1] for name in every}
    assert {name: message for name, (_, message) in told.items() if every[name][2] not in message} == {}


@pytest.fixture
def unregistered(monkeypatch):
    """What is registered during the test is forgotten after it."""
    monkeypatch.setattr(kinds, "REGISTERED", {})
    yield
    kinds.check_kinds.cache_clear()


@pytest.mark.usefixtures("unregistered")
def test_names_of_the_project_are_known(cli, project, taplo):
    project.write("mychecks.py", "import opcheck\n\n\n@opcheck.register_check\ndef mine(sample):\n    '''Holds.'''\n")
    project.write("devices/npu.toml", '[device]\nname = "npu"\n')
    project.write("specs/own.toml", '[template]\nabout = "own"\noptional = ["width"]\n[[samples]]\nargs = [1]\n')
    settings = (project.folder / "pyproject.toml").read_text()
    project.write("pyproject.toml", settings + 'plugins = ["mychecks"]\ndevices = ["devices"]\n')
    used = spec('devices = ["npu"]', "tolerance = { check = { mine = {} } }", samples='[{ use = "own", width = 2 }]')
    project.write("specs/sub/uses.toml", used)
    assert cli("schema", "--install").code == 0
    assert taplo(cwd=project.folder) == []
    for name in ("mine", "npu", "own", "width"):
        project.write("specs/sub/uses.toml", re.sub(rf"\b{name}\b", "nothing", used))
        assert {file for file, *_ in taplo(cwd=project.folder)} == {"uses"}
