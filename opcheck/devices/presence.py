"""Guesses, without torch, which devices are present: collection must not import torch."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable

from opcheck.spec.device import DeviceProfile, Hint


def default_devices(profiles: Iterable[DeviceProfile]) -> list[DeviceProfile]:
    """Return the devices that may be present: those to test on if nobody names any."""
    return [profile for profile in profiles if may_be_present(profile)]


def may_be_present(profile: DeviceProfile) -> bool:
    """Tell whether any sign of a device is there."""
    return holds(profile.signs)


def holds(hint: Hint) -> bool:
    """Tell whether any of the signs that a hint names is there."""
    found = hint.module is not None and _is_installed(hint.module)
    return hint.always or found or any(os.path.exists(path) for path in hint.paths)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.split(".")[0]) is not None
    except (ImportError, ValueError):  # ValueError: the name is empty, or its module has no spec
        return False
