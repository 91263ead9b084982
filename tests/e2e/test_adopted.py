"""The specs of other people's libraries are valid without these libraries, and README.md lists them all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import tomli

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "adopted"
SPECS = sorted((FOLDER / "specs").glob("*.toml"))


def test_they_are_valid():
    command = [sys.executable, "-m", "opcheck", "validate"]
    run = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert (run.returncode, "no mistakes found" in run.stdout) == (0, True), run.stdout + run.stderr


def test_each_says_which_version_it_was_drafted_from():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (\S+ [\d.]+) \|", readme, re.MULTILINE))
    assert len(SPECS) == len(listed) == 8
    for spec in SPECS:
        version = re.match(r"# (\S+ [\d.]+), drafted by `opcheck new ", spec.read_text(encoding="utf-8"))
        assert version, spec.name
        assert version[1] in listed


def test_all_of_their_operators_are_of_the_library():
    for spec in SPECS:
        names = [operator["name"] for operator in tomli.loads(spec.read_text(encoding="utf-8"))["operator"]]
        assert {name.partition(".")[0] for name in names} == {spec.stem}
