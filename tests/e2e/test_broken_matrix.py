"""A matrix of two devices and three shards in which much goes wrong: each is told by name, and nothing else is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from backends import needs_python_backend
from demo_project import Finished
from report_files import lines

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "backend"

pytestmark = [
    pytest.mark.nightly,
    needs_python_backend,
]

SPEC = """
[defaults]
dtypes   = { forward = ["float64"] }
samples  = [{ args = [{ shape = [2] }] }]

[[operator]]
name = "torch.sin"

[[operator]]
name = "torch.cos"

[[operator]]
name = "torch.tanh"

[[operator]]
name = "ends.hangs"
"""

JOBS = [f"{device}-{shard}" for device in ("cpu", "sim") for shard in (1, 2, 3)]


@pytest.fixture(scope="module")
def merged(shared):
    """The merged report, after the commands that a job of CI runs: JSON in `out`, what merge says in `err`."""

    def run(project):
        shutil.rmtree(project.folder)
        shutil.copytree(EXAMPLE, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        project.write("ends.py", "import time\n\ndef hangs(x):\n    time.sleep(600)\n")
        project.write("crashes.py", "import ctypes\n\nctypes.string_at(0)\n")
        project.write("many.toml", SPEC)
        project.write("early.toml", '[[operator]]\nname = "crashes.now"\nsamples = [{ args = [{ shape = [2] }] }]\n')
        path = project.folder / "pyproject.toml"
        path.write_text(path.read_text() + '\nmodules = ["torch", "ends", "crashes"]\n')
        few = ("--check=purity", "--timeout=6")
        codes = {}
        for job in JOBS:
            device, _, number = job.partition("-")
            if job == "sim-3":
                project.write("many.toml", SPEC.replace("[2]", "[3]"))
            words = ("many.toml", f"--device={device}", f"--shard={number}/3", "--report-json", f"{job}.json", *few)
            codes[job] = project.run("opcheck", "run", *words).code
        codes["early"] = project.run("opcheck", "run", "early.toml", "--device=cpu", "--report-json=early.json").code
        whole = {job: cases(project.folder / f"{job}.json") for job in JOBS}
        (project.folder / "cpu-2.json").unlink()
        cut = project.folder / "cpu-3.json"
        cut.write_text(cut.read_text().rpartition('"outcome"')[0])
        files = [f"{job}.json" for job in [*JOBS, "early"] if job != "cpu-2"]
        done = project.run("opcheck", "report", "merge", *files, "-o", "all.json")
        shown = project.run("opcheck", "report", "markdown", "all.json")
        compared = project.run("opcheck", "report", "diff", "all.json", "all.json")
        found = cases(project.folder / "all.json")
        told = {"codes": codes, "whole": whole, "found": found, "shown": shown.out, "diff": compared.code}
        return Finished(done.code, json.dumps(told), done.err, {}, [], {})

    return shared("broken-matrix", run)


def cases(path):
    return [line for line in lines(path) if "id" in line]


def test_each_is_told_by_name(merged):
    told = json.loads(merged.out)
    for text in (
        "shard 2/3 is missing",
        "shard 3/3 of the run",
        "the shards were planned from different specs (1/3, 2/3 and 3/3)",
        "the run on cpu with torch",
    ):
        assert text in merged.err, text
        assert text in told["shown"], text
    assert "time-out: it takes longer than 6 s" in told["shown"]


def test_nothing_else_is_lost(merged):
    told = json.loads(merged.out)
    kept = {job: [one["id"] for one in records] for job, records in told["whole"].items()}
    assert sum(map(len, kept.values())) == 8
    assert all(kept.values())
    there = [one["id"] for one in told["found"]]
    expected = [
        name for job, names in kept.items() if job != "cpu-2" for name in names[: -1 if job == "cpu-3" else None]
    ]
    assert sorted(there) == sorted(expected)
    hung = [one for one in told["found"] if one["operator"] == "ends.hangs"]
    assert hung
    assert all(one["seconds"] > 6 for one in hung)


def test_nothing_ends_green(merged):
    told = json.loads(merged.out)
    assert told["codes"]["early"] == 2
    hung = {job for job, records in told["whole"].items() if any(one["operator"] == "ends.hangs" for one in records)}
    assert {job for job in JOBS if told["codes"][job]} == hung
    assert len(hung) == 2
    assert (merged.code, told["diff"]) == (1, 1)
