"""What the cases of one process share: the engine, the settings, and which devices are there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from opcheck.derivatives import BatchedEngine, Engine, TorchEngine
from opcheck.devices import Availability, availability
from opcheck.spec.device import DeviceProfile
from opcheck.spec.settings import Settings

ENGINES: dict[str, type[Engine]] = {"batched": BatchedEngine, "torch": TorchEngine}


@dataclass
class RunSession:
    """The surroundings of running cases."""

    settings: Settings
    engine: Engine
    overrides: dict[str, Any] = field(default_factory=dict)
    """Tolerances and settings that win over the specs: eps, atol, rtol, nondeterminism, fast_mode, raise_exception,
    jacobian."""
    _devices: dict[str, Availability] = field(default_factory=dict)

    @classmethod
    def start(cls, settings: Settings, engine: str | None = None, **overrides: Any) -> RunSession:
        """Return a session with the engine of a name (default: that of the settings)."""
        # The tensors are tiny: more threads cost more than they bring, and pytest-xdist uses the cores better.
        torch.set_num_threads(1)
        settings.put_on_path()
        return cls(settings, ENGINES[engine or settings.engine](), overrides)

    def availability(self, device: DeviceProfile) -> Availability:
        """Return whether a device is there, asked once."""
        if device.name not in self._devices:
            self._devices[device.name] = availability(device)
        return self._devices[device.name]
