"""Measures reports of many cases: `python tools/bench_report.py [--cases 20000] [--most-seconds 5] [--most-mib 300]`.

Step one writes a run of this many cases, record by record. Step two reads, merges and writes two reports of half as
many cases, of two versions of torch. Each step is a separate process; its time and peak memory include startup. Exits
with 1 if both steps together take more CPU time than allowed, or if a step takes more memory or imports torch.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MESSAGE = (
    "sample 0 (specs/unary.toml:3)\n" + "  worst entry: d output 0[0] / d x[0] = 2 numerically, 3 analytically\n" * 10
)
CHECKS = ("backward", "forward_ad", "vmap", "rev_over_rev", "fwd_over_rev", "purity", "context", "dtypes")


def records(count: int) -> Iterator[dict[str, Any]]:
    """Yield records like those of a run. One case of a hundred fails."""
    for number in range(count):
        operator, check = f"mylib.operator_{number // len(CHECKS)}", CHECKS[number % len(CHECKS)]
        name, bad = f"{operator}::{check}[cpu-float64]", number % 100 == 99
        yield {
            "id": name, "operator": operator, "variant": "function", "check": check, "device": "cpu",
            "dtype": "float64", "family": "unary", "outcome": "failed" if bad else "passed",
            "reason": "a wrong gradient" if bad else "",
            "seconds": 0.001 * (number % 50), "message": MESSAGE if bad else "", "seed": 0,
            "fields": {"worst": [number, 2.0, 3.0], "diagnosis": [{"kind": "factor"}]} if bad else {},
            "file": "specs/unary.toml", "line": 3 + number, "column": 8,
            "rerun": f"opcheck run 'specs/unary.toml::{name}'", "toml": "{ args = [{ shape = [2] }] }" if bad else "",
        }  # fmt: skip


def write(path: Path, count: int, torch: str) -> None:
    from opcheck.report.content import End, Header
    from opcheck.report.store import ReportFile
    from opcheck.running.outcome import Outcome

    file = ReportFile(path)
    file.append(
        Header(
            opcheck="0.1.0", torch=torch, python="3.11", platform="Linux x86_64", engine="batched", seed=0,
            started="2026-01-01T00:00:00+00:00",
        )
    )  # fmt: skip
    for record in records(count):
        file.append(Outcome(**record))
    file.append(End(complete=True, seconds=60.0))
    wrong = file.close()
    assert not wrong, wrong


def merge(folder: Path) -> None:
    from opcheck.cli import main

    code = main(["report", "merge", str(folder / "a.json"), str(folder / "b.json"), "-o", str(folder / "all.json")])
    assert code == 0, code


@dataclass
class Cost:
    """The time and memory of a process."""

    seconds: float
    cpu: float
    mib: float
    torch: bool
    """Whether the process imported torch."""


def measured(step: str, folder: Path, count: int) -> Cost:
    """Run a step in a separate process."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--cases", str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Cost(seconds=time.perf_counter() - start, **json.loads(done.stdout.splitlines()[-1]))


def do(step: str, folder: Path, count: int) -> None:
    if step == "write":
        write(folder / "whole.json", count, "2.13.0")
    else:
        merge(folder)
    used = resource.getrusage(resource.RUSAGE_SELF)
    mib = used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "mib": mib, "torch": "torch" in sys.modules}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--most-seconds", type=float, default=5.0)
    parser.add_argument("--most-mib", type=float, default=300.0)
    parser.add_argument("--step", choices=["write", "merge"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        do(options.step, options.folder, options.cases)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, torch in (("a.json", "2.13.0"), ("b.json", "2.14.1")):
            write(folder / file, options.cases // 2, torch)
        found = {step: measured(step, folder, options.cases) for step in ("write", "merge")}
        merged = (folder / "all.json").read_text().count('{"id": ')
    for step, cost in found.items():
        print(f"{step}: {cost.seconds:.2f} s, {cost.cpu:.2f} s of CPU time, {cost.mib:.0f} MiB")
    total = sum(cost.cpu for cost in found.values())
    print(f"{merged} cases written and merged: {total:.2f} s of CPU time")
    slow = total > options.most_seconds or any(cost.mib > options.most_mib for cost in found.values())
    return int(slow or merged != options.cases // 2 * 2 or any(cost.torch for cost in found.values()))


if __name__ == "__main__":
    sys.exit(main())
