"""`opcheck run`: pytest underneath, with a progress bar and a summary of its own."""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from opcheck.cli.paths import add_paths, spec_paths, split_id
from opcheck.cli.selecting import RequestError, add_selection, devices, loaded, selection
from opcheck.cli.validate import resolve_names_once
from opcheck.report.from_pytest import record_of, troubles
from opcheck.spec import Library, Settings
from opcheck.spec.load import BUILTIN, builtin_folder

MOST_CRASHES = 1000
"""Cases that may crash their process before a run with several gives up. pytest-xdist would after a few."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_paths(parser)
    add_selection(parser)
    parser.add_argument("-k", metavar="EXPRESSION", help="select by words in case ids, as in pytest")
    parser.add_argument(
        "-m", metavar="EXPRESSION", help="select by markers (checks, devices, dtypes, tags), as in pytest"
    )
    parser.add_argument(
        "-n", metavar="PROCESSES", type=_processes, default="0", help="processes, or auto; default 0: in this one"
    )
    parser.add_argument("-x", action="store_true", help="stop at the first failure")
    parser.add_argument("--lf", action="store_true", help="run what failed last time")
    parser.add_argument("--report-json", metavar="FILE", help="write one record a case, also when interrupted")
    parser.add_argument("--junitxml", metavar="FILE", help="write a JUnit report")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end a case that takes longer")
    numbers = parser.add_argument_group("derivatives", "these win over the specs")
    numbers.add_argument("--engine", choices=["batched", "torch"], help="what computes derivative evidence")
    for name in ("eps", "atol", "rtol", "nondeterminism"):
        numbers.add_argument(f"--{name}", type=float, metavar="X")
    numbers.add_argument(
        "--jacobian", choices=["full", "projected", "auto"], help="whole Jacobians, random ones, or by size"
    )
    numbers.add_argument("--fast-mode", action="store_true", help="fast_mode of torch's gradcheck")
    numbers.add_argument("--no-raise-exception", action="store_true", help="do not ask gradcheck for explanations")


def run(options: argparse.Namespace) -> int:
    """Run the selected cases. Returns the exit code. Raises SpecError."""
    settings = Settings.find()
    paths, options.paths = list(options.paths), [split_id(path)[0] for path in options.paths]
    library = loaded(options, settings)
    chosen = selection(options, library)
    devices(options, settings)
    resolve_names_once(Library(tuple(filter(chosen.takes_operator, library))), options, settings)
    options.paths = paths
    return _pytest(options, settings)


def _processes(text: str) -> str:
    if text not in ("auto", "logical") and not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}" is neither a number nor auto')
    return text


def _pytest(options: argparse.Namespace, settings: Settings) -> int:
    from rich.console import Console

    from opcheck.report.terminal import TerminalReport

    # A descriptor of its own: pytest redirects the usual one while tests run.
    with _Output(os.fdopen(os.dup(sys.stdout.fileno()), "wb"), encoding="utf-8") as out:
        wide = None if out.isatty() else 160
        report = TerminalReport(Console(file=out, width=wide))
        reporter = _Reporter(report, stops_early=options.x)
        with _terminated_as_interrupt():
            code = pytest.main(_arguments(options, settings), plugins=[reporter])
        code = reporter.finish(int(code))
        return code or int(out.is_cut)


def _arguments(options: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the command line for pytest: what was loaded is run, whatever the project's own options of pytest say."""
    arguments = ["--rootdir", os.path.relpath(settings.root)]  # relative: pytest replaces $NAME in it
    arguments += ["-o", "addopts=", "-o", "norecursedirs=", "--disable-warnings"]
    arguments += ["-p", "no:hypothesispytest"]  # has nothing to do here, and takes as long to load as torch
    for name in ("k", "m"):
        value = getattr(options, name)
        arguments += [f"-{name}", value] if value else []
    arguments += ["-x"] if options.x else []
    arguments += ["--lf"] if options.lf else []
    arguments += ["-n", options.n, f"--max-worker-restart={MOST_CRASHES}"] if options.n != "0" else []
    arguments += ["--junitxml", options.junitxml] if options.junitxml else []
    arguments += ["--timeout", str(options.timeout)] if options.timeout else []
    arguments += ["--opcheck-report-json", options.report_json] if options.report_json else []
    arguments += ["--opcheck-engine", options.engine] if options.engine else []
    arguments += ["--opcheck-fast-mode"] if options.fast_mode else []
    arguments += [f"--opcheck-jacobian={options.jacobian}"] if options.jacobian else []
    arguments += ["--opcheck-no-raise-exception"] if options.no_raise_exception else []
    for name in ("eps", "atol", "rtol", "nondeterminism"):
        value = getattr(options, name)
        arguments += [f"--opcheck-{name}={value}"] if value is not None else []
    for name in ("device", "operator", "check", "dtype", "tag"):
        arguments += [f"--opcheck-{name}={value}" for value in getattr(options, name)]
    paths = [_pytest_path(str(path)) for path in spec_paths(options, settings)]
    return [*arguments, *(f"--opcheck-specs={split_id(path)[0]}" for path in paths), *paths]


