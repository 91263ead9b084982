"""`opcheck run`: runs cases with pytest, and shows a progress bar and a summary."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import pytest

from opcheck.cli.output import Output, terminated_as_interrupt
from opcheck.cli.paths import add_paths
from opcheck.cli.request import RequestError
from opcheck.cli.run_reporter import RunReporter
from opcheck.cli.selecting import add_selection, add_shard, settings_of
from opcheck.cli.workers import Workers
from opcheck.run.watchdog import Limits, default_memory
from opcheck.settings import Settings
from opcheck.spec.load import BUILTIN, builtin_folder
from opcheck.suite.arguments import split_id
from opcheck.suite.options import seed

MOST_CRASHES = 1000
"""The number of crashes after which a run gives up. By default, pytest-xdist allows only a few."""

TIMEOUT = 300.0
"""The default time limit for a case, in seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_paths(parser)
    add_selection(parser)
    add_shard(parser)
    parser.add_argument("-k", metavar="EXPRESSION", help="select by case ids, as in pytest")
    parser.add_argument(
        "-m", metavar="EXPRESSION", help="select by markers (checks, devices, dtypes, tags), as in pytest"
    )
    parser.add_argument("-n", metavar="PROCESSES", type=_processes, default="1", help="processes, or auto; default: 1")
    parser.add_argument(
        "--in-process", action="store_true", help="run cases in this process, for debuggers; a crash ends the run"
    )
    parser.add_argument(
        "-W", metavar="FILTER", action="append", default=[], help="how to treat warnings, as in Python and pytest"
    )
    parser.add_argument("-x", action="store_true", help="stop at the first failure")
    parser.add_argument("--lf", action="store_true", help="run only what failed last time")
    parser.add_argument("--report-json", metavar="FILE", help="write one record per case, even if interrupted")
    parser.add_argument(
        "--against", metavar="REPORT",
        help="print only what has changed since an earlier --report-json, and exit by that: 1 if a case newly fails, "
        "is newly skipped, or is gone from the specs; 0 if whatever fails failed before",
    )  # fmt: skip
    parser.add_argument(
        "--github-annotations",
        action="store_true",
        help="print failures as annotations, which GitHub shows at their lines",
    )
    parser.add_argument("--junitxml", metavar="FILE", help="write a JUnit report")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help=f"time limit for a case; default: {TIMEOUT:g}; 0: none"
    )
    parser.add_argument(
        "--memory",
        type=int,
        metavar="MIB",
        help="memory limit for a case; default: depends on what is available",
    )
    parser.add_argument(
        "--seed", type=seed, metavar="N", help="seed of the sample values; default: the project's, else 0"
    )
    numbers = parser.add_argument_group("derivatives", "these take precedence over the specs")
    numbers.add_argument("--engine", choices=["batched", "torch"], help="what computes derivative evidence")
    for name in ("eps", "atol", "rtol", "nondeterminism"):
        numbers.add_argument(f"--{name}", type=float, metavar="X")
    numbers.add_argument(
        "--jacobian",
        choices=["full", "projected", "auto"],
        help="whole Jacobians, random projections, or what size and structure allow",
    )
    numbers.add_argument("--fast-mode", action="store_true", help="fast_mode of torch's gradcheck")
    numbers.add_argument("--no-raise-exception", action="store_true", help="do not ask gradcheck for explanations")


def run(options: argparse.Namespace) -> int:
    """Run the selected cases. Return the exit code. Raises SpecError."""
    if options.against and options.x:
        raise RequestError(["-x stops at the first failure, known or not: it does not go with --against"])
    with tempfile.TemporaryDirectory(prefix="opcheck-") as folder:
        if (options.against or options.github_annotations) and not options.report_json:
            options.report_json = str(Path(folder, "report.json"))
        return _pytest(options, settings_of(options))


def _processes(text: str) -> str:
    if text not in ("auto", "logical") and not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}" is neither a number nor auto')
    return text


