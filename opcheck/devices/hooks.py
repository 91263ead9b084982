"""What torch knows of a device: whether it is present, and how to seed it, wait for it, and ask for its memory.

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
from functools import lru_cache
from typing import Any

import torch

from opcheck.devices.presence import Availability
from opcheck.spec.device import DeviceProfile


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


def seed_device(number: int, device: str = "cpu", by: str | None = None) -> None:
    """Seed the generator of the CPU, and those of `device` if it is another device.

    `torch.manual_seed` seeds every kind of device. For kinds not yet in use, it stores the request with a stack trace,
    which takes longer than most operators.

    by: the function that seeds the device, as its profile names it. Default: `manual_seed_all` of torch's module for
    it, or `manual_seed` if there is only that.
    """
    torch.default_generator.manual_seed(number)
    if by is not None:
        function(by)(number)
        return
    module = device_module(device)
    seed = getattr(module, "manual_seed_all", None) or getattr(module, "manual_seed", None)
    if seed is not None:
        seed(number)


def synchronize(profile: DeviceProfile, device: str) -> None:
    """Wait until a device has done what it was told to. Raises the error of what it could not do.

    device: torch's device string.
    """
    module = device_module(device)
    if profile.synchronize is not None:
        function(profile.synchronize)()
    elif hasattr(module, "synchronize"):
        index = torch.device(device).index
        module.synchronize() if index is None else module.synchronize(index)


def set_device(device: str) -> None:
    """Make a device the current one of its kind, where there is such a thing."""
    module = device_module(device)
    if hasattr(module, "set_device"):
        module.set_device(torch.device(device).index)


def free_caches(device: str) -> None:
    """Return to the device the memory that torch keeps for later."""
    module = device_module(device)
    if hasattr(module, "empty_cache"):
        module.empty_cache()


def free_memory(device: str) -> int | None:
    """Return how many bytes of a device's memory are free; None if it does not tell."""
    module = device_module(device)
    try:
        return int(module.mem_get_info(torch.device(device).index or 0)[0]) if hasattr(module, "mem_get_info") else None
    except Exception:  # not every device that has the function can tell
        return None


def fault(profile: DeviceProfile, device: str) -> str:
    """Return why a device fails a tiny computation, in one line; an empty string if it does not.

    device: torch's device string.
    """
    try:
        copy = torch.ones(2).to(device).clone().cpu()
        synchronize(profile, device)
    except Exception as error:
        return first_line(error)
    return "" if copy.tolist() == [1, 1] else f"a copy of two ones is {copy.tolist()}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


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
