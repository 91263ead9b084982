"""Arguments that several commands share, and the specs, devices and cases that they select."""

from __future__ import annotations

import argparse
import os
import re
from functools import partial
from pathlib import Path

from opcheck.cli.stdout import warn
from opcheck.devices.presence import UnknownDevice, ask, chosen_devices, not_present
from opcheck.planning import Selection, load
from opcheck.pytest_plugin.options import number, selected, whole_number
from opcheck.settings import LONGEST, NO_SPECS, Settings
from opcheck.spec import Library
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.problems import RequestError, SpecError


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument for specs."""
    parser.add_argument(
        "paths", nargs="*", metavar="SPEC", type=_path,
        help="spec files and folders, or builtin (the shipped library); default: those of [tool.opcheck] in "
        "pyproject.toml, else specs/",
    )  # fmt: skip


def _path(text: str) -> str:
    if not text:  # of an unset variable of a shell, say: it would mean the current folder
        raise argparse.ArgumentTypeError('"" is not a path; expected a spec file or folder')
    return text


def add_fail_under(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--fail-under`. what: the quantity that the command measures, such as "share"."""
    share = partial(number, least=0, most=1, otherwise="is not a share; expected a number from 0 to 1")
    parser.add_argument("--fail-under", type=share, metavar="X", help=f"exit with 1 if the {what} is below, as in 0.9")


def falls_short(options: argparse.Namespace, what: str, reached: float) -> bool:
    """Return whether the measured value is below `--fail-under`, and print a warning if so."""
    least = options.fail_under
    is_below = least is not None and reached < least
    if is_below:
        warn(f"the {what} {reached:.3f} is below {least:g}")
    return is_below


def add_processes(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Add `--timeout` and `-n`, for a command that calls operators in separate processes.

    seconds: the default time limit of an operator.
    """
    parser.add_argument(
        "--timeout", type=time_limit, default=seconds, metavar="SECONDS", help=f"for an operator; default: {seconds:g}"
    )
    add_count(parser)


def add_count(parser: argparse.ArgumentParser) -> None:
    """Add `-n`, the number of processes."""
    parser.add_argument(
        "-n", type=_count, default=_count("auto"), metavar="PROCESSES", help="default: auto, one for each core"
    )


def _count(text: str) -> int:
    if text == "auto":
        return os.cpu_count() or 1
    return whole_number(text, 1, "is not a number of processes; expected a whole number of at least 1, or auto")


def time_limit(text: str) -> float:
    """Return a time limit in seconds; 0 stands for none. Raises ArgumentTypeError."""
    return number(text, 0, LONGEST, f"is not a time limit; expected seconds, at most {LONGEST:g}, or 0 for none")


def duration(text: str) -> float:
    """Return a duration such as `20s`, `10m` or `1h` in seconds. Raises ArgumentTypeError."""
    match = re.fullmatch(r"(\d*\.?\d+)([smh]?)", text)
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not seconds:
        raise argparse.ArgumentTypeError(f'"{text}" is not a time; expected one such as 20s, 10m or 1h')
    return seconds


UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def loaded(paths: list[Path] | list[str], settings: Settings) -> Library:
    """Load the operators in files and folders; if `paths` is empty, those of the project.

    Raises SpecError with all mistakes in the specs, and with other settings that might be meant. Raises RequestError if
    there are no specs.
    """
    own = [Path(path) for path in paths] or settings.required_specs()
    if not own:
        raise RequestError([NO_SPECS])
    try:
        return load(own, settings)
    except SpecError as error:
        raise RequestError([str(error), *(f"opcheck: {line}" for line in settings.others(own))], prefix="") from None


def devices(options: argparse.Namespace, settings: Settings) -> list[DeviceProfile]:
    """Return the devices that a command names, else all that may be present. Raises RequestError for unknown names."""
    try:
        return chosen_devices(options.device, settings)
    except UnknownDevice as error:
        raise RequestError(str(error).splitlines()) from None


def one_device(options: argparse.Namespace, settings: Settings, what: str) -> DeviceProfile:
    """Return the device that a command names, or the CPU. Raises RequestError for several, or if it is absent.

    what: the beginning of the error message, such as "samples are measured".
    """
    device, *more = devices(options, settings) if options.device else [settings.profiles["cpu"]]
    if more:
        raise RequestError([f"{what} on one device at a time: name one by --device"])
    if device.device_string != "cpu" and not (found := ask([device], settings)[device.name]).present:
        raise RequestError([not_present(device.name, found.reason)])
    return device


def selection(options: argparse.Namespace, settings: Settings, library: Library) -> Selection:
    """Return the selection of a command. Raises RequestError for unknown names."""
    chosen = selected(options, settings)
    if mistakes := chosen.mistakes(library):
        raise RequestError(mistakes)
    return chosen
