"""The pytest plugin: collects spec files, runs their cases as items, and carries outcomes to the reports."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Generator, Iterable
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opcheck.parametrize import cases

if TYPE_CHECKING:
    from opcheck.plan import Case, Selection
    from opcheck.run import Outcome, OutcomeKind
    from opcheck.run.session import RunSession
    from opcheck.run.worker import Worker
    from opcheck.spec import Library, Operator, Problem, Settings
    from opcheck.spec.catalogue import Catalogue
    from opcheck.spec.device import DeviceProfile

__all__ = ["cases"]

OF_LOGGING = (
    "log_auto_indent", "log_cli", "log_cli_date_format", "log_cli_format", "log_cli_level", "log_date_format",
    "log_file", "log_file_date_format", "log_file_format", "log_file_level", "log_file_mode", "log_format", "log_level",
)  # fmt: skip
"""Settings of pytest's own plugin for logs, which takes up all loggers of torch in each phase of a case."""

OVERRIDES = ("eps", "atol", "rtol", "nondeterminism", "fast_mode", "raise_exception", "jacobian")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare options. All begin with --opcheck, so that none collides with those of a project's own conftest."""
    group = parser.getgroup("opcheck", "opcheck: tests of operators from TOML specs")
    many = {"action": "append", "default": [], "metavar": "NAMES"}
    group.addoption("--opcheck-device", **many, help="devices to test on, separated by commas; default: all present")
    group.addoption("--opcheck-operator", **many, help="operators: ids, names or glob patterns")
    group.addoption("--opcheck-check", **many, help="checks to run")
    group.addoption("--opcheck-dtype", **many, help="dtypes or groups of dtypes")
    group.addoption("--opcheck-tag", **many, help="tags of operators")
    group.addoption("--opcheck-specs", **many, help="files and folders of specs, besides those of [tool.opcheck]")
    group.addoption(
        "--opcheck-alone",
        action="store_true",
        help="run nothing but specs, whatever addopts say, but for plugins (-p) and warnings (-W): for `opcheck run`",
    )
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
    if pluginmanager.is_blocked("logging"):  # by `opcheck run`: a project's settings for it are no mistakes
        for name in OF_LOGGING:
            parser.addini(name, "unused: nothing is logged here")
    parser.addini(
        "opcheck_specs", "files and folders of specs, besides those of [tool.opcheck]", type="paths", default=[]
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Leave out of addopts what could select other tests than those that `opcheck run` was asked for."""
    own = list(early_config.invocation_params.args)
    if "--opcheck-alone" in own:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("-p", action="append", default=[])
        parser.add_argument("-W", "--pythonwarnings", action="append", default=[])
        kept, _ = parser.parse_known_args(args[: len(args) - len(own)])
        args[:] = [*(f"-p{name}" for name in kept.p), *(f"-W{filter}" for filter in kept.pythonwarnings), *own]


class Plugin:
    """What one pytest run knows about its specs."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.selected: dict[Path, set[str]] = {}
        """Case ids asked for on the command line as FILE::ID, by file."""
        self.requested: list[Path] = []
        """The files and folders that pytest was asked for."""
        self.is_partial = False
        """Whether pytest was given a folder around one of them in its place."""
        self.described: dict[str, Operator] = {}
        """The operators collected so far, by id."""
        self._marks: dict[str, pytest.MarkDecorator] = {}
        self._prepared: set[str] = set()
        """Ids of the operators whose modules have been imported."""
        self.worker: Worker | None = None
        """This process, where it is a worker of `opcheck run`."""

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
        base = self.config.invocation_params.dir
        values = self.config.option.opcheck_specs
        whole = [value for value in values if (base / value).exists()]  # a comma in it is part of its name
        several = _separated(value for value in values if value not in whole)
        named = [*self.settings.spec_paths(), *self.config.getini("opcheck_specs"), *whole, *several]
        folders = [(base / path).resolve() for path in named]
        if not folders and self.config.option.opcheck_alone:
            folders = [path for path in [base / "specs"] if path.is_dir()]
        return folders

    @cached_property
    def given(self) -> list[Path]:
        """What the command line names, but folders around the whole project: those mean its tests, of whatever kind."""
        if self.config.args_source != pytest.Config.ArgsSource.ARGS:
            return []
        base = self.config.invocation_params.dir
        return [path for path in self.requested if path not in (base, self.config.rootpath, *base.parents)]

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

    def prepare(self, cases: Iterable[Case]) -> list[Problem]:
        """Import what the operators of cases are defined in. Returns a mistake for each name that names nothing."""
        operators = {case.operator.id: case.operator for case in cases}
        fresh = [operator for name, operator in operators.items() if name not in self._prepared]
        self._prepared.update(operators)
        if self.worker is not None:
            self.worker.imports(", ".join(operator.variants[0].path for operator in fresh))
        return self.session.prepare(fresh)

    def look_up(self, cases: Iterable[Case]) -> None:
        """Import what the operators of cases are defined in. Raises SpecError for names that name nothing."""
        from opcheck.spec import SpecError

        problems = self.prepare(cases)
        if problems:
            raise SpecError(problems)

    def names(self, option: str) -> tuple[str, ...]:
        """Return the values of an option that takes names separated by commas, once or several times."""
        return _separated(getattr(self.config.option, f"opcheck_{option}"))

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
        from opcheck.spec import SpecError
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


def _separated(values: Iterable[str]) -> tuple[str, ...]:
    """Return the names that are separated by commas in some values, each once."""
    return tuple(dict.fromkeys(name.strip() for value in values for name in value.split(",") if name.strip()))


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
    if config.option.opcheck_alone and config.args_source != pytest.Config.ArgsSource.ARGS:
        config.args[:] = map(str, plugin.folders)
        if not config.args:
            from opcheck.cli.paths import NO_SPECS

            raise pytest.UsageError(NO_SPECS)
    _take_arguments_apart(plugin)
    lifeline = getattr(config, "workerinput", {}).get("opcheck_lifeline")
    if lifeline is not None:
        from opcheck.run.worker import Worker

        plugin.worker = Worker(Path(lifeline))
    if config.option.markers:
        from opcheck.plan import check_kinds

        for kind in check_kinds().values():
            plugin.mark(kind.name, kind.claim)
    if not config.option.opcheck_alone:  # `opcheck run` has its own words for them
        _refuse_unknown_names(plugin)
    asked = config.option.opcheck_report_json or getattr(config.option, "xmlpath", None)  # without -p no:junitxml
    if asked and not hasattr(config, "workerinput"):
        from opcheck.report.from_pytest import register_reports

        register_reports(config)


def _take_arguments_apart(plugin: Plugin) -> None:
    """Keep ids apart from files, and let pytest see of paths what it does not split: at :: and [, which occur in both.

    Where that is a folder around what was asked for, the rest of it is ignored: see pytest_ignore_collect.
    """
    config, base = plugin.config, plugin.config.invocation_params.dir
    for index, arg in enumerate(map(str, config.args)):
        path = base / arg
        if "::" in str(path) or "[" in str(path):
            from opcheck.cli.paths import split_id, unsplit

            file, wanted = split_id(arg, base)
            path = (base / file).resolve()
            if wanted:
                plugin.selected.setdefault(path, set()).add(wanted)
            if wanted or path.exists():
                config.args[index] = seen = unsplit(file, base)
                plugin.is_partial |= (base / seen).resolve() != path
        asked = path if path.exists() else base / arg.split("::")[0]
        plugin.requested.append(asked.resolve())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore what nobody asked for, where pytest was given a folder around it."""
    plugin = config.stash[PLUGIN]
    if not plugin.is_partial:
        return None
    here = collection_path.resolve()
    asked = any(path in (here, *here.parents) or here in path.parents for path in plugin.requested)
    return None if asked else True


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
    if root is None:
        return None
    # Also for specs outside the project: pytest would name them by the folder that it was given, and not find them.
    nodeid = os.path.relpath(file_path, parent.config.rootpath).replace(os.sep, "/")
    return SpecCollector.from_parent(parent, path=file_path, nodeid=nodeid)


class SpecCollector(pytest.File):
    """A spec file."""

    def collect(self) -> list[pytest.Item]:
        """Return its selected cases. Never imports torch."""
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
        if self.config.option.opcheck_alone:
            plugin.look_up(found)
        # The node id as text, which is what --lf remembers: put together from parts it would not be the same to pytest.
        return [CaseItem.from_parent(self, name=c.id, nodeid=f"{self.nodeid}::{c.id}", case=c) for c in found]

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
        timed = plugin.worker is not None or getattr(self.config.option, "timeout", None)  # from outside, or for all
        if plugin.settings.timeout is not None and not timed:
            self.add_marker(pytest.mark.timeout(plugin.settings.timeout))

    def runtest(self) -> None:
        """Run the case, and tell pytest what came of it."""
        from opcheck.run.runner import run
        from opcheck.text import printable

        self.outcome = None  # of an earlier try: other plugins may run an item again
        plugin = self.config.stash[PLUGIN]
        busy = nullcontext() if plugin.worker is None else plugin.worker.busy(self.nodeid, plugin.session.spoilt_by)
        with busy:
            outcome = self.outcome = run(self.case, plugin.session)
        if outcome.outcome == "skipped":
            pytest.skip(printable(outcome.reason))
        if outcome.outcome == "xfailed":
            pytest.xfail(printable(outcome.reason))
        if outcome.is_bad:
            # --pdb stops where the operator raised, if it did.
            cause = plugin.session.cause if self.config.option.usepdb else None
            raise CaseFailed(outcome).with_traceback(cause.__traceback__ if cause else None)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the message of the outcome."""
        from opcheck.text import printable, well_formed

        if isinstance(excinfo.value, CaseFailed):
            outcome = excinfo.value.outcome
            return printable(outcome.message or outcome.reason, lines=True, most=None)
        if isinstance(excinfo.value, pytest.fail.Exception):  # a time-out: where it struck says little
            return str(excinfo.value)
        shown = super().repr_failure(excinfo, style)
        text = well_formed(str(shown))
        return shown if text == str(shown) else text  # which pytest-xdist could not send

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place of the operator in its spec.

        With a name that no node id ends in: `pytest -v` would write the dots of it as `::`, in what should be an id.
        """
        from opcheck.text import printable

        operator = self.case.operator
        place = printable(f"{operator.document.file}:{operator.line}")
        return self.path, operator.line - 1, f"{self.case.id} ({place})"

    def record_of(self, report: pytest.TestReport) -> dict[str, Any]:
        """Return the record for reports; also where the case did not come to an outcome of its own."""
        from opcheck.run.outcome import Outcome, rerun_command

        if self.outcome is not None and (self.outcome.is_bad or not report.failed):
            return self.outcome.record()
        text = report.longreprtext.strip()
        reason = text.splitlines()[-1] if text else f"{report.when} did not finish"
        kind: OutcomeKind = "skipped" if report.skipped else "error"
        message = f"{text}\n\nrun just this: {rerun_command(self.case.operator.document.file, self.case.id)}"
        outcome = Outcome.of(self.case, kind, reason, message)  # a time-out, a fixture of the project, an interrupt
        return dataclasses.replace(outcome, seconds=report.duration).record()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Import torch, and what specs name, before the first case, which would otherwise pay for it with its own time."""
    cases = [item.case for item in session.items if isinstance(item, CaseItem)]
    if cases and not session.config.option.collectonly:
        plugin = session.config.stash[PLUGIN]
        plugin.prepare(cases)
        if plugin.worker is not None:
            plugin.worker.settle()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker of `opcheck run` end at once."""
    plugin = session.config.stash.get(PLUGIN, None)
    if plugin is not None and plugin.worker is not None:
        plugin.worker.leave()


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """Say what plain pytest cannot contain."""
    if any(isinstance(item, CaseItem) for item in items) and not hasattr(config, "workerinput"):
        return (
            "opcheck: cases run in this process, which an operator that crashes, exits or hangs takes with it; "
            "`opcheck run` contains it"
        )
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the record of a case to its report, which pytest-xdist carries to the controlling process.

    A set-up or tear-down that fails has a record of its own, which takes the place of that of the case.
    """
    report = yield
    if isinstance(item, CaseItem) and (report.when == "call" or not report.passed):
        report.__dict__["opcheck"] = item.record_of(report)
    if isinstance(item, CaseItem) and report.sections:
        from opcheck.text import well_formed

        report.sections = [(title, well_formed(text)) for title, text in report.sections]  # pytest-xdist sends them
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once for each absent device that its cases were skipped, and what is wrong with the reports."""
    if terminalreporter.stats.get("skipped") or terminalreporter.config.pluginmanager.hasplugin("opcheck_reports"):
        from opcheck.report.from_pytest import absent_devices, troubles
        from opcheck.text import printable

        for reason, count in absent_devices(terminalreporter.stats.get("skipped", ())):
            terminalreporter.write_line(f"opcheck: {count} cases skipped: {printable(reason)}", yellow=True)
        for line in troubles(terminalreporter.config):
            terminalreporter.write_line(f"opcheck: {printable(line)}", red=True)
