"""The cases that a command is about."""

from __future__ import annotations

import argparse
from pathlib import Path

from opcheck.cli.paths import spec_paths
from opcheck.cli.request import RequestError
from opcheck.devices.presence import UnknownDevice, chosen_devices
from opcheck.planning import Case, Selection, load, plan
from opcheck.planning.shards import NO_SHARD, Division, Shard
from opcheck.report.durations import read_durations
from opcheck.settings import Settings
from opcheck.spec import Library
from opcheck.spec.device import DeviceProfile
from opcheck.text import separated


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings of the project, with the device profiles that a command is given. Raises SpecError."""
    return Settings.find(profiles=options.device_profile)


def loaded(options: argparse.Namespace, settings: Settings) -> Library:
    """Return the operators of a command. Raises SpecError with all the mistakes in its specs."""
    return load(spec_paths(options, settings), settings)


def devices(options: argparse.Namespace, settings: Settings) -> list[DeviceProfile]:
    """Return the devices of a command: those it names, or all that may be present.

    Raises RequestError for unknown names.
    """
    try:
        return chosen_devices(options.device, settings)
    except UnknownDevice as error:
        raise RequestError(str(error).splitlines()) from None


def selection(options: argparse.Namespace, settings: Settings, library: Library) -> Selection:
    """Return the selection of a command. Raises RequestError for unknown names."""
    derive = getattr(options, "derive", None) or settings.derive
    names = {key: separated(getattr(options, key)) for key in ("operator", "check", "dtype", "tag")}
    chosen = Selection(names["operator"], names["check"], names["dtype"], names["tag"], derive)
    mistakes = chosen.mistakes(library)
    if mistakes:
        raise RequestError(mistakes)
    return chosen


def planned(options: argparse.Namespace, settings: Settings) -> list[Case]:
    """Return the cases of a command, those of its shard.

    Raises SpecError for mistakes in its specs or durations, RequestError for unknown names.
    """
    library = loaded(options, settings)
    cases = plan(library, devices(options, settings), selection(options, settings, library))
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
