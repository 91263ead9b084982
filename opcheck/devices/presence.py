"""Detects devices: by files and modules, without torch, or in another process that imports torch.

Collection must not import torch, and a backend whose import crashes or hangs must not affect other devices.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import PathFinder
from itertools import repeat
from typing import Any

from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile, Hint
from opcheck.spec.problems import listing, unknown, worded
from opcheck.text import ending, separated

SECONDS = 120.0
"""The maximum time to import torch and the modules of devices, and to create a tensor on each, in seconds."""


@dataclass(frozen=True)
class Availability:
    """Whether a device can be used. reason: why not; count, detail: the number of devices and a description."""

    present: bool
    reason: str = ""
    count: int = 0
    detail: str = ""


def not_present(device: str, why: str) -> str:
    """Return why a device cannot be used, in words. device: its name."""
    return f"the device {device} is not present: {why}"


class UnknownDevice(ValueError):
    """Raised for unknown names of devices. The message has a line for each name."""


def chosen_devices(values: Sequence[str], settings: Settings) -> list[DeviceProfile]:
    """Return the named devices; without `values`, all devices that may be present.

    values: names of devices, or several names separated by commas.
    Raises UnknownDevice.
    """
    known, names = settings.profiles, separated(values)
    if not values:
        return [one for one in known.values() if may_be_present(one, settings)]
    mistakes = [worded(*unknown("device", name, known)) for name in names if name not in known]
    if not names:
        mistakes = [worded(f'"{",".join(values)}" names no device', listing(known))]
    if mistakes:
        raise UnknownDevice("\n".join(mistakes))
    return [known[name] for name in names]


def may_be_present(profile: DeviceProfile, settings: Settings) -> bool:
    """Return whether any sign of a device is found, or its profile has no signs.

    Modules are searched on `sys.path` and in the folder of the project.
    """
    signs = profile.signs
    if signs == Hint() or signs.always or any(map(os.path.exists, signs.paths)):
        return True
    return signs.module is not None and _is_installed(signs.module, [str(settings.root)])


def _is_installed(module: str, folders: Sequence[str]) -> bool:
    first = module.partition(".")[0]
    try:
        return (importlib.util.find_spec(first) or PathFinder.find_spec(first, folders)) is not None
    except (ImportError, ValueError):  # ValueError: the name is empty, or its module has no spec
        return False


def own_modules(profile: DeviceProfile) -> tuple[str, ...]:
    """Return the modules to import before a device is used: its own, and those of its functions."""
    functions = [path for path in (profile.seed, profile.synchronize) if path is not None]
    of_functions = [path.rpartition(":" if ":" in path else ".")[0] for path in functions]
    return tuple(dict.fromkeys([*filter(None, [profile.module]), *of_functions]))


def ask(profiles: Iterable[DeviceProfile], settings: Settings) -> dict[str, Availability]:
    """Return whether devices can be used, by name. Devices that need the same modules are tested in one new process."""
    groups: dict[tuple[str, ...], list[DeviceProfile]] = {}
    for profile in profiles:
        groups.setdefault(own_modules(profile), []).append(profile)
    path = [*sys.path, str(settings.root)]
    with ThreadPoolExecutor() as pool:
        each = list(pool.map(_asked, groups, groups.values(), repeat(path)))
    return {name: answer for answers in each for name, answer in answers.items()}


_CODE = "import sys; sys.path[:] = sys.argv[1:]; from opcheck.devices.device import answer_and_exit as f; f()"
"""The code of a new process. It imports from the same folders as this process, and from that of the project."""


def _asked(modules: tuple[str, ...], profiles: list[DeviceProfile], path: list[str]) -> dict[str, Availability]:
    """Return whether devices that need some modules can be used, by name, as a new process finds out."""
    keys = ("name", "torch", "module", "seed", "synchronize")
    request = [{key: value for key in keys if (value := getattr(one, key)) is not None} for one in profiles]
    what = f"importing {', '.join(modules)}" if modules else "probing it with torch"
    try:
        process = subprocess.run(
            [sys.executable, "-c", _CODE, *path],
            input=json.dumps(request).encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=SECONDS,
        )  # fmt: skip
        answers: dict[str, dict[str, Any]] = json.loads(process.stdout or "{}")
        why = f"{what}: {ending(process.returncode)}"
    except subprocess.TimeoutExpired:
        answers, why = {}, f"{what} takes longer than {SECONDS:g} s"
    return {
        one.name: Availability(**answers[one.name]) if one.name in answers else Availability(False, why)
        for one in profiles
    }
