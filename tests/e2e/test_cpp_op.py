"""The example in C++ is built as its README says. opcheck passes what is right, and shows what the README shows."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "cpp_op"
NEVER_BUILT = shutil.ignore_patterns("__pycache__", ".*", "build", "*.so")

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which(os.environ.get("CXX", "c++")) is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="setuptools is not installed"),
]


@pytest.fixture(scope="module")
def run(shared):
    def built(project):
        shutil.rmtree(project.folder)
        shutil.copytree(EXAMPLE, project.folder, ignore=NEVER_BUILT)
        build = project.run("python", "setup.py", "build_ext", "--inplace")
        assert build.code == 0, build.out + build.err
        return project.run("opcheck", "run", "--report-json", "report.json")

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CFLAGS", "-O0 -g0")  # the kernels are small, and compiling is what takes time
        return shared("cpp_op", built)


def outcomes_of(run, name):
    own = [record for record in run.records.values() if record["operator"] == f"seqops.{name}"]
    return {record["id"].partition("::")[2]: record["outcome"] for record in own}


@pytest.mark.parametrize(("name", "dtypes"), [("scan", {"float64", "complex128"}), ("rms_norm", {"float64"})])
def test_a_right_operator_passes(run, name, dtypes):
    outcomes = outcomes_of(run, name)
    assert set(outcomes.values()) == {"passed"}
    for dtype in dtypes:
        checks = ("backward", "rev_over_rev", "registration", "vmap", "unsupported")
        assert {f"{check}[cpu-{dtype}]" for check in checks} <= outcomes.keys()


@pytest.mark.parametrize(
    ("name", "failures", "blocked"),
    [
        ("wrong_scan", {"backward", "linearity", "vmap", "registration"}, {"derived", "rev_over_rev"}),
        ("wrong_rms_norm", {"rev_over_rev"}, {"rev_over_rev_over_rev"}),
    ],
)
def test_a_wrong_operator_fails_under_the_checks_that_should_catch_it(run, name, failures, blocked):
    outcomes = outcomes_of(run, name)
    assert {case.partition("[")[0] for case, outcome in outcomes.items() if outcome == "failed"} == failures
    assert {case.partition("[")[0] for case, outcome in outcomes.items() if outcome == "blocked"} == blocked
    assert set(outcomes.values()) == {"passed", "failed", "blocked"}
    assert run.code == 1


def test_the_run_prints_what_the_readme_shows(run):
    blocks = re.findall(r"^```\n(failed .*?)\n```$", (EXAMPLE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for block in blocks:
        pattern = ".*".join(re.escape(part) for part in block.split("..."))
        assert re.search(pattern, run.out, re.DOTALL), f"not in the output, or not in this order:\n{block}"