def _pytest_path(path: str) -> str:
    """Return a path that pytest can find: `builtin` stands for the shipped library."""
    parts = Path(path).parts
    if parts and parts[0] == BUILTIN and not Path(split_id(path)[0]).exists():
        return str(builtin_folder().joinpath(*parts[1:]))
    return f"./{path}" if path.startswith("-") else path  # which would be an option


class _Output(io.TextIOWrapper):
    """Standard output that ends the run when nobody reads it any more, as in `opcheck run | head`.

    Where it goes to a disk that is full, the run goes on, for the sake of its other reports.
    """

    is_cut = False

    def write(self, text: str) -> int:
        """Write text."""
        with self._surviving():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._surviving():
            super().flush()

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise KeyboardInterrupt from None
            self.is_cut = True
            print(f"opcheck: the output is incomplete: {error.strerror}", file=sys.stderr)


class _Reporter:
    """A pytest plugin that feeds the terminal report, in place of pytest's own."""

    def __init__(self, report: Any, *, stops_early: bool) -> None:
        self.report = report
        self.stops_early = stops_early
        self.start = time.monotonic()
        self.collect_errors: list[str] = []
        self.total = 0

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Silence pytest's own terminal report. Other plugins, that of time-outs among them, rely on its presence."""
        self.config = config
        config.pluginmanager.unregister(name="terminalreporter")
        silent: Any = pytest.TerminalReporter(config, io.StringIO())
        silent.pytest_runtest_logreport = None  # which nobody would see: it need not keep account of each case
        config.pluginmanager.register(silent, "terminalreporter")

    def pytest_internalerror(self, excrepr: object) -> None:
        """Show what went wrong in pytest or a plugin of it."""
        print(excrepr, file=sys.stderr)

    def pytest_collection_finish(self, session: Any) -> None:
        """Start the progress bar; under pytest-xdist the controlling process learns the number from its workers."""
        if session.items and not hasattr(session.config, "workerinput"):
            self.begin(len(session.items))

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Start the progress bar under pytest-xdist."""
        if not self.total:
            self.begin(len(ids))

    def begin(self, total: int) -> None:
        """Start the progress bar."""
        self.total = total
        self.report.start(total)

    def pytest_sessionfinish(self) -> None:
        """End at once: see the plugin. What goes with the process is no garbage to look for."""
        gc.freeze()

    def pytest_collectreport(self, report: Any) -> None:
        """Keep what went wrong while collecting."""
        if report.failed:
            self.collect_errors.append(str(report.longrepr))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take the record of a finished case."""
        record = record_of(report)
        if record is not None:
            self.report.add(record)

    def finish(self, code: int) -> int:
        """Print failures and summary, and return opcheck's exit code for pytest's. Raises RequestError."""
        self.report.stop()
        if self.collect_errors:
            raise RequestError(list(dict.fromkeys(self.collect_errors)))
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise RequestError(["the request selects no case"])
        if code == pytest.ExitCode.USAGE_ERROR:
            return 2  # pytest has said why
        self.report.failures()
        self.report.summary(time.monotonic() - self.start, troubles(self.config))
        done = len(self.report.records)
        if self.stops_early and self.report.has_failed:
            self.report.console.print(f"stopped at a failure, after {done} of {self.total} cases")
            return 1
        if code == pytest.ExitCode.INTERRUPTED:
            self.report.console.print(f"interrupted after {done} of {self.total} cases")
        return code if code in (0, 1) else 2


class _terminated_as_interrupt:
    """Within it, SIGTERM ends a run like Ctrl-C does: reports are written."""

    def __enter__(self) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        self.before: Any = None
        with suppress(ValueError):  # only the main thread may set handlers
            self.before = signal.signal(signal.SIGTERM, interrupt)

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGTERM, self.before)
