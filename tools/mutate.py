"""Mutation testing of opcheck's own code: makes one small change at a time, and prints those that no test detects.

    python tools/mutate.py opcheck/derivatives/jacobians.py
    python tools/mutate.py opcheck/checks/*.py --sample 10 --seed 1 --minutes 20

Each changed module (a mutant) is written to a copy of the package; the working tree is not modified. The tests run in
a fork of a process that has imported torch already: first the tests named after the module, then those of its folder.
A failing test, a crash or a time-out kills the mutant. Results are kept in `.mutants.jsonl`, so an interrupted run can
be continued. Mutants that no test can kill, since they behave like the original, are listed with reasons in
`tools/equivalent_mutants.toml`.

The mutants are chosen for code that detects errors: a changed comparison, operator or number, or a missing operand of
`and`, element of a tuple, keyword, call of a method such as `clone()`, condition or statement.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli

ROOT = Path(__file__).resolve().parent.parent
KNOWN, EQUIVALENT = ROOT / ".mutants.jsonl", ROOT / "tools" / "equivalent_mutants.toml"

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Mod: ast.Add,
}  # fmt: skip
LEFT_ALONE = (ast.JoinedStr, ast.Import, ast.ImportFrom)
NAMES = {"all": "any", "any": "all", "max": "min", "min": "max"}


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    line: int
    start: int
    """The bytes of the source from `start` to `end` are `old`. `new` replaces them."""
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split())}"

    def of(self, source: bytes) -> bytes:
        """Return the source of the module with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


# creating mutants


def mutants(module: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = {}
    for node, new in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        old = source[start:end].decode()
        text = new if isinstance(new, str) else ast.unparse(new)
        text = f"({text})" if isinstance(node, ast.expr) and not isinstance(node, ast.Constant) else text
        found[start, end, text] = Mutant(module, node.lineno, start, end, old, text)
    return [found[key] for key in sorted(found)]


def _changes(tree: ast.AST) -> Iterator[tuple[Any, Any]]:
    for node in _walk(tree):
        if isinstance(node, ast.expr):
            yield from ((node, new) for new in _expressions(node))
        elif isinstance(node, (ast.If, ast.While)):
            yield from ((node.test, new) for new in ("True", "False"))
        elif isinstance(node, ast.comprehension):
            yield from ((test, "True") for test in node.ifs)
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none_or_false(node.value):
            yield node, "return None"
        elif isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Expr)) and not _is_text(node):
            yield node, "pass"


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may be changed: no annotations, decorators, bases, imports, f-strings, or typing helpers."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, LEFT_ALONE) and not _says_nothing(child):
                yield from _walk(child)


def _says_nothing(node: ast.AST) -> bool:
    return _is_strict(node) or _is_literal(node)


def _is_literal(node: ast.AST) -> bool:
    """Return whether a node is a `Literal[...]`, which only type checkers use."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal"


def _is_strict(node: ast.AST) -> bool:
    """Return whether a node is the keyword `strict` of zip(), an assertion that always holds."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_none_or_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, False)