def _pytest(options: argparse.Namespace, settings: Settings) -> int:
    from rich.console import Console

    from opcheck.report.reading import read
    from opcheck.report.terminal import TerminalReport

    old = read(Path(options.against)) if options.against else None
    # A separate descriptor, since pytest redirects the standard one while tests run.
    with Output(os.fdopen(os.dup(sys.stdout.fileno()), "wb"), encoding="utf-8") as out:
        wide = None if out.isatty() else 160
        report = TerminalReport(Console(file=out, width=wide), tells_failures=old is None)
        workers = None if options.in_process else Workers(_limits(options, settings))
        reporter = RunReporter(report, options, workers, old)
        with terminated_as_interrupt():
            code = pytest.main(_arguments(options, settings), plugins=[reporter, *([workers] if workers else [])])
        if workers is not None and workers.stillborn:
            raise RequestError([workers.stillborn])
        code = reporter.finish(int(code))
        return code or int(out.is_cut)


def _limits(options: argparse.Namespace, settings: Settings) -> Limits:
    seconds = next((given for given in (options.timeout, settings.timeout) if given is not None), TIMEOUT)
    memory = options.memory or settings.memory or default_memory(_count(options.n))
    return Limits(seconds or None, memory)


def _count(processes: str) -> int:
    return max(int(processes), 1) if processes.isdecimal() else os.cpu_count() or 1


def _arguments(options: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the command line for pytest. Without conftest.py files: a folder of specs is data."""
    root = os.path.relpath(settings.root)  # relative, since pytest expands $NAME in it
    arguments = ["--opcheck-alone", "--rootdir", root]
    arguments += ["--noconftest", "-o", "norecursedirs=", "--disable-warnings"]
    arguments += ["-p", "no:hypothesispytest", "-p", "no:logging"]
    for name in ("k", "m"):
        value = getattr(options, name)
        arguments += [f"-{name}", value] if value else []
    arguments += [f"-W{filter}" for filter in options.W]
    arguments += ["-x"] if options.x else []
    arguments += ["--lf"] if options.lf else []
    if options.in_process:
        arguments += ["--timeout", str(options.timeout)] if options.timeout else []
    else:
        arguments += ["--capture=no"]  # workers redirect their output themselves
        arguments += ["-n", options.n if options.n != "0" else "1", f"--max-worker-restart={MOST_CRASHES}"]
    arguments += ["--junitxml", options.junitxml] if options.junitxml else []
    arguments += ["--opcheck-report-json", options.report_json] if options.report_json else []
    arguments += ["--opcheck-engine", options.engine] if options.engine else []
    arguments += [f"--opcheck-device-profile={os.path.abspath(path)}" for path in options.device_profile]
    arguments += [f"--opcheck-seed={options.seed}"] if options.seed is not None else []
    arguments += ["--opcheck-fast-mode"] if options.fast_mode else []
    arguments += [f"--opcheck-jacobian={options.jacobian}"] if options.jacobian else []
    arguments += ["--opcheck-no-raise-exception"] if options.no_raise_exception else []
    for name in ("eps", "atol", "rtol", "nondeterminism"):
        value = getattr(options, name)
        arguments += [f"--opcheck-{name}={value}"] if value is not None else []
    arguments += [f"--opcheck-shard={options.shard}"] if options.shard else []
    arguments += [f"--opcheck-durations={os.path.abspath(options.durations)}"] if options.durations else []
    for name in ("device", "operator", "check", "dtype", "tag"):
        arguments += [f"--opcheck-{name}={value}" for value in getattr(options, name)]
    paths = [_pytest_path(path) for path in options.paths]
    return [*arguments, *(f"--opcheck-specs={split_id(path)[0]}" for path in paths), *paths]


def _pytest_path(path: str) -> str:
    """Return a path that pytest can find. `builtin` becomes the folder of the shipped library."""
    parts = Path(path).parts
    if parts and parts[0] == BUILTIN and not Path(split_id(path)[0]).exists():
        return str(builtin_folder().joinpath(*parts[1:]))
    return f"./{path}" if path.startswith("-") else path  # not an option
