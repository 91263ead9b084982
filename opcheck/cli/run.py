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
from opcheck.cli.ray.cluster import LOCAL, address
from opcheck.cli.ray.controller import RayRun
from opcheck.cli.ray.task import Job
from opcheck.cli.request import RequestError
from opcheck.cli.run_reporter import RunReporter
from opcheck.cli.selecting import settings_of
from opcheck.cli.workers import Workers
from opcheck.pytest_plugin.options import SELECTION, add_options, pytest_arguments
from opcheck.pytest_plugin.project import split_id
from opcheck.report.files import is_stream
from opcheck.running.watchdog import Limits, default_memory
from opcheck.settings import Settings
from opcheck.spec.load import BUILTIN, builtin_folder

MOST_CRASHES = 1000
"""The number of crashes after which a run gives up. By default, pytest-xdist allows only a few."""

TIMEOUT = 300.0
"""The default time limit for a case, in seconds."""


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
        "--against", metavar="REPORT",
        help="print only what has changed since an earlier --report-json, and exit by that: 1 if a case newly fails, "
        "fails for another reason, is newly skipped, or is gone from the specs; 0 if whatever fails failed before",
    )  # fmt: skip
    parser.add_argument(
        "--github-annotations",
        action="store_true",
        help="print failures as annotations, which GitHub shows at their lines",
    )
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help=f"time limit for a case; default: {TIMEOUT:g}; 0: none"
    )
    parser.add_argument(
        "--memory",
        type=int,
        metavar="MIB",
        help="memory limit for a case; default: depends on what is available",
    )
    add_options(parser, "derivatives")


def run(options: argparse.Namespace) -> int:
    """Run the selected cases. Return the exit code. Raises SpecError."""
    if options.against and options.x:
        raise RequestError(["-x stops at the first failure, known or not: it does not go with --against"])
    if options.ray and options.in_process:
        raise RequestError(["--ray and --in-process exclude each other"])
    if options.ray and options.order is not None:
        raise RequestError(["--order does not go with --ray: tasks run beside one another, in no order"])
    if options.ray not in (None, LOCAL) and options.n:
        raise RequestError([f"-n does not go with --ray {options.ray}: the cluster has the processes that it has"])
    reads = options.against or options.github_annotations
    if reads and options.report_json and is_stream(Path(options.report_json)):
        raise RequestError([f"--against and --github-annotations read the report: {options.report_json} is no file"])
    with tempfile.TemporaryDirectory(prefix="opcheck-") as folder:
        if reads and not options.report_json:
            options.report_json = str(Path(folder, "report.json"))
        return _pytest(options, settings_of(options))


def _processes(text: str) -> str:
    if text not in ("auto", "logical") and not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}" is neither a number nor auto')
    return text


def _pytest(options: argparse.Namespace, settings: Settings) -> int:
    from rich.console import Console

    from opcheck.report.store import read
    from opcheck.report.terminal import TerminalReport

    old = read(Path(options.against)) if options.against else None
    # A separate descriptor, since pytest redirects the standard one while tests run.
    with Output(os.fdopen(os.dup(sys.stdout.fileno()), "wb"), encoding="utf-8") as out:
        wide = None if out.isatty() else 160
        report = TerminalReport(Console(file=out, width=wide), tells_failures=old is None)
        workers = None if options.in_process or options.ray else Workers(_limits(options, settings))
        reporter = RunReporter(report, options, workers, old)
        ray = _ray_run(options, settings) if options.ray else None
        with terminated_as_interrupt():
            plugins = [reporter, *filter(None, (workers, ray))]
            code = pytest.main(_arguments(options, settings), plugins=plugins)
        if workers is not None and workers.stillborn:
            raise RequestError([workers.stillborn])
        if ray is not None and ray.trouble:
            report.stop()
            raise RequestError([ray.trouble], prefix="")
        code = reporter.finish(int(code))
        return code or int(out.is_cut)


def _limits(options: argparse.Namespace, settings: Settings) -> Limits:
    seconds = next((one for one in (options.timeout, settings.timeout) if one is not None), TIMEOUT)
    memory = options.memory or settings.memory or default_memory(_count(options.n))
    return Limits(seconds or None, memory)


def _count(processes: str | None) -> int:
    count = processes or "1"
    return max(int(count), 1) if count.isdecimal() else os.cpu_count() or 1


def _ray_run(options: argparse.Namespace, settings: Settings) -> RayRun:
    """Return what hands cases to a Ray cluster, whose tasks run pytest with what is left of the options."""
    whole = dict.fromkeys(("k", "m", "ray", "shard", "durations", "report_json", "junitxml", "timeout", "x", "lf"))
    every = argparse.Namespace(**{**vars(options), **whole, "device": [], "in_process": True})
    some = argparse.Namespace(**{**vars(every), **{name: [] for name in SELECTION}})
    watched = argparse.Namespace(**{**vars(some), "in_process": False, "n": "1"})
    chosen = [_arguments(one, settings) for one in (some, watched)]
    here, contained = (words[: len(words) - len(options.paths)] for words in chosen)
    limits = Limits(_limits(options, settings).seconds, options.memory or settings.memory)
    job = Job(os.getcwd(), watched, _arguments(every, settings), [*here, "--capture=no"], contained, limits)
    cpus = int(options.n) if (options.n or "").isdecimal() else None
    return RayRun(options.ray, cpus, job, options.engine or settings.engine)


def _arguments(options: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the command line for pytest. Without conftest.py files: a folder of specs is data."""
    root = os.path.relpath(settings.root)  # relative, since pytest expands $NAME in it
    arguments = ["--opcheck-alone", "--rootdir", root]
    arguments += ["--noconftest", "-o", "norecursedirs=", "--disable-warnings"]
    arguments += ["-p", "no:hypothesispytest", "-p", "no:logging"]
    arguments += pytest_arguments(options)
    if options.in_process or options.ray:
        arguments += ["--timeout", str(options.timeout)] if options.timeout and not options.ray else []
    else:
        arguments += ["--capture=no"]  # workers redirect their output themselves
        arguments += ["-n", options.n if options.n not in (None, "0") else "1", f"--max-worker-restart={MOST_CRASHES}"]
    paths = [_pytest_path(path) for path in options.paths]
    return [*arguments, *(f"--opcheck-specs={split_id(path)[0]}" for path in paths), *paths]


def _pytest_path(path: str) -> str:
    """Return a path that pytest can find. `builtin` becomes the folder of the shipped library."""
    parts = Path(path).parts
    if parts and parts[0] == BUILTIN and not Path(split_id(path)[0]).exists():
        return str(builtin_folder().joinpath(*parts[1:]))
    return f"./{path}" if path.startswith("-") else path  # not an option
