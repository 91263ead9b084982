"""Compares the CPU time of the shipped specs with that of PyTorch's own gradient suites in fast mode.

`python tools/bench_suite.py` takes about forty minutes of CPU time, `--share 0.1` a tenth of that.

Both suites test the same operators: the entries of op_db that have a backward pass on the CPU and a spec, or a share of
these entries. Each suite runs in one process with one thread, one after the other. CPU-seconds include imports.

PyTorch's suites are test_ops_gradients and test_ops_fwd_gradients. They are in PyTorch's repository, but not in its
wheel. The wheel has what they are built on, so their eight tests are rewritten here with torch's own helpers
(`TestGradients`), decorators (`ops`, which applies the skips and expected failures of op_db) and device classes. Each
entry is tested in float64 and complex128, at all of its samples: first and second derivatives, of functions and in
place, forward mode and forward over reverse, batched where op_db claims it. The two small databases of custom and
higher-order operators are left out: their operators have no specs.

opcheck's suite ("ours") runs the specs that cover these entries as `make run` does: all dtypes and all checks, with
derived samples. `--json` prints the parts of both suites. It divides our cases by check, and into those in float64 and
complex128 and those in other dtypes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from opdb_parity import SPECS, covering, differentiable

import opcheck
from opcheck.draft.coverage import by_path
from opcheck.report.store import read

DOUBLES = ("float64", "complex128")
TESTS = (
    "test_fn_grad", "test_inplace_grad", "test_fn_gradgrad", "test_fn_fail_gradgrad", "test_inplace_gradgrad",
    "test_fn_fwgrad_bwgrad", "test_forward_mode_AD", "test_inplace_forward_mode_AD",
)  # fmt: skip
"""The names of the tests of PyTorch's suites."""


def drawn(share: float) -> dict[str, list[str]]:
    """Return a share of the entries of op_db, drawn with a fixed seed, with the ids of the specs that cover each."""
    named = by_path(opcheck.load(SPECS))
    covered = {entry.full_name: [spec.id for spec in covering(entry, named)] for entry in differentiable()}
    covered = {entry: specs for entry, specs in covered.items() if specs}
    chosen = random.Random(0).sample(sorted(covered), max(1, round(share * len(covered))))
    return {entry: covered[entry] for entry in sorted(chosen)}


def ours(entries: dict[str, list[str]], derive: str) -> dict[str, Any]:
    """Run the specs that cover some entries. Return the CPU-seconds, and the numbers and times of cases."""
    ids = list(dict.fromkeys(spec for specs in entries.values() for spec in specs))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.jsonl"
        command = ["-m", "opcheck", "run", SPECS, "--device", "cpu", "-n", "1", "--derive", derive]
        seconds, _ = _timed([*command, "--report-json", report, *(f"--operator={one}" for one in ids)])
        records = read(report).records
    by_check: dict[str, dict[str, float]] = {"doubles": defaultdict(float), "other_dtypes": defaultdict(float)}
    for record in records:
        by_check["doubles" if record.dtype in DOUBLES else "other_dtypes"][record.check] += record.seconds
    return {
        "cpu_seconds": round(seconds, 1),
        "specs": len(ids),
        "cases": len(records),
        "outcomes": dict(Counter(str(record.outcome) for record in records)),
        "wall_seconds_of_cases": {group: _sorted(times) for group, times in by_check.items()},
    }


def theirs(entries: Sequence[str]) -> dict[str, Any]:
    """Run PyTorch's suites for some entries. Return the CPU-seconds, and the numbers and times of tests."""
    seconds, output = _timed([__file__, "--entries", *entries])
    return {"cpu_seconds": round(seconds, 1), **json.loads(output.splitlines()[-1])}


def _timed(command: Sequence[object]) -> tuple[float, str]:
    """Run Python. Return the CPU-seconds of the process and its children, and its output."""
    before = _cpu_seconds()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *map(str, command)], env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout)
    return _cpu_seconds() - before, done.stdout


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sorted(times: dict[str, float]) -> dict[str, float]:
    return {name: round(seconds, 1) for name, seconds in sorted(times.items(), key=lambda item: -item[1])}


