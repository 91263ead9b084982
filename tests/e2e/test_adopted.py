"""The specs of other people's libraries are valid without these libraries, and README.md lists them all."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import tomli
from demo_project import Project

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "adopted"
SPECS = sorted((FOLDER / "specs").glob("*.toml"))
BY_HAND = {"rtdl_num_embeddings.PiecewiseLinearEmbeddings", "torch_dct.LinearDCT"}
"""The modules that no guess constructs, so that --module was needed."""


def names_of(spec: Path) -> list[str]:
    return [operator["name"] for operator in tomli.loads(spec.read_text(encoding="utf-8"))["operator"]]


def test_they_are_valid():
    command = [sys.executable, "-m", "opcheck", "validate"]
    run = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert (run.returncode, "no mistakes found" in run.stdout) == (0, True), run.stdout + run.stderr


def test_each_says_which_version_it_was_drafted_from():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (\S+ [\d.]+) \|", readme, re.MULTILINE))
    assert len(SPECS) == len(listed) == 9
    for spec in SPECS:
        version = re.match(r"# (\S+ [\d.]+), drafted by `opcheck new ", spec.read_text(encoding="utf-8"))
        assert version, spec.name
        assert version[1] in listed


def test_all_of_their_operators_are_of_the_library():
    for spec in SPECS:
        assert {name.partition(".")[0] for name in names_of(spec)} == {spec.stem}


@pytest.mark.nightly
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_a_new_draft_has_all_operators_of_the_first_one(spec, tmp_path, monkeypatch):
    drafted = re.match(r"# (\S+) ([\d.]+), drafted by `opcheck new (\S+)`", spec.read_text(encoding="utf-8"))
    library, release, target = drafted.groups()
    try:
        installed = version(library)
    except PackageNotFoundError:
        pytest.skip(f"{library} is not installed")
    if installed != release:
        pytest.skip(f"{library} {installed} is installed, not {release}")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    run = Project(tmp_path).run("opcheck", "new", target, "--output", "new.toml", "-n", "2", seconds=1200)
    assert run.code in (0, 1), run.err
    assert {*names_of(spec)} - {*names_of(tmp_path / "new.toml")} <= BY_HAND
