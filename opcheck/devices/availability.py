"""Asks torch whether a device is present, and if not, why not."""

from __future__ import annotations

import importlib

import torch

from opcheck.devices.hooks import first_line, function
from opcheck.devices.presence import Availability
from opcheck.spec.device import DeviceProfile


def availability(profile: DeviceProfile) -> Availability:
    """Return whether the device of a profile can be used. Imports its module. Errors become the reason."""
    if profile.module is not None:
        try:
            importlib.import_module(profile.module)
        except (Exception, SystemExit) as error:
            return Availability(False, f"importing {profile.module} failed: {type(error).__name__}: {error}")
    for key in ("seed", "synchronize"):
        path = getattr(profile, key)
        try:
            _ = path is None or function(path)
        except (Exception, SystemExit) as error:
            return Availability(False, f'{key} = "{path}" is not there: {type(error).__name__}: {first_line(error)}')
    try:
        device = torch.device(profile.device_string)
    except (RuntimeError, ValueError) as error:
        return Availability(False, f"torch knows no device {profile.device_string!r}: {first_line(error)}")
    if device.type == "cpu":
        return Availability(True, count=1, detail=f"{torch.get_num_threads()} threads")
    return _accelerator(device)


def _accelerator(device: torch.device) -> Availability:
    if device.type == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        return Availability(False, "this build of torch has no CUDA")
    module = getattr(torch, device.type, None)
    try:
        if module is not None and hasattr(module, "is_available") and not module.is_available():
            return Availability(False, f"torch.{device.type}.is_available() is False")
        torch.empty(1, device=device)
        count = module.device_count() if module is not None and hasattr(module, "device_count") else 1
        detail = module.get_device_name(device) if module is not None and hasattr(module, "get_device_name") else ""
    except Exception as error:
        return Availability(False, first_line(error))
    return Availability(True, count=count, detail=str(detail))
