"""What ARCHITECTURE.md says of the way of an operator is how it is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALK = TEXT[TEXT.index("## A walk") : TEXT.index("## What lives where")]

TRACED = """
import sys
import pytest
import scipy.special, sympy, torch._decomp.decompositions_for_jvp  # to trace their imports takes long

called = {}

def trace(frame, event, argument):
    code = frame.f_code
    if event == "call" and "/opcheck/" in code.co_filename:
        called.setdefault((code.co_filename.rpartition("/opcheck/")[2], code.co_name, code.co_firstlineno))

sys.setprofile(trace)
code = pytest.main(["specs", "-q", "--opcheck-check=backward", "--opcheck-dtype=float64", "-p", "no:cacheprovider"])
sys.setprofile(None)
for file, name, line in called:
    print("called", file, name, line)
sys.exit(code)
"""


def test_the_walk_names_each_function_once_in_the_order_of_the_first_calls(tmp_path):
    (tmp_path / "specs").mkdir()
    (spec,) = re.findall(r"```toml\n(.*?)```", WALK, re.DOTALL)
    (tmp_path / "specs" / "sin.toml").write_text(spec)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run([sys.executable, "-c", TRACED], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("called ")]
    order = [(file, name, int(number)) for _, file, name, number in lines]
    named = re.findall(r"`(\w+/\w+\.py):([\w.]+)`", WALK)
    assert len(named) == len(set(named)) > 25
    places = []
    for file, name in named:
        number = line_of(file, name)
        assert (file, name.split(".")[-1], number) in order, f"{file}:{name} is not called"
        places.append(order.index((file, name.split(".")[-1], number)))
    assert places == sorted(places), [name for name, place in zip(named, places, strict=True) if place != max(places)]


def line_of(file: str, name: str) -> int:
    """Return the line on which a function begins, its decorators included, as code objects count."""
    body = ast.parse((ROOT / "opcheck" / file).read_text(encoding="utf-8")).body
    for part in name.split("."):
        (node,) = [one for one in body if getattr(one, "name", None) == part]
        body = node.body
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def test_its_layers_are_those_that_are_guarded():
    source = (ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8")
    layers = re.search(r"LAYERS = \((.*?)\)", source, re.DOTALL)
    assert layers
    guarded = re.findall(r'"(\w+)"', layers[1])
    shown = re.findall(r"^\| `opcheck/(\w+)(?:/|\.py)` \|", TEXT, re.MULTILINE)
    assert shown == [name for name in guarded if name != "__main__"]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "docs/decisions.md"])
def test_files_that_it_names_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for name in set(re.findall(r"`((?:\w+/)+\w+\.\w+)(?::[\w.]+)?`", text)):
        assert (ROOT / name).exists() or (ROOT / "opcheck" / name).exists(), name
