"""A device of torch: whether it is present, and how to seed it, wait for it, and ask for its memory.

Each goes by the function that its profile names, else by the public functions of its module in torch (`torch.cuda`, or
what an out-of-tree backend has registered). A device that has neither needs none, as the CPU does.
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

from opcheck.devices.presence import Availability
from opcheck.spec.device_profile import DeviceProfile
from opcheck.text import class_of, message_of, one_line

PRESENT = Availability(True)


@dataclass(frozen=True)
class Device:
    """A device, as this process uses it."""

    profile: DeviceProfile
    string: str
    """torch's device string: of several devices of a kind, the one that is this process's."""
    availability: Availability = PRESENT
    """Whether the device is present."""
    room: int | None = None
    """The bytes of its memory that a batch may take; None if the device does not tell."""
    is_probed: bool = False
    """Whether to run a tiny computation after each case, to see that the device still works."""

    @property
    def kind(self) -> str:
        """The kind of device: an operator that breaks one of a kind has, to this process, broken all of them."""
        kind = torch.device(self.string).type
        return self.profile.name if kind == "cpu" else kind

    def seed(self, number: int) -> None:
        """Seed the generator of the CPU, and those of the device if it is another one.

        `torch.manual_seed` seeds every kind of device. For kinds not yet in use, it stores the request with a stack
        trace, which takes longer than most operators.
        """
        torch.default_generator.manual_seed(number)
        if self.profile.seed is not None:
            function(self.profile.seed)(number)
            return
        module = device_module(self.string)
        seed = getattr(module, "manual_seed_all", None) or getattr(module, "manual_seed", None)
        if seed is not None:
            seed(number)

    def synchronize(self) -> None:
        """Wait until the device has done what it was told to. Raises the error of what it could not do."""
        module = device_module(self.string)
        if self.profile.synchronize is not None:
            function(self.profile.synchronize)()
        elif hasattr(module, "synchronize"):
            index = torch.device(self.string).index
            module.synchronize() if index is None else module.synchronize(index)

    def make_current(self) -> None:
        """Make the device the current one of its kind, where there is such a thing."""
        module = device_module(self.string)
        if hasattr(module, "set_device"):
            module.set_device(torch.device(self.string).index)

    def free_caches(self) -> None:
        """Return to the device the memory that torch keeps for later."""
        module = device_module(self.string)
        if hasattr(module, "empty_cache"):
            module.empty_cache()

    def free_memory(self) -> int | None:
        """Return how many bytes of the device's memory are free; None if it does not tell."""
        module = device_module(self.string)
        if not hasattr(module, "mem_get_info"):
            return None
        try:
            return int(module.mem_get_info(torch.device(self.string).index or 0)[0])
        except Exception:  # not every device that has the function can tell
            return None

    def fault(self) -> str:
        """Return why the device fails a tiny computation, in one line; an empty string if it does not."""
        try:
            copy = torch.ones(2).to(self.string).clone().cpu()
            self.synchronize()
        except Exception as error:
            return first_line(error)
        return "" if copy.tolist() == [1, 1] else f"a copy of two ones is {copy.tolist()}"


CPU = Device(DeviceProfile(name="cpu"), "cpu")
"""The CPU, as it is always present."""


def device_module(device: str) -> Any:
    """Return torch's module for a kind of device, such as `torch.cuda`; None for the CPU and where there is none."""
    kind = torch.device(device).type
    try:
        return None if kind == "cpu" else torch.get_device_module(kind)
    except RuntimeError:
        return None


@lru_cache(maxsize=16)
def function(path: str) -> Callable[..., Any]:
    """Return the function at `package.module:function`. Raises ImportError, AttributeError, or what its import does."""
    function: Any = pkgutil.resolve_name(path)
    if not callable(function):
        raise ImportError(f"{path} is no function")
    return function  # type: ignore[no-any-return]


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    lines = message_of(error).strip().splitlines()
    return lines[0] if lines else class_of(error)


def availability(profile: DeviceProfile) -> Availability:
    """Return whether the device of a profile can be used. Imports its module. Errors become the reason."""
    if profile.module is not None:
        try:
            importlib.import_module(profile.module)
        except (Exception, SystemExit) as error:
            return Availability(False, f"importing {profile.module} failed: {one_line(error)}")
    for key in ("seed", "synchronize"):
        path = getattr(profile, key)
        try:
            _ = path is None or function(path)
        except (Exception, SystemExit) as error:
            return Availability(False, f'{key} = "{path}" is not there: {one_line(error)}')
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
    """Read profiles from a pipe, say that torch is imported, write whether each device is present, and exit.

    This is all that the process does which `presence.ask` starts, so that no other one imports a backend untried. What
    a backend prints is dropped.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    profiles = [DeviceProfile.model_validate(one) for one in json.loads(sys.stdin.readline())]
    print("ready", file=answers, flush=True)
    text = json.dumps({profile.name: vars(availability(profile)) for profile in profiles})
    print(text, file=answers, flush=True)
    os._exit(0)  # what a backend does at the exit of a process is no concern of the answer
