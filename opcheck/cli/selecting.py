"""The cases that a command is about: options that select them, and what they select."""

from __future__ import annotations

import argparse
from pathlib import Path

from opcheck.cli.paths import spec_paths
from opcheck.cli.request import RequestError
from opcheck.devices.presence import chosen_devices, mistaken_devices
from opcheck.plan import Case, Selection, load, plan
from opcheck.plan.shards import NO_SHARD, Division, Shard
from opcheck.report.durations import read_durations
from opcheck.settings import Settings
from opcheck.spec import Library
from opcheck.spec.device import DeviceProfile
from opcheck.text import separated


def add_profiles(parser: argparse.ArgumentParser) -> None:
    """Add the option that names files of device profiles."""
    parser.add_argument(
        "--device-profile", action="append", default=[], metavar="FILE",
        help="a further device profile; the option may be repeated",
    )  # fmt: skip


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings of the project, with the device profiles that a command is given. Raises SpecError."""
    return Settings.find(profiles=options.device_profile)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that select cases, and that of device profiles."""
    add_profiles(parser)
    group = parser.add_argument_group("selection", "names separated by commas; an option may be repeated")
    for name, about in (
        ("device", "devices; default: all present"),
        ("operator", "ids, names or glob patterns of operators"),
        ("check", "checks"),
        ("dtype", "dtypes or groups of dtypes"),
        ("tag", "tags of operators"),
    ):
        group.add_argument(f"--{name}", action="append", default=[], metavar="NAMES", help=about)


def add_shard(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a shard."""
    parser.add_argument(
        "--shard", type=lambda text: str(Shard.parse(text)), metavar="NUMBER/COUNT",
        help="one of COUNT shards of the selected cases, such as 3/8",
    )  # fmt: skip
    parser.add_argument(
        "--durations", metavar="FILE", help="the JSON report of an earlier run: shards then take equally long"
    )


def loaded(options: argparse.Namespace, settings: Settings) -> Library:
    """Return the operators of a command. Raises SpecError with all the mistakes in its specs."""
    return load(spec_paths(options, settings), settings)


def devices(options: argparse.Namespace, settings: Settings) -> list[DeviceProfile]:
    """Return the devices of a command: those it names, or all that may be present.

    Raises RequestError for unknown names.
    """
    mistakes = mistaken_devices(options.device, settings.profiles())
    if mistakes:
        raise RequestError(mistakes)
    return chosen_devices(separated(options.device), settings)


def selection(options: argparse.Namespace, library: Library) -> Selection:
    """Return the selection of a command. Raises RequestError for unknown names."""
    chosen = Selection(*(separated(getattr(options, key)) for key in ("operator", "check", "dtype", "tag")))
    mistakes = chosen.mistakes(library)
    if mistakes:
        raise RequestError(mistakes)
    return chosen


def planned(options: argparse.Namespace, settings: Settings) -> list[Case]:
    """Return the cases of a command, those of its shard.

    Raises SpecError for mistakes in its specs or durations, RequestError for unknown names.
    """
    library = loaded(options, settings)
    cases = plan(library, devices(options, settings), selection(options, library))
    if options.durations and not options.shard:
        raise RequestError([NO_SHARD])
    if not options.shard:
        return cases
    durations = read_durations(Path(options.durations)) if options.durations else None
    mistake = durations.mistake(cases) if durations and cases else ""
    if mistake:
        raise RequestError([mistake])
    division = Division(cases, Shard.parse(options.shard), durations)
    return [case for case in cases if division.takes(case)]
