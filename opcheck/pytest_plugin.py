"""The pytest plugin: collects spec files, runs their cases as items, and carries outcomes to the reports."""

from __future__ import annotations

import dataclasses
import gc
import re
from collections.abc import Generator, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opcheck.parametrize import cases

if TYPE_CHECKING:
    from opcheck.plan import Case, Selection
    from opcheck.pytest_protocol import OneStep
    from opcheck.run import Outcome, OutcomeKind
    from opcheck.run.session import RunSession
    from opcheck.spec import Library, Operator, Settings
    from opcheck.spec.catalogue import Catalogue
    from opcheck.spec.device import DeviceProfile

__all__ = ["cases"]

OVERRIDES = ("eps", "atol", "rtol", "nondeterminism", "fast_mode", "raise_exception", "jacobian")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare options. All begin with --opcheck, so that none collides with those of a project's own conftest."""
    group = parser.getgroup("opcheck", "opcheck: tests of operators from TOML specs")
    many = {"action": "append", "default": [], "metavar": "NAMES"}
    group.addoption("--opcheck-device", **many, help="devices to test on, separated by commas; default: all present")
    group.addoption("--opcheck-operator", **many, help="operators: ids, names or glob patterns")
    group.addoption("--opcheck-check", **many, help="checks to run")
    group.addoption("--opcheck-dtype", **many, help="dtypes or groups of dtypes")
    group.addoption("--opcheck-tag", **many, help="tags of operators")
    group.addoption("--opcheck-specs", **many, help="files and folders of specs, besides those of [tool.opcheck]")
    group.addoption("--opcheck-engine", choices=["batched", "torch"], help="what computes derivative evidence")
    group.addoption("--opcheck-report-json", metavar="FILE", help="write one record a case")
    for name in ("eps", "atol", "rtol", "nondeterminism"):
        group.addoption(f"--opcheck-{name}", type=float, metavar="X", help=f"use this {name} for all derivatives")
    group.addoption(
        "--opcheck-jacobian",
        choices=["full", "projected", "auto"],
        help="whole Jacobians, random projections, or by size",
    )
    group.addoption("--opcheck-fast-mode", action="store_true", default=None, help="fast_mode of torch's gradcheck")
    group.addoption(
        "--opcheck-no-raise-exception", action="store_false", dest="opcheck_raise_exception", default=None,
        help="do not ask torch's gradcheck for explanations",
    )  # fmt: skip
    parser.addini(
        "opcheck_specs", "files and folders of specs, besides those of [tool.opcheck]", type="paths", default=[]
    )


