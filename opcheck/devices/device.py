"""A device of torch: whether it is present, and functions to seed it, synchronize it, and query its memory.

The functions to seed and synchronize are those that the profile names, else those of the device's module in torch
(`torch.cuda`, or the module that an out-of-tree backend has registered). All other functions are those of the module.
Without a module, as for the CPU, nothing needs to be done.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from opcheck.devices.generators import generators
from opcheck.devices.presence import Availability
from opcheck.spec.device_profile import DeviceProfile
from opcheck.text import class_of, message_of, one_line

PRESENT = Availability(True)


@dataclass(frozen=True)
class Device:
    """A device, as this process uses it."""

    profile: DeviceProfile
    string: str
    """torch's device string. It has an index if this process is assigned one of several devices of a kind."""
    availability: Availability = PRESENT
    """Whether the device is present."""
    room: int | None = None
    """The memory of the device that a batch may take, in bytes; None if the free memory is unknown."""
    is_probed: bool = False
    """Whether to run a tiny computation after each case, to test that the device still works."""

    @property
    def kind(self) -> str:
        """The device type; on the CPU, the name of the profile.

        After a fault of one device, this process uses none of its kind.
        """
        kind = torch.device(self.string).type
        return self.profile.name if kind == "cpu" else kind

    def seed(self, number: int) -> None:
        """Seed the generators of the host (torch's, Python's, NumPy's), and those of this device if it is not the CPU.

        `torch.manual_seed` is not used: it seeds every kind of device. For kinds not yet in use, it stores the request
        with a stack trace, which takes longer than most operators.
        """
        for generator in generators():
            generator.seed(number)
        if self.profile.seed is not None:
            function(self.profile.seed)(number)
            return
        module = device_module(self.string)
        seed = getattr(module, "manual_seed_all", None) or getattr(module, "manual_seed", None)
        if seed is not None:
            seed(number)

    def synchronize(self) -> None:
        """Wait until the device has finished all work. Raises the errors of work that failed."""
        module = device_module(self.string)
        if self.profile.synchronize is not None:
            function(self.profile.synchronize)()
        elif hasattr(module, "synchronize"):
            index = torch.device(self.string).index
            module.synchronize() if index is None else module.synchronize(index)

    def make_current(self) -> None:
        """Make the device the current one of its kind, if its module has `set_device`."""
        module = device_module(self.string)
        if hasattr(module, "set_device"):
            module.set_device(torch.device(self.string).index)

    def free_caches(self) -> None:
        """Free the memory of the device that torch caches."""
        module = device_module(self.string)
        if hasattr(module, "empty_cache"):
            module.empty_cache()

    def free_memory(self) -> int | None:
        """Return the free memory of the device in bytes; None if it is unknown."""
        module = device_module(self.string)
        if not hasattr(module, "mem_get_info"):
            return None
        try:
            return int(module.mem_get_info(torch.device(self.string).index or 0)[0])
        except Exception:  # some devices have the function but do not support it
            return None

    def fault(self) -> str:
        """Return why the device fails a tiny computation, in one line; an empty string if it succeeds."""
        try:
            copy = torch.ones(2).to(self.string).clone().cpu()
            self.synchronize()
        except Exception as error:
            return first_line(error)
        return "" if copy.tolist() == [1, 1] else f"a copy of two ones is {copy.tolist()}"


CPU = Device(DeviceProfile(name="cpu"), "cpu")
"""The CPU, which is always present."""


def device_module(device: str) -> Any:
    """Return torch's module for a device, such as `torch.cuda`; None for the CPU, or if there is no module."""
    kind = torch.device(device).type
    try:
        return None if kind == "cpu" else torch.get_device_module(kind)
    except RuntimeError:
        return None


@lru_cache(maxsize=16)
def function(path: str) -> Callable[..., Any]:
    """Return the function at `package.module:function`. Raises ImportError, AttributeError, or errors of its import."""
    function: Any = pkgutil.resolve_name(path)
    if not callable(function):
        raise ImportError(f"{path} is not a function")
    return function  # type: ignore[no-any-return]


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    lines = message_of(error).strip().splitlines()
    return lines[0] if lines else class_of(error)


def availability(profile: DeviceProfile) -> Availability:
    """Return whether the device of a profile can be used. Import its module. An error is returned as the reason."""
    for find, path, words in (
        (importlib.import_module, profile.module, f"importing {profile.module} failed"),
        (function, profile.seed, f'seed = "{profile.seed}" is not there'),
        (function, profile.synchronize, f'synchronize = "{profile.synchronize}" is not there'),
    ):
        try:
            if path is not None:
                find(path)
        except (Exception, SystemExit) as error:
            return Availability(False, f"{words}: {one_line(error)}")
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
    module: Any = getattr(torch, device.type, None)
    try:
        if hasattr(module, "is_available") and not module.is_available():
            return Availability(False, f"torch.{device.type}.is_available() is False")
        torch.empty(1, device=device)
        count = module.device_count() if hasattr(module, "device_count") else 1
        detail = module.get_device_name(device) if hasattr(module, "get_device_name") else ""
    except Exception as error:
        return Availability(False, first_line(error))
    return Availability(True, count=count, detail=str(detail))


def answer_and_exit() -> None:
    """Read profiles from stdin, write whether each device is present, as JSON, and exit.

    The processes that `presence.ask` starts run this function, so that no other process imports a backend that may
    crash. Output of a backend is dropped.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    profiles = [DeviceProfile.model_validate(one) for one in json.load(sys.stdin)]
    json.dump({profile.name: vars(availability(profile)) for profile in profiles}, answers)
    answers.flush()
    os._exit(0)  # skip the exit handlers of the backend, which may fail