def suites(names: Sequence[str]) -> Iterator[type[unittest.TestCase]]:
    """Yield the two suites of PyTorch over some entries of op_db, for the CPU."""
    entries = [entry for entry in differentiable() if entry.full_name in names]
    import torch
    from torch.testing._internal import common_device_type, common_utils

    dtypes = {"dtypes": common_device_type.OpDTypes.supported, "allowed_dtypes": [torch.double, torch.cdouble]}
    over_entries = common_device_type.ops(entries, **dtypes)

    class Gradients(common_utils.TestGradients):
        def function(self, device, dtype, entry, check="gradcheck", **how):
            self._skip_helper(entry, device, dtype)
            self._check_helper(device, dtype, entry, entry.get_op(), check, **how)

        def inplace(self, device, dtype, entry, check="gradcheck", **how):
            self._skip_helper(entry, device, dtype)
            if not (entry.inplace_variant and entry.supports_inplace_autograd):
                self.skipTest("there is no derivative in place")
            self._check_helper(device, dtype, entry, self._get_safe_inplace(entry.get_inplace()), check, **how)

        def refuses(self, error, words, call):
            with self.assertRaisesRegex(error, words):  # noqa: PT027
                call()

    class TestBwdGradients(Gradients):
        @over_entries
        def test_fn_grad(self, device, dtype, op):
            self.function(device, dtype, op)

        @over_entries
        def test_inplace_grad(self, device, dtype, op):
            if not op.inplace_variant or op.supports_inplace_autograd:
                return self.inplace(device, dtype, op)
            self._skip_helper(op, device, dtype)
            call = self._get_safe_inplace(op.get_inplace())
            for sample in op.sample_inputs(device, dtype, requires_grad=True):
                if not sample.broadcasts_input:
                    self.refuses(Exception, "", partial(lambda one: call(one).sum().backward(), sample))
            return None

        @over_entries
        def test_fn_gradgrad(self, device, dtype, op):
            if not op.supports_gradgrad:
                self.skipTest("there is no second derivative")
            self.function(device, dtype, op, "bwgrad_bwgrad")

        @over_entries
        def test_fn_fail_gradgrad(self, device, dtype, op):
            if op.supports_gradgrad:
                self.skipTest("there is a second derivative")
            self._skip_helper(op, device, dtype)
            call = partial(self.function, device, dtype, op, "bwgrad_bwgrad")
            self.refuses(RuntimeError, "derivative for .* is not implemented", call)

        @over_entries
        def test_inplace_gradgrad(self, device, dtype, op):
            self.inplace(device, dtype, op, "bwgrad_bwgrad")

    no_forward_mode = (NotImplementedError, "Trying to use forward AD with .* that does not support it")
    forward = {"check_forward_ad": True, "check_backward_ad": False, "check_batched_grad": False}

    class TestFwdGradients(Gradients):
        def either(self, is_supported, call):
            call() if is_supported else self.refuses(*no_forward_mode, call)

        @over_entries
        def test_fn_fwgrad_bwgrad(self, device, dtype, op):
            self._skip_helper(op, device, dtype)
            self.either(op.supports_fwgrad_bwgrad, partial(self.function, device, dtype, op, "fwgrad_bwgrad"))

        @over_entries
        def test_forward_mode_AD(self, device, dtype, op):
            self._skip_helper(op, device, dtype)
            how = {**forward, "check_batched_forward_grad": op.check_batched_forward_grad}
            self.either(op.supports_forward_ad, partial(self.function, device, dtype, op, **how))

        @over_entries
        def test_inplace_forward_mode_AD(self, device, dtype, op):
            how = {**forward, "check_batched_forward_grad": op.check_inplace_batched_forward_grad}
            call = partial(self.inplace, device, dtype, op, **how)
            call() if not op.inplace_variant else self.either(op.supports_forward_ad, call)

    for suite in (TestBwdGradients, TestFwdGradients):
        scope: dict[str, Any] = {suite.__name__: suite}
        common_device_type.instantiate_device_type_tests(suite, scope, only_for="cpu")
        yield from (one for name, one in scope.items() if name != suite.__name__ and isinstance(one, type))


class Timed(unittest.TestResult):
    """A test result that adds up the CPU-seconds of each test of `TESTS` over all entries."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)

    def startTest(self, test: unittest.TestCase) -> None:
        """Start the clock."""
        super().startTest(test)
        self._since = time.process_time()

    def stopTest(self, test: unittest.TestCase) -> None:
        """Add the CPU-seconds of the test to those of its name."""
        name = next(name for name in TESTS if test._testMethodName.startswith(f"{name}_"))
        self.seconds[name] += time.process_time() - self._since
        super().stopTest(test)


def run_suites(entries: Sequence[str]) -> dict[str, Any]:
    """Run PyTorch's suites over some entries in this process. Return the numbers and times of tests."""
    result = Timed()
    for suite in suites(entries):
        unittest.defaultTestLoader.loadTestsFromTestCase(suite).run(result)
    failed = [str(test).partition(" ")[0] for test, _ in (*result.failures, *result.errors)]
    return {
        "entries": len(entries),
        "tests": result.testsRun,
        "skipped": len(result.skipped),
        "failed": failed + [str(test).partition(" ")[0] for test in result.unexpectedSuccesses],
        "seconds_of_tests": _sorted(result.seconds),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="the share of the entries; default: all of them")
    parser.add_argument("--derive", default="standard", choices=["none", "standard", "thorough"], help="of ours")
    parser.add_argument("--json", action="store_true", help="print an object")
    parser.add_argument("--entries", nargs="*", help=argparse.SUPPRESS)  # the process of PyTorch's suites
    options = parser.parse_args(arguments)
    if options.entries is not None:
        print(json.dumps(run_suites(options.entries)))
        return 0
    entries = drawn(options.share)
    result = {"entries": len(entries), "theirs": theirs(list(entries)), "ours": ours(entries, options.derive)}
    result["ratio"] = round(result["ours"]["cpu_seconds"] / result["theirs"]["cpu_seconds"], 3)
    print(json.dumps(result, indent=2) if options.json else _table(result))
    return 0


def _table(result: dict[str, Any]) -> str:
    theirs, ours = result["theirs"], result["ours"]
    sums = {group: sum(times.values()) for group, times in ours["wall_seconds_of_cases"].items()}
    shares = {group: seconds / sum(sums.values()) for group, seconds in sums.items()}
    run = theirs["tests"] - theirs["skipped"]
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in ours["outcomes"].items())
    return "\n".join((
        f"{result['entries']} entries of op_db, CPU-seconds",
        f"PyTorch's suites {theirs['cpu_seconds']:10.1f}   {run} tests, {len(theirs['failed'])} failed",
        *(f"  {name:24}{seconds:8.1f}" for name, seconds in theirs["seconds_of_tests"].items()),
        f"opcheck run      {ours['cpu_seconds']:10.1f}   {ours['cases']} cases of {ours['specs']} specs: {outcomes}",
        *(f"  {share:4.0%} cases in {group}" for group, share in shares.items()),
        f"ratio            {result['ratio']:10.3f}",
    ))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
