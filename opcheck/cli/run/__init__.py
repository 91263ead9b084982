"""`opcheck run`: runs cases with pytest, and shows a progress bar and a summary."""

from __future__ import annotations

import argparse
from functools import partial

from opcheck.cli.run.ray.cluster import LOCAL, address
from opcheck.cli.run.ray.controller import RayRun
from opcheck.cli.run.start import TIMEOUT, run_cases
from opcheck.cli.selecting import add_paths, time_limit
from opcheck.pytest_plugin.options import add_options, file, whole_number
from opcheck.spec.problems import RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_paths(parser)
    add_options(parser, "profiles", "selection", "shards", "run")
    parser.add_argument("-n", metavar="PROCESSES", type=_processes, help="processes, or auto; default: 1")
    parser.add_argument(
        "--ray", metavar="ADDRESS", type=address, nargs="?", const=LOCAL,
        help="run cases as tasks of a Ray cluster: the one at HOST:PORT, the one that this machine belongs to (auto), "
        "or by default one that is started for the run, with -n CPUs",
    )  # fmt: skip
    parser.add_argument(
        "--in-process", action="store_true", help="run cases in this process, for debuggers; a crash ends the run"
    )
    parser.add_argument("--wide", action="store_true", help="list operators that are held to wider tolerances")
    parser.add_argument(
        "--against", metavar="REPORT", type=file,
        help="print only what has changed since an earlier --report-json, and exit by that: 1 if a case newly fails, "
        "fails for another reason, is newly skipped, or is gone from the specs; 0 if whatever fails failed before",
    )  # fmt: skip
    parser.add_argument(
        "--github-annotations",
        action="store_true",
        help="print failures as annotations, which GitHub shows at their lines",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=time_limit, metavar="SECONDS", help=f"time limit for a case; default: {TIMEOUT:g}; 0: none"
    )
    size = partial(whole_number, least=1, otherwise="is not a memory limit; expected a whole number of MiB, at least 1")
    parser.add_argument(
        "--memory", type=size, metavar="MIB", help="memory limit for a case; default: depends on what is available"
    )
    add_options(parser, "derivatives")
    parser.set_defaults(is_part=False)  # whether the cases are part of a larger run, as those of a Ray task are


def run(options: argparse.Namespace) -> int:
    """Run the selected cases. Return the exit code. Raises SpecError."""
    if options.against and options.x:
        why = "it would stop at failures that the old report already has"
        raise RequestError([f"-x cannot be used with --against: {why}"])
    if options.ray and options.in_process:
        raise RequestError(["--ray cannot be used with --in-process"])
    if options.ray and options.order is not None:
        raise RequestError(["--order cannot be used with --ray: tasks run in parallel, in no fixed order"])
    if options.ray not in (None, LOCAL) and options.n:
        why = "it sets only the size of a cluster that opcheck starts; drop -n, or use --ray without an address"
        raise RequestError([f"-n cannot be used with --ray {options.ray}: {why}"])
    options.specs = options.paths
    return run_cases(options, [RayRun(options)] if options.ray else [])


def _processes(text: str) -> str:
    if text not in ("auto", "logical") and not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}" is neither a number nor auto')
    return text