def _expressions(node: ast.expr) -> Iterator[Any]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from (_with(node, ops=[other()]) for other in COMPARISONS[type(node.ops[0])])
    elif isinstance(node, ast.BoolOp):
        for left_out in node.values:
            kept = [value for value in node.values if value is not left_out]
            yield _with(node, values=kept) if len(kept) > 1 else kept[0]
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield _with(node, op=OPERATORS[type(node.op)]())
        yield from (node.left, node.right)
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Constant):
        yield from _numbers(node.value)
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        yield from (_with(node, elts=[e for e in node.elts if e is not out]) for out in node.elts)
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _numbers(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield repr(not value)
    elif isinstance(value, int):
        yield repr(value + 1)
    elif isinstance(value, float):
        yield from (repr(value * 1e5), repr(value / 1e5))


def _calls(node: ast.Call) -> Iterator[Any]:
    if isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield _with(node, func=ast.Name(NAMES[node.func.id], ast.Load()))
    if isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
        yield node.func.value  # x.abs(), x.clone(), x.conj() become x
    for left_out in (keyword for keyword in node.keywords if not _is_strict(keyword)):
        yield _with(node, keywords=[keyword for keyword in node.keywords if keyword is not left_out])


def _with(node: ast.expr, **changes: Any) -> ast.expr:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


# running tests


BESIDES = {
    "autodiff": ("jacobians",),
    "check_claim": ("point_cache", "verdicts"),
    "jacobians": ("compare", "projected", "guards"),
    "coordinates": ("shared_memory", "projected"),
    "disagreement": ("diagnosis",),
    "dtypes": ("too_large",),
    "gradients": ("guards",),
    "looks": ("derived",),
    "point": ("guards", "fallbacks", "extent"),
    "process_state": ("runner",),
    "session": ("runner",),
    "worker": ("watchdog",),
    "unsupported": ("disclaimed_in_part", "too_large"),
    "vmap": ("values",),
}
"""Further tests of a module that are not named after it, by module."""


def stages(module: str, *, near: bool = False) -> list[list[str]]:
    """Return the tests of a module in stages: those named after it, then those of its folder.

    near: only those named after it, if there are any.
    """
    folder, name = ROOT / "tests" / Path(module).parent.relative_to("opcheck"), Path(module).stem
    while not folder.exists():  # modules in a subfolder may be tested in the folder above
        folder = folder.parent
    paths = [path for stem in (name, *BESIDES.get(name, ())) for path in sorted(folder.glob(f"test_{stem}.py"))]
    own = [str(path.relative_to(ROOT)) for path in paths]
    # Tests with the engine "torch" check torch's own functions, and would take most of the time.
    rest = [str(folder.relative_to(ROOT)), "-k", "not -torch"]
    return [own] if own and near else [own, rest] if own else [rest]


class Copy:
    """A copy of the package, in which one module at a time is mutated."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        shutil.copytree(ROOT / "opcheck", self.folder / "opcheck", ignore=shutil.ignore_patterns("__pycache__"))

    def fails(self, tests: list[str], seconds: float) -> bool:
        """Run tests against the copy in a fork. Return whether one fails, or they exceed the time limit."""
        child = os.fork()
        if not child:
            os.setsid()
            self._run(tests)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status != 0
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True

    def _run(self, tests: list[str]) -> None:
        """Run pytest in this process, and exit with its exit code."""
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes ignore SIGINT
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            os.chdir(ROOT)
            sys.path.insert(0, str(self.folder))
            os.environ["PYTHONPATH"] = str(self.folder)
            import pytest

            code = int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(code)

    def survives(self, mutant: Mutant, source: bytes, tests: list[list[str]], seconds: float) -> bool:
        """Return whether all tests pass with a mutant. Restore the module afterwards."""
        path = self.folder / mutant.module
        path.write_bytes(mutant.of(source))
        try:
            return not any(self.fails(stage, seconds) for stage in tests)
        finally:
            path.write_bytes(source)

    def remove(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)


# stored results


def key(mutant: Mutant, source: bytes) -> str:
    """Return a hash of a mutant and the source of its module, so that a result is void once the module changes."""
    return hashlib.sha1(source + repr(mutant).encode()).hexdigest()


def known() -> dict[str, dict[str, Any]]:
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    return {record["key"]: record for record in map(json.loads, lines)}


def equivalent() -> set[tuple[str, str, str]]:
    """Return module, old and new text of the mutants that are known to behave like the original."""
    entries = tomli.loads(EQUIVALENT.read_text())["equivalent"] if EQUIVALENT.exists() else []
    return {(entry["module"], entry["old"], entry["new"]) for entry in entries}


def chosen(modules: Iterable[str], sample: int, seed: int) -> Iterator[tuple[Mutant, bytes]]:
    """Yield the mutants of modules with the source, at most `sample` for each module (0: all)."""
    harmless = equivalent()
    for module in modules:
        source = (ROOT / module).read_bytes()
        found = [m for m in mutants(module, source) if (m.module, m.old, m.new) not in harmless]
        picked = random.Random(seed).sample(found, sample) if 0 < sample < len(found) else found
        yield from ((mutant, source) for mutant in sorted(picked, key=lambda mutant: mutant.start))


def run(
    modules: list[str], sample: int, seed: int, *, minutes: float, seconds: float, near: bool, again: bool = False
) -> int:  # fmt: skip
    """Test the mutants of modules. Print those that survive, and return their number."""
    remembered, end, copied, sound = known(), time.monotonic() + 60 * minutes, Copy(), set()
    tried, survivors, left = 0, 0, 0
    try:
        with KNOWN.open("a") as file:
            for mutant, source in chosen(modules, sample, seed):
                record = remembered.get(key(mutant, source))
                if record and record["survived"] and (again or record["near"] > near):
                    record = None  # test it again: there may be new tests, or more tests are to be run
                if record is None and time.monotonic() > end:
                    left += 1
                    continue
                if record is None:
                    tests = stages(mutant.module, near=near)
                    if mutant.module not in sound and any(copied.fails(stage, 10 * seconds) for stage in tests):
                        raise SystemExit(f"the tests of {mutant.module} fail without any change: {tests}")
                    sound.add(mutant.module)
                    survived = copied.survives(mutant, source, tests, seconds)
                    record = {"key": key(mutant, source), "survived": survived, "near": near, **asdict(mutant)}
                    file.write(json.dumps(record) + "\n")
                    file.flush()
                tried, survivors = tried + 1, survivors + record["survived"]
                if record["survived"]:
                    print(mutant, flush=True)
    finally:
        copied.remove()
    print(f"{tried} mutants, {survivors} survive" + (f", {left} left: run it again" if left else ""))
    return survivors


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="files of the package")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="at most N mutants of each; default: all")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--minutes", type=float, default=60, help="start no mutant after so many; default: 60")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="for the tests of one; 300")
    parser.add_argument("--near", action="store_true", help="only the tests that are about the module itself")
    parser.add_argument("--again", action="store_true", help="try those that survived before once more")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run none")
    options = parser.parse_args(arguments)
    modules = [str(Path(module).resolve().relative_to(ROOT)) for module in options.modules]
    if options.list:
        for mutant, _ in chosen(modules, options.sample, options.seed):
            print(mutant)
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.dont_write_bytecode = True
    import torch  # once: the forks inherit it

    torch.set_num_threads(1)
    bounds = {"minutes": options.minutes, "seconds": options.timeout}
    return 1 if run(modules, options.sample, options.seed, near=options.near, again=options.again, **bounds) else 0


if __name__ == "__main__":
    sys.exit(main())
