"""Runs cases with pytest, according to the options of `opcheck run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich.console import Console

from opcheck.cli.run.reporter import RunReporter
from opcheck.cli.run.workers import Workers
from opcheck.cli.stdout import Output
from opcheck.pytest_plugin.options import pytest_arguments
from opcheck.pytest_plugin.project import split_id
from opcheck.running.watchdog import default_memory
from opcheck.settings import Settings
from opcheck.spec.load import BUILTIN, builtin_folder

MOST_CRASHES = 1000
"""The maximum number of crashed workers in a run. The default of pytest-xdist is only a few."""

TIMEOUT = 300.0
"""The default time limit for a case, in seconds."""


def run_cases(options: argparse.Namespace, plugins: Iterable[object] = ()) -> int:
    """Run cases, print their progress and outcomes, and return the exit code. Raises SpecError if nothing can be run.

    plugins: further plugins of pytest.
    """
    settings = Settings.find(profiles=options.device_profile)
    if not options.paths:
        settings.required_specs()
    # A separate descriptor, since pytest redirects the standard one while tests run.
    with (
        Output(os.fdopen(os.dup(sys.stdout.fileno()), "wb"), encoding="utf-8") as out,
        TemporaryDirectory(prefix="opcheck-", ignore_cleanup_errors=True) as folder,
    ):
        wide = None if out.isatty() else 160
        reporter = RunReporter(Console(file=out, width=wide), options)
        workers = [] if options.in_process or options.ray else [Workers(Path(folder), *_limits(options, settings))]
        code = pytest.main(_arguments(options, settings), plugins=[reporter, *workers, *plugins])
        return reporter.finish(int(code)) or int(out.is_cut)


def _limits(options: argparse.Namespace, settings: Settings) -> tuple[float | None, int]:
    """Return the time limit of a case in seconds (None: no limit) and the memory limit of its process in MiB."""
    seconds = next((one for one in (options.timeout, settings.timeout) if one is not None), TIMEOUT)
    count = options.n or "1"
    # Processes share the memory of the machine, which may run one part of a larger run on each CPU.
    processes = max(int(count), 1) if count.isdecimal() and not options.is_part else os.cpu_count() or 1
    return seconds or None, options.memory or settings.memory or default_memory(processes)


def _arguments(options: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the command line for pytest. It ignores conftest.py files: a folder of specs is data."""
    arguments = [
        "--opcheck-alone", "--rootdir", os.path.relpath(settings.root),  # relative, since pytest expands $NAME in it
        # There are no tests. To rewrite a plugin's assertions, each process would have to compile all of opcheck.
        "--noconftest", "-o", "norecursedirs=", "--disable-warnings", "--assert=plain", "-p", "no:hypothesispytest",
        "-p", "no:logging",  # it would process all of torch's loggers in each phase of a test
        *pytest_arguments(options),
    ]  # fmt: skip
    if options.in_process:
        arguments += ["--timeout", str(options.timeout)] if options.timeout else []
    elif not options.ray:
        arguments += ["--capture=no"]  # workers redirect their output themselves
        arguments += ["-n", options.n if options.n not in (None, "0") else "1", f"--max-worker-restart={MOST_CRASHES}"]
    specs = dict.fromkeys(split_id(_pytest_path(path))[0] for path in options.specs)
    return [*arguments, *(f"--opcheck-specs={path}" for path in specs), *map(_pytest_path, options.paths)]


def _pytest_path(path: str) -> str:
    """Return a path that pytest can find. `builtin` becomes the folder of the shipped library."""
    parts = Path(path).parts
    if parts and parts[0] == BUILTIN and not Path(split_id(path)[0]).exists():
        return str(builtin_folder().joinpath(*parts[1:]))
    return f"./{path}" if path.startswith("-") else path  # else taken for an option
