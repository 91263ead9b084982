"""Measures how evenly shards divide a run: `tools/bench_shards.py [--shards 5] [--durations REPORT] [SPEC ...]`.

Runs all cases of the specs at once, unless a report of that run is given, then shard by shard, balanced by the
durations of the whole run. Prints the CPU time of each shard, the ratio of the slowest to the mean, and whether the
merged shards equal the whole run, except for times. Exits with 1 if they do not, or if that ratio exceeds 1.25.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opcheck.report.content import Report
from opcheck.report.merge import merge
from opcheck.report.store import read

MOST = 1.25


def cpu_seconds(command: Sequence[str]) -> float:
    """Run a command. Return its CPU time in seconds. Raises SystemExit if it could not run its cases."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(command[0], [*command], os.environ, file_actions=quiet)
    _, status, used = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(command)} could not run its cases")
    return used.ru_utime + used.ru_stime


def differences(whole: Report, merged: Report) -> list[str]:
    """Return the ids of cases that differ between two reports, except in times. Compares the headers, too."""
    apart = {"records", "seconds", "started", "command"}
    runs = [[run.model_dump(exclude=apart) for run in one.runs] for one in (whole, merged)]
    old, new = ({each.id: replace(each, seconds=0.0) for each in one.records} for one in (whole, merged))
    cases = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return cases if runs[0] == runs[1] else ["the headers", *cases]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", default=["builtin"], metavar="SPEC")
    parser.add_argument("--shards", type=int, default=5, metavar="COUNT")
    parser.add_argument("--durations", type=Path, metavar="REPORT", help="the report of a whole run")
    parser.add_argument("--by-count", action="store_true", help="divide by the number of cases instead")
    options = parser.parse_args(arguments)
    run = [sys.executable, "-m", "opcheck", "run", *options.specs, "--device=cpu"]
    with tempfile.TemporaryDirectory() as folder:
        whole = options.durations or Path(folder, "whole.json")
        if not options.durations:
            print(f"whole run: {cpu_seconds([*run, f'--report-json={whole}']):.1f} s of CPU time")
        balance = [] if options.by_count else [f"--durations={whole}"]
        used, reports = [], []
        for number in range(1, options.shards + 1):
            shard, report = f"{number}/{options.shards}", Path(folder, f"{number}.json")
            used.append(cpu_seconds([*run, f"--shard={shard}", *balance, f"--report-json={report}"]))
            reports.append((shard, read(report)))
            print(f"shard {shard}: {used[-1]:.1f} s of CPU time, {len(reports[-1][1].records)} cases", flush=True)
        mean, wrong = sum(used) / len(used), differences(read(whole), merge(reports))
        verdict = f"not the whole run: {', '.join(wrong[:5])} ({len(wrong)} differences)" if wrong else "the whole run"
        print(f"mean {mean:.1f} s, slowest {max(used) / mean:.2f} of it; together they are {verdict}")
    return int(bool(wrong) or max(used) > MOST * mean)


if __name__ == "__main__":
    sys.exit(main())
