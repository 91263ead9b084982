"""What a device does besides computing: it is seeded, waited for, and asked for its memory.

Each goes by the function that its profile names, else by the public functions of its module in torch (`torch.cuda`, or
what an out-of-tree backend has registered). A device that has neither needs none, as the CPU does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

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
    module, _, name = path.rpartition(":" if ":" in path else ".")
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise ImportError(f"{path} is no function")
    return function  # type: ignore[no-any-return]


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
