"""Arguments that several commands share: which specs, and which of their cases."""

from __future__ import annotations

import argparse

from opcheck.cli.paths import spec_paths
from opcheck.cli.request import RequestError
from opcheck.plan import Case, Selection, default_devices, load_audited, plan
from opcheck.plan.selection import unknown_devices
from opcheck.spec import Library, Settings
from opcheck.spec.device import DeviceProfile, profiles


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


def loaded(options: argparse.Namespace, settings: Settings) -> Library:
    """Load the specs of a command, with every mistake that can be seen without torch. Raises SpecError."""
    return load_audited(spec_paths(options, settings), settings)


def devices(options: argparse.Namespace, settings: Settings) -> list[DeviceProfile]:
    """Return the devices of a command. Raises RequestError for unknown names."""
    known = profiles(settings.device_folders())
    wanted = names(options.device)
    mistakes = unknown_devices(wanted, known)
    if mistakes:
        raise RequestError(mistakes)
    return [known[name] for name in wanted] or default_devices(known.values())


def selection(options: argparse.Namespace, library: Library) -> Selection:
    """Return the selection of a command. Raises RequestError for names that do not exist."""
    chosen = Selection(*(names(getattr(options, key)) for key in ("operator", "check", "dtype", "tag")))
    mistakes = chosen.mistakes(library)
    if mistakes:
        raise RequestError(mistakes)
    return chosen


def planned(options: argparse.Namespace, settings: Settings) -> list[Case]:
    """Return the cases of a command."""
    library = loaded(options, settings)
    return plan(library, devices(options, settings), selection(options, library))
