"""Arguments that several commands share: which specs, and which of their cases."""

from __future__ import annotations

import argparse
from pathlib import Path

from opcheck.plan import Case, Selection, audit, default_devices, plan
from opcheck.spec import Library, Problem, Settings, SpecError, load
from opcheck.spec.device import DeviceProfile, profiles
from opcheck.spec.problems import nearest


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument for specs."""
    parser.add_argument(
        "paths", nargs="*", metavar="SPEC",
        help="spec files and folders, or builtin (the shipped library); default: those of [tool.opcheck] in "
        "pyproject.toml, else specs/, else builtin",
    )  # fmt: skip


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that select cases."""
    group = parser.add_argument_group("selection", "names separated by commas; an option may be repeated")
    for name, about in (
        ("device", "devices; default: all present"),
        ("operator", "ids, names or glob patterns of operators"),
        ("check", "checks"),
        ("dtype", "dtypes or groups of dtypes"),
        ("tag", "tags of operators"),
    ):
        group.add_argument(f"--{name}", action="append", default=[], metavar="NAMES", help=about)


def names(values: list[str]) -> tuple[str, ...]:
    """Return the names that an option was given, in order, each once."""
    return tuple(dict.fromkeys(name.strip() for value in values for name in value.split(",") if name.strip()))


def spec_paths(options: argparse.Namespace, settings: Settings) -> list[Path]:
    """Return the files and folders that a command works on."""
    if options.paths:
        return [Path(path) for path in options.paths]
    if settings.specs:
        return settings.spec_paths()
    return [Path("specs") if Path("specs").is_dir() else Path("builtin")]


def loaded(options: argparse.Namespace, settings: Settings) -> Library:
    """Load the specs of a command, with every mistake that can be seen without torch. Raises SpecError."""
    library = load(spec_paths(options, settings), settings)
    if any(operator.spec.expect or operator.spec.tolerance.check for operator in library):
        problems = audit(library, profiles(settings.device_folders()).values())
        if problems:
            raise SpecError(problems)
    return library


def devices(options: argparse.Namespace, settings: Settings) -> list[DeviceProfile]:
    """Return the devices of a command. Raises SpecError for unknown names."""
    known = profiles(settings.device_folders())
    wanted = names(options.device)
    wrong = [name for name in wanted if name not in known]
    if wrong:
        raise refused(
            [
                Problem(
                    "--device", 1, 1, f'unknown device "{name}"', f"one of {', '.join(known)}", nearest(name, known)
                )
                for name in wrong
            ]
        )
    return [known[name] for name in wanted] or default_devices(known.values())


def selection(options: argparse.Namespace, library: Library) -> Selection:
    """Return the selection of a command. Raises SpecError for names that do not exist."""
    chosen = Selection(*(names(getattr(options, key)) for key in ("operator", "check", "dtype", "tag")))
    mistakes = chosen.mistakes(library)
    if mistakes:
        raise RequestError(mistakes)
    return chosen


def planned(options: argparse.Namespace, settings: Settings) -> list[Case]:
    """Return the cases of a command."""
    library = loaded(options, settings)
    return plan(library, devices(options, settings), selection(options, library))


class RequestError(SpecError):
    """A request that names something that does not exist: lines without a place in a file."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__([])
        self.args = ("\n".join(f"opcheck: {line}" for line in lines),)


def refused(problems: list[Problem]) -> RequestError:
    """Return problems of the command line, told without a place."""
    return RequestError([str(problem).split(":1:1: ", 1)[1] for problem in problems])
