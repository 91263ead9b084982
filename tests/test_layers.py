"""The rules of the house: which module may import which, and what never imports torch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from report_files import record, report

from opcheck.report.store import write

PACKAGE = Path(__file__).resolve().parent.parent / "opcheck"

LAYERS = (
    "text", "strides", "spec", "matrix", "settings", "devices", "planning", "samples", "derivatives", "dropin",
    "checks", "running", "mutation", "report",
    "api", "draft", "pytest_plugin", "__init__", "cli", "__main__",
)  # fmt: skip
"""The parts of the package, in order. Each imports only from itself and from those before it."""

STANDS_ALONE = {
    "derivatives": ("text", "strides"),
    "dropin": ("text", "strides", "derivatives"),
}
"""Calculus knows nothing of specs, although it comes after them."""

ENTRANCES = LAYERS[LAYERS.index("pytest_plugin") :]
"""Parts that may import others inside functions, so that a command or a collection loads only what it needs."""

TORCHLESS = ("text", "spec", "matrix", "settings", "planning", "report", *ENTRANCES)
TORCHLESS_MODULES = ("opcheck.devices.presence", "opcheck.running.outcome", "opcheck.running.watchdog")
"""What can be imported without importing torch."""


@dataclass(frozen=True)
class Import:
    """An import of one module by another one."""

    where: str
    """The module that imports."""
    what: str
    """The module that is imported: of this package where `what` begins with its name, else of another one."""
    late: bool
    """Whether it is inside a function."""
    for_types: bool
    """Whether it is under TYPE_CHECKING, where it is not executed."""


def modules(package: Path) -> dict[str, str]:
    """Return the source of each module of a package, by dotted name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


def imports(sources: Mapping[str, str]) -> list[Import]:
    """Return all imports in some modules.

    `from a.b import c` imports the module a.b.c if there is one, else a.b. Dotted paths in strings are no imports:
    they are data, and whoever imports by them is one of the modules after what they name.
    """
    return [found for name, source in sources.items() for found in _imports(ast.parse(source), name, sources)]


def _imports(
    node: ast.AST, where: str, known: Mapping[str, str], *, late: bool = False, for_types: bool = False
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(where, alias.name, late, for_types) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{where}: imports are absolute"
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield Import(where, full if full in known else str(child.module), late, for_types)
        else:
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            types = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            yield from _imports(child, where, known, late=late or function, for_types=for_types or types)


def cycles(edges: list[Import]) -> list[list[str]]:
    """Return the groups of modules that import one another, directly or through others.

    Imports inside functions count, and so do those for type checkers alone: both keep Python from noticing a cycle, but
    a person must still understand all of its modules to understand one. That a package is executed before its modules
    does not count: nobody wrote that as an import.
    """
    graph: dict[str, set[str]] = {}
    for edge in edges:
        graph.setdefault(edge.where, set()).add(edge.what)
    reached = {module: reachable(graph, module) for module in graph}
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached.get(other, ())))
        for module in graph
        if module in reached[module]
    }
    return [list(group) for group in sorted(groups)]


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return the modules that a module imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = graph.get(waiting.pop(), set()) - found
        found |= fresh
        waiting += fresh
    return found


def loaded_by(edges: list[Import], start: str) -> set[str]:
    """Return what Python imports when it imports a module: what that names outside of functions, and packages."""
    graph: dict[str, set[str]] = {}
    for edge in edges:
        if not edge.late and not edge.for_types:
            graph.setdefault(edge.where, set()).add(edge.what)
    for module in {edge.where for edge in edges} | {edge.what for edge in edges}:
        parts = module.split(".")
        graph.setdefault(module, set()).update(".".join(parts[:n]) for n in range(1, len(parts)))
    return reachable(graph, start)


SOURCES = modules(PACKAGE)
ALL = imports(SOURCES)


@cache
def layer(module: str) -> str:
    """Return the part of the package that a module belongs to; an empty string for other packages."""
    parts = module.split(".")
    if parts[0] != PACKAGE.name:
        return ""
    return parts[1] if len(parts) > 1 else "__init__"


def place(module: str) -> int:
    """Return where in the order of layers a module stands."""
    return LAYERS.index(layer(module))


def told(edges: list[Import]) -> list[str]:
    return [f"{edge.where} imports {edge.what}" for edge in edges]


