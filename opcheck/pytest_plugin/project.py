"""The state of the plugin in one run of pytest: the project's settings, its specs, and the selection of cases."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opcheck.pytest_plugin.options import OPTIONS, overrides, selected
from opcheck.text import separated

if TYPE_CHECKING:
    from opcheck.planning import Case, Selection
    from opcheck.planning.left_out import Rule
    from opcheck.planning.shards import Shared
    from opcheck.running.outcome import Outcome, OutcomeKind
    from opcheck.running.session import RunSession
    from opcheck.running.worker import Worker
    from opcheck.settings import Settings
    from opcheck.spec import Library, Operator, Problem
    from opcheck.spec.device_profile import DeviceProfile
    from opcheck.spec.load import Catalogue

SENT = "opcheck"
"""The key of the data that the controlling process and the workers of pytest-xdist send to each other."""


class Plugin:
    """The state of the plugin in one run of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.command = ["pytest", *map(str, config.invocation_params.args)]
        self.selected: dict[Path, set[str]] = {}
        """The case ids requested on the command line as FILE::ID, by file."""
        self.requested: list[Path] = []
        """The files and folders requested on the command line."""
        self.is_partial = False
        """Whether pytest was given a parent folder in place of a requested path."""
        self.described: dict[str, Operator] = {}
        """The operators collected so far, by id."""
        self.left_out: Counter[Rule] = Counter()
        """The number of cases that each rule of a device profile or a spec leaves out."""
        self.planned: tuple[str, str] | None = None
        """Digests of the selected cases, including those of other shards, and of their specs; None until the cases are
        known."""
        self.shared: Shared | None = None
        """The numbers of selected cases in this and in other shards; None without a shard, or before collection."""
        self.refused = ""
        """Why the cases cannot be selected, or divided into shards by the given durations; empty if they can."""
        self.reports: Any = None
        """The `RunReports` of the run, in the controlling process, if a report is requested or by `opcheck run`."""
        self.troubles: list[str] = []
        """The problems with the reports of a finished run, one message each."""
        self.worker: Worker | None = None
        """This process, if it is a worker of `opcheck run`."""
        self.runs_elsewhere = False
        """Whether other processes run the cases, and this one only collects them."""
        from_controller = getattr(config, "workerinput", {}).get(SENT, {})
        self.absent: dict[str, str] = dict(from_controller.get("absent", {}))
        """Why devices cannot be used, by name, as other processes have found; an empty text for usable devices."""
        self.order: int | None = from_controller.get("order", config.option.opcheck_order)
        """The number of the random order of the cases. None: the order of the specs."""
        self.rootpath = Path(from_controller.get("root", config.rootpath))
        """The folder that node ids are relative to. pytest may find another one in a worker, whose arguments may name
        files that exist only since the controlling process has made them."""
        self._marks: dict[str, pytest.MarkDecorator] = {}
        self._prepared: set[str] = set()
        """The ids of the operators whose modules have been imported."""

    def take_arguments(self) -> None:
        """Split `FILE::ID` arguments into files and case ids, and give pytest only paths that it does not split.

        Such a path may be a parent folder of the requested path. Other files in it are ignored: see `is_requested`.
        """
        config, base = self.config, self.config.invocation_params.dir
        for index, arg in enumerate(map(str, config.args)):
            file, wanted = split_id(arg, base)
            path = (base / file).resolve()
            if wanted:
                self.selected.setdefault(path, set()).add(wanted)
            if wanted or path.exists():
                config.args[index] = seen = unsplit(file, base)
                self.is_partial |= (base / seen).resolve() != path
            self.requested.append(path if path.exists() else (base / arg.split("::")[0]).resolve())

    def is_requested(self, path: Path) -> bool:
        """Return whether a path was requested, or is above or below a requested path."""
        here = path.resolve()
        return any(path in (here, *here.parents) or here in path.parents for path in self.requested)

    @cached_property
    def settings(self) -> Settings:
        """The settings of the project. The first use imports its plugins. Raises UsageError for mistakes in them."""
        from opcheck.planning.kinds import load_plugins
        from opcheck.settings import Settings
        from opcheck.spec import SpecError

        try:
            profiles = self.config.option.opcheck_device_profile
            settings = Settings.find(self.config.invocation_params.dir, profiles)
            load_plugins(settings)
            return settings
        except SpecError as error:
            raise pytest.UsageError(str(error)) from None

    @cached_property
    def catalogue(self) -> Catalogue:
        """The TOML files read so far."""
        from opcheck.spec.load import Catalogue

        return Catalogue()

    @cached_property
    def folders(self) -> list[Path]:
        """The files and folders of specs that the project or an option names."""
        base = self.config.invocation_params.dir
        values = self.config.option.opcheck_specs
        whole = [value for value in values if (base / value).exists()]  # the path may contain commas
        several = separated(value for value in values if value not in whole)
        named = [*self.config.getini("opcheck_specs"), *whole, *several]
        if self.settings.specs or (self.config.option.opcheck_alone and not named):
            named = [*self.settings.spec_paths(), *named]
        return [(base / path).resolve() for path in named]

    def missing_specs(self) -> list[str]:
        """Return why files and folders of specs that the project or an option names cannot be collected."""
        from opcheck.spec import SpecError
        from opcheck.spec.document import shown

        try:
            self.settings.required_specs()
        except SpecError as error:
            return str(error).splitlines()
        what = "no such file or folder of specs, which opcheck_specs or --opcheck-specs names"
        return [f"{shown(path)}: {what}" for path in self.folders if not path.exists()]

    @property
    def is_used(self) -> bool:
        """Whether the settings of the project mention opcheck. Does not import pydantic, as `settings` does."""
        base = self.config.invocation_params.dir
        files = (folder / "pyproject.toml" for folder in (base, *base.parents))
        nearest = next(filter(Path.is_file, files), None)
        return nearest is not None and b"opcheck" in nearest.read_bytes()

    @cached_property
    def named_paths(self) -> list[Path]:
        """The paths on the command line, except the current folder and its parents, which mean all tests."""
        if self.config.args_source != pytest.Config.ArgsSource.ARGS:
            return []
        base = self.config.invocation_params.dir
        return [path for path in self.requested if path not in (base, *base.parents)]

    @cached_property
    def devices(self) -> list[DeviceProfile]:
        """The devices to plan for. Raises UsageError for unknown names, and for mistakes in profiles."""
        from opcheck.devices.presence import UnknownDevice, chosen_devices
        from opcheck.spec import SpecError

        try:
            return chosen_devices(self.config.option.opcheck_device, self.settings)
        except (UnknownDevice, SpecError) as error:
            raise pytest.UsageError(str(error)) from None

    def ask_devices(self) -> list[str]:
        """Probe devices in other processes, and store in `absent` why they cannot be used, so that workers need not.

        Devices with modules of their own are probed, and all devices that an option names, except the CPU. Return a
        message for each device that is named and absent.
        """
        from opcheck.devices.presence import ask, not_present, own_modules

        named = self.names("device")
        chosen = [one for one in self.devices if own_modules(one) or (named and one.device_string != "cpu")]
        answers = ask(chosen, self.settings)
        self.absent = {name: "" if one.present else one.reason for name, one in answers.items()}
        return [not_present(name, why) for name, why in self.absent.items() if why and named]

    @cached_property
    def selection(self) -> Selection:
        """The selection of cases by options."""
        return selected(self.config.option, self.settings, "opcheck_")

    def unknown_operators(self) -> str:
        """Return why options name operators or tags that no collected spec has; empty if they do not."""
        if not self.described or not (self.selection.operators or self.selection.tags):
            return ""
        from opcheck.spec import Library

        return "\n".join(self.selection.mistakes(Library(tuple(self.described.values()))))

    def narrowing(self) -> str:
        """Return what may leave cases out, as written: the options of the selection, and a setting of `derive`."""
        is_alone, derive = self.config.option.opcheck_alone, self.selection.derive
        chosen = [option for option in OPTIONS if option.section == "selection"]
        given = {one.word if is_alone else one.pytest_word: ",".join(self.names(one.dest)) for one in chosen}
        given["derive ="] = "" if derive == "standard" else derive
        return ", ".join(f"{word} {value}" for word, value in given.items() if value)

    def left_out_lines(self) -> list[str]:
        """Return a line for each device on which rules leave out cases."""
        from opcheck.report.remarks import left_out_lines

        option = self.config.option
        narrowed = option.keyword or option.markexpr or getattr(option, "lf", False)  # with -p no:cacheprovider
        before = ", counted before -k, -m and --lf" if narrowed else ""
        before += ", over all shards" if option.opcheck_shard else ""
        return [f"{line}{before}" for line in left_out_lines(self.left_out)]

    def shared_lines(self) -> list[str]:
        """Return a line about the shard and one about the random order of the cases, if they apply."""
        lines = [] if self.shared is None else [str(self.shared)]
        if self.order is not None:
            word = "--order " if self.config.option.opcheck_alone else "--opcheck-order="
            lines.append(f"cases ran in random order; repeat it with {word}{self.order}")
        return lines

    @cached_property
    def seed(self) -> int:
        """The seed of the sample values: that of the command line, else that of the project."""
        own: int | None = self.config.option.opcheck_seed
        return self.settings.seed if own is None else own

    @cached_property
    def session(self) -> RunSession:
        """The session that cases run in. The first use imports torch."""
        from opcheck.checks.subject import no_note
        from opcheck.running.session import RunSession

        option = self.config.option
        name = re.fullmatch(r"gw(\d+)", getattr(self.config, "workerinput", {}).get("workerid", ""))
        number = int(name[1]) if name else None  # no match: this process is not a worker of pytest-xdist
        return RunSession(
            self.settings, option.opcheck_engine, own_process=self.worker is not None, number=number,
            absent=self.absent, reproduces=bool(option.opcheck_repro),
            note=no_note if self.worker is None else self.worker.note, **overrides(option),
        )  # fmt: skip

    def prepare(self, cases: Iterable[Case]) -> list[Problem]:
        """Import the modules of the devices and operators of cases.

        Returns a problem for each name that cannot be found.
        """
        if self._has_limits:
            from opcheck.running.process_state import preload_lazy_imports

            preload_lazy_imports()
        chosen = list(cases)
        operators = {case.operator.id: case.operator for case in chosen}
        fresh = [operator for name, operator in operators.items() if name not in self._prepared]
        self._prepared.update(operators)
        names = ", ".join(operator.variants[0].path for operator in fresh)
        with nullcontext() if self.worker is None else self.worker.imports(names):
            return self.session.prepare(fresh, {case.device.name: case.device for case in chosen}.values())

    @cached_property
    def _has_limits(self) -> bool:
        """Whether a time limit, or a warning turned into an error, may interrupt an import of torch during a case."""
        timed = self.worker is not None or getattr(self.config.option, "timeout", None) or self.settings.timeout
        filters = [*(self.config.option.pythonwarnings or ()), *self.config.getini("filterwarnings"), *sys.warnoptions]
        return bool(timed) or any(filter.startswith("error") for filter in filters)

    def details_of(self, device: DeviceProfile) -> dict[str, str]:
        """Return torch's description of a device, by the name of the device.

        Empty if this process runs no cases, and for the CPU, whose description is only a number of threads.
        """
        if "session" not in vars(self) or device.device_string.split(":")[0] == "cpu":
            return {}
        return {device.name: self.session.device(device).availability.detail}

    def names(self, option: str) -> tuple[str, ...]:
        """Return the names given to an option, which are separated by commas or by repeating the option."""
        return separated(getattr(self.config.option, f"opcheck_{option}"))

    def root_of(self, path: Path) -> Path | None:
        """Return the spec folder that a TOML file belongs to; None if the file is not a spec.

        All TOML files in the spec folders of the project are specs, and so are files on the command line. In other
        folders on the command line, a TOML file is a spec if it looks like one.
        """
        from opcheck.spec.load import builtin_folder

        path = path.resolve()
        if builtin_folder() in path.parents and any(root in (path, *path.parents) for root in self.named_paths):
            return builtin_folder()
        for root in self.folders:
            if path == root or root in path.parents:
                return root if root.is_dir() else root.parent
        for root in self.named_paths:
            if path == root:
                return root.parent
            if root in path.parents and looks_like_specs(path, self.catalogue):
                return root
        return None

    def load(self, path: Path) -> Library:
        """Load one spec file. Raises SpecError with all the mistakes in it."""
        from opcheck.planning.loading import examine
        from opcheck.spec import SpecError

        library, problems = examine([path], self.settings, self.catalogue, self.root_of(path))
        for operator in library:
            first = self.described.setdefault(operator.id, operator)
            if first.document.file != operator.document.file:
                problems.append(operator.again(first))
        if problems:
            raise SpecError(problems)
        return library

    def mark(self, name: str, about: str = "a check, device, dtype or tag") -> pytest.MarkDecorator:
        """Return the pytest mark of a name. The first call for a name registers the mark."""
        if name not in self._marks:
            self.config.addinivalue_line("markers", f"{name}: opcheck: {about}")
            self._marks[name] = getattr(pytest.mark, name)
        return self._marks[name]

    def case_of(self, nodeid: str) -> Case | None:
        """Return the case with a node id, planned as in the workers; None if the node id is not that of a case."""
        from opcheck.planning import plan

        file, name = split_id(nodeid, self.rootpath)
        path = self.rootpath / file
        if not name or self.root_of(path) is None:
            return None
        planned = plan(self.load(path), self.devices, self.selection, self.seed)
        return next((case for case in planned if case.id == name), None)

    def outcome_without_verdict(self, case: Case, kind: OutcomeKind, reason: str, text: str, seconds: float) -> Outcome:
        """Return the outcome of a case that was ended by a time-out, a fixture, an interrupt or a crash."""
        from opcheck.running.outcome import Outcome, rerun_of

        option = self.config.option
        rerun = rerun_of(case, self.settings, option.opcheck_engine, option.opcheck_derive)
        return Outcome.of(case, kind, reason, text).ended(seconds, rerun)