class Plugin:
    """What one pytest run knows about its specs."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.selected: dict[Path, set[str]] = {}
        """Case ids asked for on the command line as FILE::ID, by file."""
        self.described: dict[str, Operator] = {}
        """The operators collected so far, by id."""
        self._marks: dict[str, pytest.MarkDecorator] = {}

    @cached_property
    def settings(self) -> Settings:
        """The project's settings."""
        from opcheck.spec import Settings, SpecError

        try:
            return Settings.find(self.config.invocation_params.dir)
        except SpecError as error:
            raise pytest.UsageError(str(error)) from None

    @cached_property
    def catalogue(self) -> Catalogue:
        """The TOML files of the session."""
        from opcheck.spec.catalogue import Catalogue

        return Catalogue()

    @cached_property
    def folders(self) -> list[Path]:
        """The files and folders of specs that the project names."""
        named = [*self.settings.spec_paths(), *self.config.getini("opcheck_specs"), *self.names("specs")]
        return [(self.config.invocation_params.dir / path).resolve() for path in named]

    @cached_property
    def given(self) -> list[Path]:
        """What the command line names, but folders around the whole project: those mean its tests, of whatever kind."""
        if self.config.args_source != pytest.Config.ArgsSource.ARGS:
            return []
        base = self.config.invocation_params.dir
        paths = [(base / str(arg).split("::")[0]).resolve() for arg in self.config.args]
        return [path for path in paths if path != base and path not in (self.config.rootpath, *base.parents)]

    @cached_property
    def devices(self) -> list[DeviceProfile]:
        """The devices to plan for. Raises UsageError for unknown names."""
        from opcheck.cli.selecting import unknown_devices
        from opcheck.plan import default_devices
        from opcheck.spec.device import profiles

        known = profiles(self.settings.device_folders())
        names = self.names("device")
        mistakes = unknown_devices(names, known)
        if mistakes:
            raise pytest.UsageError("\n".join(mistakes))
        return [known[name] for name in names] or default_devices(known.values())

    @cached_property
    def selection(self) -> Selection:
        """What the options select."""
        from opcheck.plan import Selection

        return Selection(self.names("operator"), self.names("check"), self.names("dtype"), self.names("tag"))

    @cached_property
    def session(self) -> RunSession:
        """What running shares. The first use imports torch."""
        from opcheck.run.session import RunSession

        option = self.config.option
        overrides = {name: getattr(option, f"opcheck_{name}") for name in OVERRIDES}
        given = {name: value for name, value in overrides.items() if value is not None}
        return RunSession.start(self.settings, option.opcheck_engine, **given)

    @cached_property
    def one_step(self) -> OneStep | None:
        """What runs cases in one step, if so. Asked when the first one runs: by then all plugins are there."""
        from opcheck.pytest_protocol import one_step

        return one_step(self.config)

    def names(self, option: str) -> tuple[str, ...]:
        """Return the values of an option that takes names separated by commas, once or several times."""
        values = getattr(self.config.option, f"opcheck_{option}")
        return tuple(dict.fromkeys(name.strip() for value in values for name in value.split(",") if name.strip()))

    def root_of(self, path: Path) -> Path | None:
        """Return the spec folder that makes a TOML file a spec; None where it is none.

        Below the folders of the project every TOML file is a spec, and so is a file given by name. In another folder
        given on the command line a TOML file is a spec where it looks like one.
        """
        from opcheck.spec.load import builtin_folder

        path = path.resolve()
        if builtin_folder() in path.parents and any(root in (path, *path.parents) for root in self.given):
            return builtin_folder()
        for root in self.folders:
            if path == root or root in path.parents:
                return root if root.is_dir() else root.parent
        for root in self.given:
            if path == root:
                return root.parent
            if root in path.parents and looks_like_specs(path, self.catalogue):
                return root
        return None

    def load(self, path: Path) -> Library:
        """Load one spec file. Raises SpecError with all its mistakes."""
        from opcheck.plan import audit
        from opcheck.spec import Problem, SpecError
        from opcheck.spec.load import Loader

        loader = Loader(self.settings, self.catalogue)
        loader.add(path, self.root_of(path))
        library = loader.sound()
        problems: list[Problem] = audit(library, loader.devices.values()) if loader.devices is not None else []
        for operator in library:
            first = self.described.setdefault(operator.id, operator)
            if first.document.file != operator.document.file:
                what = f'operator "{operator.id}" is described twice; first at {first.document.file}:{first.line}'
                problems.append(operator.problem(("name",), what, "another name, or a key variant"))
        if loader.problems or problems:
            raise SpecError([*loader.problems, *problems])
        return library

    def mark(self, name: str, about: str = "a check, device, dtype or tag") -> pytest.MarkDecorator:
        """Return a mark, which is made known to pytest."""
        if name not in self._marks:
            self.config.addinivalue_line("markers", f"{name}: opcheck: {about}")
            self._marks[name] = getattr(pytest.mark, name)
        return self._marks[name]


PLUGIN = pytest.StashKey[Plugin]()


def looks_like_specs(path: Path, catalogue: Catalogue) -> bool:
    """Tell whether a TOML file, perhaps a broken one, describes an operator by a dotted name."""
    from opcheck.spec import SpecError

    try:
        text = catalogue.content(path).decode("utf-8", errors="replace")
    except SpecError:
        return False
    return all(re.search(pattern, text, re.MULTILINE) for pattern in SIGNS)


SIGNS = (r"^\s*\[\[\s*operator\s*\]\]", r"""^\s*["']?name["']?\s*=\s*["']\w+\.""")
"""What every spec file has, and few other TOML files have."""


def pytest_configure(config: pytest.Config) -> None:
    """Set up the plugin: ids given on the command line, the selection, the reports."""
    plugin = config.stash[PLUGIN] = Plugin(config)
    # pytest splits FILE::ID at :: and at [, which occur in ids too; so ids are kept apart, and the file is collected.
    for index, arg in enumerate(config.args):
        file, separator, wanted = str(arg).partition(".toml::")
        if separator:
            path = (config.invocation_params.dir / f"{file}.toml").resolve()
            plugin.selected.setdefault(path, set()).add(wanted)
            config.args[index] = f"{file}.toml"
    if config.option.markers:
        from opcheck.plan import check_kinds

        for kind in check_kinds().values():
            plugin.mark(kind.name, kind.claim)
    _refuse_unknown_names(plugin)
    if not hasattr(config, "workerinput") and (config.option.xmlpath or config.option.opcheck_report_json):
        from opcheck.report.from_pytest import register_reports

        register_reports(config)


