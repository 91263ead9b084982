"""The house rules: which folder imports which, and what never imports torch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "opcheck"
LAYERS = ("text", "spec", "plan", "samples", "derivatives", "checks", "devices", "run", "report", "api")
"""Each imports only from those before it."""

ENTRANCES = ("__init__", "__main__", "cli", "parametrize", "pytest_plugin", "suite")
"""The ways in: they import from everywhere, and while they run, so that a command loads no more than it needs."""

TORCHLESS = ("text", "spec", "plan", "report")
STANDS_ALONE = {"text": LAYERS[1:], "derivatives": ("spec", "plan", "samples")}
"""Calculus knows nothing of specs, though it comes after them."""

Import = tuple[str, str, bool]
"""Where (a path inside the package), what (a dotted name), and whether it is inside a function."""


def imports() -> Iterator[Import]:
    """Yield all imports of the package but those that are for type checkers alone."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for name, inside in found(tree, inside=False):
            yield str(path.relative_to(PACKAGE)), name, inside


def found(node: ast.AST, *, inside: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, inside) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield from ((f"{child.module}.{alias.name}", inside) for alias in child.names)
        else:
            yield from found(child, inside=inside or isinstance(child, (ast.FunctionDef, ast.Lambda)))


ALL = list(imports())


def home(where: str) -> str:
    """Return the layer or entrance that a file of the package belongs to."""
    return Path(where).parts[0].removesuffix(".py")


def own(name: str) -> str:
    """Return the layer or entrance that an imported name belongs to; an empty string for other packages."""
    parts = name.split(".")
    return parts[1] if parts[0] == "opcheck" and len(parts) > 1 else ""


def test_each_part_of_the_package_has_its_place():
    assert {home(str(path.relative_to(PACKAGE))) for path in PACKAGE.rglob("*.py")} == {*LAYERS, *ENTRANCES}


def test_layers_import_only_from_those_before_them():
    wrong = [
        f"{where} imports {name}"
        for where, name, _ in ALL
        if home(where) in LAYERS and own(name) and own(name) not in LAYERS[: LAYERS.index(home(where)) + 1]
        if own(name) != "__version__"
    ]
    assert wrong == []


def test_calculus_knows_nothing_of_specs():
    assert [line for line in ALL if own(line[1]) in STANDS_ALONE.get(home(line[0]), ())] == []


def test_only_the_ways_in_import_other_layers_late():
    late = [
        f"{where} imports {name}"
        for where, name, inside in ALL
        if inside and home(where) in LAYERS and own(name) not in ("", home(where))
    ]
    assert late == []


def test_what_plans_and_reports_does_not_name_torch():
    wrong = [line for line in ALL if home(line[0]) in TORCHLESS and line[1].split(".")[0] == "torch"]
    assert wrong == []


def test_torch_is_imported_late_or_not_at_all_by_the_ways_in():
    torchless = (*TORCHLESS, *ENTRANCES, "", "run")
    wrong = [
        line
        for line in ALL
        if home(line[0]) in ENTRANCES and not line[2]
        if own(line[1]) not in torchless or line[1].split(".")[0] == "torch"
    ]
    assert wrong == []


def test_nothing_imports_the_private_parts_of_torchs_tests():
    assert [line for line in ALL if line[1].startswith("torch.testing._")] == []
    assert [path for path in PACKAGE.rglob("*.py") if "torch.testing._internal" in path.read_text()] == []


SPEC = """
[[operator]]
name     = "torch.sin"
variants = ["method", "inplace"]
samples  = [{ use = "unary" }]
  [[operator.expect]]
  when    = { check = "backward", dtype = "complex128", torch = "<1" }
  outcome = "fail"
  reason  = "history"
"""


@pytest.mark.parametrize(
    "command",
    [
        "opcheck validate spec.toml", "opcheck list spec.toml", "opcheck show torch.sin spec.toml", "opcheck schema",
        "pytest --collect-only -q spec.toml", "pytest --collect-only -q spec.toml::torch.sin::backward[cpu-float64]",
    ],
)  # fmt: skip
def test_torch_is_not_imported_by(command, tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *command.split()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "opcheck.spec.load" in imported or command == "opcheck schema"
    assert {name for name in imported if name.split(".")[0] in ("torch", "numpy", "scipy")} == set()


def test_a_project_that_does_not_use_opcheck_loads_little_of_it(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pytest", "-q"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    known = {"opcheck", "opcheck.pytest_plugin", "opcheck.parametrize", "opcheck.suite"}
    known |= {f"opcheck.suite.{name}" for name in ("arguments", "items", "options", "project")}  # the plugin itself
    assert {name for name in imported if name.startswith("opcheck")} - known == set()
    assert "pydantic" not in imported
