"""The time limit of a case is for the case alone: what torch imports late is imported before the first one."""

from __future__ import annotations

import pytest

WATCHED = """

import sys


def watched(x):
    names = {name for name in sys.modules if name.partition(".")[0] == "torch"}
    if not os.path.exists("first.txt"):
        with open("first.txt", "w") as file:
            file.write("\\n".join(sorted(names)))
    with open("last.txt", "w") as file:
        file.write("\\n".join(sorted(names)))
    return x * x
"""

SPEC = """
[[operator]]
name    = "demo.watched"
dtypes  = ["float32", "float64", "complex128"]
samples = [{ args = [{ shape = [3] }] }]
"""


@pytest.mark.parametrize("processes", ["1", "2"])
def test_torch_imports_nothing_while_cases_run(project, cli, processes):
    project.write("demo.py", (project.folder / "demo.py").read_text() + WATCHED)
    project.write("specs/watched.toml", SPEC)
    run = cli("run", "specs/watched.toml", "-n", processes)
    assert run.code == 0, run.out + run.err
    first, last = (set((project.folder / name).read_text().splitlines()) for name in ("first.txt", "last.txt"))
    assert "torch.autograd" in first
    assert sorted(last - first) == []
