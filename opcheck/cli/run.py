"""`opcheck run`: pytest underneath, with a progress bar and a summary of its own."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opcheck.cli.paths import add_paths, split_id
from opcheck.cli.selecting import RequestError, add_selection, devices, loaded, selection
from opcheck.cli.workers import Workers
from opcheck.plan import Case, plan
from opcheck.pytest_plugin import PLUGIN
from opcheck.report.from_pytest import record_of, troubles
from opcheck.run.watchdog import Limits, default_memory
from opcheck.spec import Library, Settings, SpecError
from opcheck.spec.device import DeviceProfile
from opcheck.spec.load import BUILTIN, builtin_folder

MOST_CRASHES = 1000
"""Cases that may end their process before a run gives up. pytest-xdist would after a few."""

TIMEOUT = 300.0
"""Seconds that a case may take, where nobody says otherwise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_paths(parser)
    add_selection(parser)
    parser.add_argument("-k", metavar="EXPRESSION", help="select by words in case ids, as in pytest")
    parser.add_argument(
        "-m", metavar="EXPRESSION", help="select by markers (checks, devices, dtypes, tags), as in pytest"
    )
    parser.add_argument("-n", metavar="PROCESSES", type=_processes, default="1", help="processes, or auto; default 1")
    parser.add_argument(
        "--in-process", action="store_true", help="run cases in this process, for debuggers: what ends it ends the run"
    )
    parser.add_argument(
        "-W", metavar="FILTER", action="append", default=[], help="what becomes of warnings, as in Python and pytest"
    )
    parser.add_argument("-x", action="store_true", help="stop at the first failure")
    parser.add_argument("--lf", action="store_true", help="run what failed last time")
    parser.add_argument("--report-json", metavar="FILE", help="write one record a case, also when interrupted")
    parser.add_argument("--junitxml", metavar="FILE", help="write a JUnit report")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help=f"end a case that takes longer; default {TIMEOUT:g}, 0: never"
    )
    parser.add_argument(
        "--memory", type=int, metavar="MIB", help="end a case whose process takes more; default: by what is available"
    )
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
    return _pytest(options, Settings.find())


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
        workers = None if options.in_process else Workers(_limits(options, settings))
        reporter = _Reporter(report, options, workers)
        with _terminated_as_interrupt():
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
    """Return the command line for pytest. No conftest.py is run: a folder of specs is data."""
    arguments = [
        "--opcheck-alone",
        "--rootdir",
        os.path.relpath(settings.root),
    ]  # relative: pytest replaces $NAME in it
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
        arguments += ["-n", options.n if options.n != "0" else "1", f"--max-worker-restart={MOST_CRASHES}"]
    arguments += ["--junitxml", options.junitxml] if options.junitxml else []
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
    paths = [_pytest_path(path) for path in options.paths]
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

    def __init__(self, report: Any, options: argparse.Namespace, workers: Workers | None) -> None:
        self.report = report
        self.options = options
        self.workers = workers
        self.start = time.monotonic()
        self.mistake: SpecError | None = None
        """Why there is nothing to run."""
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
        self._look_for_mistakes(config)

    def _look_for_mistakes(self, config: pytest.Config) -> None:
        """Load the specs and look at the selection, before any process is started. Workers load them themselves."""
        settings = Settings.find()
        options = argparse.Namespace(**vars(self.options))
        options.paths = [str(path) for path in config.stash[PLUGIN].requested]
        try:
            library = loaded(options, settings)
            selection(options, library)
            profiles = devices(options, settings)
        except SpecError as error:
            self.mistake = error
            raise pytest.UsageError from None
        if self.workers is not None:
            engine = options.engine or settings.engine
            self.workers.case_of = lambda name: _case(library, profiles, name, engine)

    def pytest_internalerror(self, excrepr: object) -> None:
        """Show what went wrong in pytest or a plugin of it."""
        print(excrepr, file=sys.stderr)

    def pytest_collection_finish(self, session: Any) -> None:
        """Start the progress bar; under pytest-xdist the controlling process learns the number from its workers."""
        if session.items and not hasattr(session.config, "workerinput"):
            self.begin(len(session.items))

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Start the progress bar under pytest-xdist; stop where names that specs mention do not exist."""
        if self.collect_errors:
            pytest.exit("a worker could not collect", returncode=2)
        if not self.total:
            self.begin(len(ids))

    def begin(self, total: int) -> None:
        """Start the progress bar."""
        self.total = total
        self.report.start(total)

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
        """Print failures and summary, and return opcheck's exit code for pytest's. Raises SpecError, RequestError."""
        self.report.stop()
        if self.mistake is not None:
            raise self.mistake
        if self.collect_errors:
            raise RequestError(list(dict.fromkeys(self.collect_errors)))
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise RequestError(["the request selects no case"])
        if code == pytest.ExitCode.USAGE_ERROR:
            return 2  # pytest has said why
        self.report.failures()
        self.report.summary(time.monotonic() - self.start, troubles(self.config))
        return self._exit_code(code, len(self.report.records))

    def _exit_code(self, code: int, done: int) -> int:
        say = self.report.console.print
        if self.options.x and self.report.has_failed:
            say(f"stopped at a failure, after {done} of {self.total} cases")
            return 1
        if code == pytest.ExitCode.INTERRUPTED:
            say(f"interrupted after {done} of {self.total} cases")
            return 2
        if done < self.total:
            say(f"incomplete: {done} of {self.total} cases have an outcome")
            return code if code > 1 else 2
        if self.report.has_failed:
            return 1
        return code if code in (0, 1) else 2


def _case(library: Library, profiles: list[DeviceProfile], name: str, engine: str) -> Case | None:
    """Return the case of an id, with the expectations that hold under an engine."""
    about = (operator for operator in library if name.startswith(operator.id))
    for case in plan(Library(tuple(about)), profiles):
        if case.id == name:
            return replace(case, expectations=tuple(e for e in case.expectations if e.when.engine in (None, engine)))
    return None


class _terminated_as_interrupt:
    """Within it, SIGTERM ends a run like Ctrl-C does: reports are written."""

    def __enter__(self) -> None:
        def interrupt(*_: object) -> None:
            signal.raise_signal(signal.SIGINT)

        self.before: Any = None
        with suppress(ValueError):  # only the main thread may set handlers
            self.before = signal.signal(signal.SIGTERM, interrupt)

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGTERM, self.before)