PLUGIN = pytest.StashKey[Plugin]()


def looks_like_specs(path: Path, catalogue: Catalogue) -> bool:
    """Return whether a TOML file, valid or not, describes an operator with a dotted name."""
    from opcheck.spec import SpecError

    try:
        text = catalogue.content(path).decode("utf-8", errors="replace")
    except SpecError:
        return False
    return all(re.search(pattern, text, re.MULTILINE) for pattern in SIGNS)


SIGNS = (r"^\s*\[\[\s*operator\s*\]\]", r"""^\s*["']?name["']?\s*=\s*["']\w+\.""")
"""Patterns found in every spec file, but in few other TOML files."""


def split_id(text: str, base: Path = Path()) -> tuple[str, str]:
    """Split `FILE::ID` into the file and the id. The id is empty if `text` is only a path.

    Names of folders may contain `::`: the text is split after the first file that exists.
    """
    if not (base / text).exists():
        files = [text[: match.end() - 2] for match in re.finditer(r"\.toml::", text)]
        for file in [file for file in files if (base / file).is_file()] or files[:1]:
            return file, text[len(file) + 2 :]
    return text, ""


def unsplit(path: str, base: Path) -> str:
    """Return a path, relative to `base`, that pytest does not split: it splits arguments at `[` and `::`.

    The result is the given path if possible, else its nearest parent folder that pytest does not split.
    """
    if not any(sign in str(base / path) for sign in SPLIT_AT):
        return path
    relative = os.path.relpath(base / path, base)
    while any(sign in relative for sign in SPLIT_AT):
        relative = os.path.dirname(relative) or os.curdir
    return relative


SPLIT_AT = ("[", "::")