def _refuse_unknown_names(plugin: Plugin) -> None:
    """Raise UsageError for checks, dtypes and devices that do not exist: they would select nothing without a word."""
    if plugin.names("device"):
        plugin.devices  # noqa: B018
    if plugin.names("check") or plugin.names("dtype"):
        from opcheck.spec import Library

        named = dataclasses.replace(plugin.selection, operators=(), tags=())
        mistakes = named.mistakes(Library(()))
        if mistakes:
            raise pytest.UsageError("\n".join(mistakes))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take TOML files that are specs."""
    if file_path.suffix != ".toml" or file_path.name == "pyproject.toml":
        return None
    root = parent.config.stash[PLUGIN].root_of(file_path)
    return None if root is None else SpecCollector.from_parent(parent, path=file_path)


class SpecCollector(pytest.File):
    """A spec file."""

    def collect(self) -> list[pytest.Item]:
        """Return its selected cases. Never imports torch."""
        from opcheck.pytest_protocol import without_garbage_collection

        with without_garbage_collection():  # all of it stays, and to look for garbage takes a quarter of the time
            return list(self._items())

    def _items(self) -> Iterator[pytest.Item]:
        from opcheck.plan import plan

        plugin = self.config.stash[PLUGIN]
        library = plugin.load(self.path)
        wanted = plugin.selected.get(self.path.resolve())
        found = [case for case in plan(library, plugin.devices, plugin.selection) if not wanted or case.id in wanted]
        for name in sorted((wanted or set()) - {case.id for case in found}):
            from opcheck.spec.problems import nearest

            near = nearest(name, [case.id for case in plan(library, plugin.devices)])
            hint = f'; did you mean "{near}"?' if near else ""
            raise pytest.UsageError(f'{self.nodeid} has no case "{name}"{hint}')
        for case in found:
            # As text, which is what --lf remembers: put together from parts it would not be the same to pytest.
            yield CaseItem.from_parent(self, name=case.id, nodeid=f"{self.nodeid}::{case.id}", case=case)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show mistakes of a spec as lines, without a traceback."""
        from opcheck.spec import SpecError

        if isinstance(excinfo.value, (SpecError, pytest.UsageError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class CaseFailed(Exception):
    """Carries a bad outcome through pytest."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class CaseItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case
        self.outcome: Outcome | None = None
        plugin = self.config.stash[PLUGIN]
        for name in (case.check, case.device.name, case.dtype, *case.operator.spec.tags):
            self.add_marker(plugin.mark(name))
        if plugin.settings.timeout is not None and not getattr(self.config.option, "timeout", None):
            self.add_marker(pytest.mark.timeout(plugin.settings.timeout))

    def runtest(self) -> None:
        """Run the case, and tell pytest what came of it."""
        from opcheck.run.runner import run

        self.outcome = None  # of an earlier try: other plugins may run an item again
        outcome = self.outcome = run(self.case, self.config.stash[PLUGIN].session)
        if outcome.outcome == "skipped":
            pytest.skip(outcome.reason)
        if outcome.outcome == "xfailed":
            pytest.xfail(outcome.reason)
        if outcome.is_bad:
            raise CaseFailed(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the message of the outcome."""
        if isinstance(excinfo.value, CaseFailed):
            return excinfo.value.outcome.message or excinfo.value.outcome.reason
        if isinstance(excinfo.value, pytest.fail.Exception):  # a time-out: where it struck says little
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place of the operator in its spec."""
        return self.path, self.case.operator.line - 1, self.case.id

    def record_of(self, report: pytest.TestReport) -> dict[str, Any]:
        """Return the record for reports; also where the case did not come to an outcome of its own."""
        from opcheck.run.outcome import Outcome, rerun_command

        if self.outcome is not None:
            return self.outcome.record()
        text = report.longreprtext.strip()
        reason = text.splitlines()[-1] if text else f"{report.when} did not finish"
        kind: OutcomeKind = "skipped" if report.skipped else "error"
        message = f"{text}\n\nrun just this: {rerun_command(self.case.operator.document.file, self.case.id)}"
        outcome = Outcome.of(self.case, kind, reason, message)  # a time-out, a fixture of the project, an interrupt
        return dataclasses.replace(outcome, seconds=report.duration).record()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Import torch before the first case, which would otherwise pay for it with its own time."""
    if not session.config.option.collectonly and any(isinstance(item, CaseItem) for item in session.items):
        from opcheck.pytest_protocol import without_garbage_collection

        # torch and the items stay until the end. To look for garbage among them costs a tenth of the time of a run.
        with without_garbage_collection():
            session.config.stash[PLUGIN].session  # noqa: B018
            gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End at once: pytest and Python would look for garbage among all that goes with the process, for half a second."""
    items = getattr(session, "items", None)
    if items and all(isinstance(item, CaseItem) for item in items):
        gc.freeze()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a case in one step, where that is possible."""
    if not isinstance(item, CaseItem):
        return None
    runner = item.config.stash[PLUGIN].one_step
    if runner is None or not runner.takes(item):
        return None
    runner.run(item, nextitem)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the record of a case to its report, which pytest-xdist carries to the controlling process."""
    report = yield
    if isinstance(item, CaseItem) and (report.when == "call" or (report.when == "setup" and not report.passed)):
        report.__dict__["opcheck"] = item.record_of(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once for each absent device that its cases were skipped."""
    if terminalreporter.stats.get("skipped"):
        from opcheck.report.from_pytest import absent_devices

        for reason, count in absent_devices(terminalreporter.stats["skipped"]):
            terminalreporter.write_line(f"opcheck: {count} cases skipped: {reason}", yellow=True)