class TestTheFinder:
    """The rules below are worth as much as what finds imports and cycles."""

    @pytest.mark.parametrize(
        "back",
        [
            "import p.a",
            "from p import a",
            "from p.a import f",
            "def g():\n    from p.a import f",
            "class C:\n    def g(self):\n        import p.a",
            "f = lambda: __import__\nif TYPE_CHECKING:\n    from p.a import f",
            "if typing.TYPE_CHECKING:\n    import p.a",
            "try:\n    import p.a\nexcept ImportError:\n    pass",
        ],
    )
    def test_each_way_of_importing_back_is_a_cycle(self, back: str) -> None:
        sources = {"p": "", "p.a": "from p.b import g", "p.b": back}
        assert cycles(imports(sources)) == [["p.a", "p.b"]]

    def test_a_cycle_through_others_and_through_a_package_is_found(self) -> None:
        sources = {"p": "", "p.q": "from p.q.a import f", "p.q.a": "import p.b", "p.b": "from p.q import f"}
        assert cycles(imports(sources)) == [["p.b", "p.q", "p.q.a"]]

    def test_two_cycles_are_told_apart(self) -> None:
        sources = {"p.a": "import p.b", "p.b": "import p.a", "p.c": "import p.d, p.a", "p.d": "import p.c"}
        assert cycles(imports(sources)) == [["p.a", "p.b"], ["p.c", "p.d"]]

    def test_modules_that_import_one_way_are_no_cycle(self) -> None:
        sources = {"p": "from p.a import f", "p.a": "import p.b, p.c", "p.b": "import p.c", "p.c": "import torch"}
        assert cycles(imports(sources)) == []

    def test_python_loads_packages_but_neither_late_imports_nor_those_for_types(self) -> None:
        sources = {"p": "", "p.q": "import torch", "p.q.a": "", "p.b": "def f(): import p.q.a", "p.c": "import p.q.a"}
        assert "torch" not in loaded_by(imports(sources), "p.b")
        assert "torch" in loaded_by(imports(sources), "p.c")


def test_no_modules_import_one_another() -> None:
    assert cycles(ALL) == []


def test_each_part_of_the_package_has_its_place() -> None:
    assert {layer(module) for module in SOURCES} == set(LAYERS)


def test_each_part_imports_only_from_those_before_it() -> None:
    own = [edge for edge in ALL if layer(edge.what)]
    assert told([edge for edge in own if place(edge.what) > place(edge.where)]) == []


def test_calculus_knows_nothing_of_specs() -> None:
    wrong = [
        edge
        for edge in ALL
        if layer(edge.where) in STANDS_ALONE
        if layer(edge.what) not in ("", layer(edge.where), *STANDS_ALONE[layer(edge.where)])
    ]
    assert told(wrong) == []


def test_only_the_ways_in_import_other_parts_late() -> None:
    late = [edge for edge in ALL if edge.late and layer(edge.what) not in ("", layer(edge.where))]
    assert told([edge for edge in late if layer(edge.where) not in ENTRANCES]) == []
    assert late, "none is found any more: does the test still see them?"


def test_what_plans_and_reports_does_not_even_import_torch_late() -> None:
    torchless = TORCHLESS[: -len(ENTRANCES)]
    assert told([edge for edge in ALL if layer(edge.where) in torchless and edge.what.split(".")[0] == "torch"]) == []


@pytest.mark.parametrize("module", [*(module for module in SOURCES if layer(module) in TORCHLESS), *TORCHLESS_MODULES])
def test_torch_is_not_loaded_by_importing(module: str) -> None:
    assert {name for name in loaded_by(ALL, module) if name.split(".")[0] in ("torch", "numpy", "scipy")} == set()


def test_what_takes_derivatives_loads_torch() -> None:
    assert "torch" in loaded_by(ALL, "opcheck.running.runner")


def test_nothing_imports_the_private_parts_of_torchs_tests() -> None:
    assert told([edge for edge in ALL if edge.what.startswith("torch.testing._")]) == []
    assert [name for name, source in SOURCES.items() if "torch.testing._internal" in source] == []


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
        "opcheck matrix",
        "opcheck schema report", "opcheck report markdown report.json", "opcheck report diff report.json report.json",
        "opcheck report merge report.json -o all.json", "opcheck report github-annotations report.json",
        "opcheck report junit report.json -o report.xml", "opcheck report html report.json -o report.html",
        "opcheck report finding",
        "pytest --collect-only -q spec.toml", "pytest --collect-only -q spec.toml::torch.sin::backward[cpu-float64]",
    ],
)  # fmt: skip
def test_torch_is_not_imported_by(command, tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "pyproject.toml").write_text("[tool.opcheck.matrix]\n")
    write(report(record("a"), record("b", "failed")), tmp_path / "report.json")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *command.split()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "opcheck.spec.load" in imported or command.startswith(("opcheck schema", "opcheck matrix"))
    assert {name for name in imported if name.split(".")[0] in ("torch", "numpy", "scipy")} == set()


def test_a_project_that_does_not_use_opcheck_loads_little_of_it(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pytest", "-q"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    known = {"opcheck", "opcheck.text", "opcheck.pytest_plugin"}
    known |= {
        f"opcheck.pytest_plugin.{name}" for name in ("cases", "hooks", "items", "options", "project", "sharding")
    }  # the plugin itself
    assert {name for name in imported if name.startswith("opcheck")} - known == set()
    assert "pydantic" not in imported
