"""The devices that this process runs cases on: which one of a kind it takes, and whether they still work."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from opcheck.devices.availability import availability
from opcheck.devices.hooks import fault, free_memory, set_device
from opcheck.devices.presence import Availability, ask, own_modules
from opcheck.settings import Settings
from opcheck.spec.device import DeviceProfile


@dataclass
class DeviceUse:
    """What a process knows of its devices."""

    number: int | None = None
    """Which of several processes that run cases at the same time this is; None if it is the only one."""
    unusable: dict[str, str] = field(default_factory=dict)
    """The id of the case since which nothing works on a kind of device, by the kind."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why devices cannot be used, by name, as another process has found; an empty text for those that can."""
    settings: Settings = field(default_factory=Settings)
    _availability: dict[str, Availability] = field(default_factory=dict)
    _strings: dict[str, str] = field(default_factory=dict)
    _worked: set[str] = field(default_factory=set)
    """The device strings of those that did a tiny computation before their first case."""
    _room: dict[str, int] = field(default_factory=dict)

    def availability(self, profile: DeviceProfile) -> Availability:
        """Return whether a device is present. Asks torch once per device.

        What another process has not imported yet, it imports first: this one would go down with it.
        """
        if profile.name not in self._availability:
            why = self.absent.get(profile.name)
            if why is None:
                why = self._refusal(profile)
            own = self._availability[profile.name] = Availability(False, why) if why else availability(profile)
            if own.present:
                self._begin(profile, own.count)
        return self._availability[profile.name]

    def _refusal(self, profile: DeviceProfile) -> str:
        """Return why a device that is yet to be imported cannot be used, as another process finds; empty if it can."""
        if all(module in sys.modules for module in own_modules(profile)):
            return ""
        answer = ask([profile], self.settings)[profile.name]
        return "" if answer.present else answer.reason

    def _begin(self, profile: DeviceProfile, count: int) -> None:
        string = profile.device_string
        device = torch.device(string)
        if self.number is not None and count > 1 and device.type != "cpu" and device.index is None:
            string = f"{string}:{self.number % count}"
            set_device(string)  # operators may make tensors, or launch kernels, on the current device
        self._strings[profile.name] = string
        if not fault(profile, string):
            self._worked.add(string)
        free = free_memory(string)
        if free is not None:
            self._room[string] = max(free // 4, 1)

    def string(self, profile: DeviceProfile) -> str:
        """Return torch's device string for a device: one of several of a kind if there are several processes."""
        return self._strings.get(profile.name, profile.device_string)

    def room(self, profile: DeviceProfile) -> int | None:
        """Return the bytes of a device's memory that a batch may take; None if the device does not tell."""
        return self._room.get(self.string(profile))

    def fault_after(self, case: str, profile: DeviceProfile) -> str:
        """Return why a device fails a tiny computation after a case; an empty string if it does not.

        If it does, the kind of device is unusable from now on. A device that has never done that computation is not
        judged by it.
        """
        string = self.string(profile)
        if string not in self._worked or _is_plain(profile):
            return ""
        reason = fault(profile, string)
        if reason:
            self.unusable.setdefault(_kind(profile), case)
        return reason

    def unusable_since(self, profile: DeviceProfile) -> str:
        """Return the id of the case that has made a device unusable; an empty string if none has."""
        return self.unusable.get(_kind(profile), "") if self.unusable else ""


def _kind(profile: DeviceProfile) -> str:
    """Return the kind of a device: an operator that breaks one of a kind has, to this process, broken all of them."""
    kind = torch.device(profile.device_string).type
    return profile.name if kind == "cpu" else kind


def _is_plain(profile: DeviceProfile) -> bool:
    """Tell whether a device is the CPU, and nothing has to be waited for: it reports each error at once."""
    return profile.synchronize is None and torch.device(profile.device_string).type == "cpu"
