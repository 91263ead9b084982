"""How evenly shards divide a run: `python tools/bench_shards.py [--shards 5] [--durations REPORT] [SPEC ...]`.

Runs the specs whole, unless a report of that is given, then shard by shard, balanced by the durations of the whole
run. Prints the CPU time of each shard's processes, the slowest in units of the mean, and whether the shards together
have the outcomes of the whole run. Exits with 1 if they have not, or if the slowest takes more than 1.25 of the mean.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opcheck.report.reading import read

MOST = 1.25


def cpu_seconds(command: Sequence[str]) -> float:
    """Run a command. Return the CPU time of its processes. Raises SystemExit if it could not run its cases."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(command[0], [*command], os.environ, file_actions=quiet)
    _, status, used = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(command)} could not run its cases")
    return used.ru_utime + used.ru_stime


def outcomes(report: Path) -> dict[str, str]:
    return {record.id: record.outcome for record in read(report).records}


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
        used, together = [], {}
        for number in range(1, options.shards + 1):
            report = Path(folder, f"{number}.json")
            shard = f"--shard={number}/{options.shards}"
            used.append(cpu_seconds([*run, shard, *balance, f"--report-json={report}"]))
            found = outcomes(report)
            print(f"shard {number}/{options.shards}: {used[-1]:.1f} s of CPU time, {len(found)} cases")
            if together.keys() & found.keys():
                raise SystemExit("two shards have the same case")
            together |= found
        mean, same = sum(used) / len(used), together == outcomes(whole)
        told = "as in" if same else "NOT those of"
        print(f"mean {mean:.1f} s, slowest {max(used) / mean:.2f} of it; outcomes {told} the whole run")
    return int(not same or max(used) > MOST * mean)


if __name__ == "__main__":
    sys.exit(main())
