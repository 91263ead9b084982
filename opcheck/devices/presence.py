"""Which devices are present, as far as can be told without torch, and as another process finds that has it.

Collection must not import torch, and a backend whose import ends the process, or hangs, must cost only itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any

from opcheck.settings import Settings
from opcheck.spec.device_profile import DeviceProfile, Hint
from opcheck.spec.problems import listing, unknown, worded
from opcheck.text import ending, separated

SECONDS = 60.0
"""How long the modules of a device may take to import, and the device to make a tensor."""


@dataclass(frozen=True)
class Availability:
    """Whether a device can be used. If not, `reason` says why; else `count` and `detail` describe it."""

    present: bool
    reason: str = ""
    count: int = 0
    detail: str = ""


class UnknownDevice(ValueError):
    """Names that no device has: a line for each."""


def chosen_devices(values: Sequence[str], settings: Settings) -> list[DeviceProfile]:
    """Return the devices of these names, separated by commas; without any, all that may be present.

    Raises UnknownDevice.
    """
    known, names = settings.profiles(), separated(values)
    if not values:
        return [one for one in known.values() if may_be_present(one, settings)]
    mistakes = [worded(*unknown("device", name, known)) for name in names if name not in known]
    if not names:
        mistakes = [worded(f'"{",".join(values)}" names no device', listing(known))]
    if mistakes:
        raise UnknownDevice("\n".join(mistakes))
    return [known[name] for name in names]


def may_be_present(profile: DeviceProfile, settings: Settings) -> bool:
    """Tell whether any sign of a device is there. If its profile names none, it may be.

    Its module may be in the folder of the project, besides `sys.path`.
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
    """Return the modules that are imported before a device is used."""
    functions = [path for path in (profile.seed, profile.synchronize) if path is not None]
    of_functions = [path.rpartition(":" if ":" in path else ".")[0] for path in functions]
    return tuple(dict.fromkeys([*filter(None, [profile.module]), *of_functions]))


def ask(profiles: Iterable[DeviceProfile], settings: Settings) -> dict[str, Availability]:
    """Return whether devices can be used, by name, as other processes find: one for those that import the same."""
    groups: dict[tuple[str, ...], list[DeviceProfile]] = {}
    for profile in profiles:
        groups.setdefault(own_modules(profile), []).append(profile)
    path = [*sys.path, str(settings.root)]
    begun = [(modules, same, _begin(same, path)) for modules, same in groups.items()]
    answers: dict[str, Availability] = {}
    for modules, same, process in begun:
        answers |= _answer(process, modules, same)
    return answers


_CODE = "import sys; sys.path[:] = sys.argv[1:]; from opcheck.devices.device import answer_and_exit as f; f()"
"""What such a process runs: it imports from the same folders as this one."""


def _begin(profiles: list[DeviceProfile], path: list[str]) -> subprocess.Popen[bytes]:
    keys = ("name", "torch", "module", "seed", "synchronize")
    request = [{key: value for key in keys if (value := getattr(one, key)) is not None} for one in profiles]
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE, *path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    return process


def _answer(
    process: subprocess.Popen[bytes], modules: tuple[str, ...], profiles: list[DeviceProfile]
) -> dict[str, Availability]:
    assert process.stdout is not None
    what = f"importing {', '.join(modules)}" if modules else "asking torch for it"
    try:
        process.stdout.readline()  # torch is imported: what takes longer from now on is not torch's
        text = process.communicate(timeout=SECONDS)[0]
        answers: dict[str, dict[str, Any]] = json.loads(text) if text else {}
        why = f"{what}: {ending(process.returncode)}"
    except subprocess.TimeoutExpired:
        answers, why = {}, f"{what} takes longer than {SECONDS:g} s"
    finally:
        process.kill()
        process.communicate()
    return {
        one.name: Availability(**answers[one.name]) if one.name in answers else Availability(False, why)
        for one in profiles
    }
