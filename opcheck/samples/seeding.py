"""Random numbers from a known start, on the device of a case and nowhere else."""

from __future__ import annotations

import torch


def seed_device(number: int, device: str = "cpu") -> None:
    """Seed the generator of the CPU, and those of a device that is another one.

    `torch.manual_seed` seeds every kind of device there is; for those that nobody has used yet it keeps the request
    for later, with a stack trace, which takes longer than most operators.
    """
    torch.default_generator.manual_seed(number)
    if torch.device(device).type != "cpu":
        getattr(torch.get_device_module(device), "manual_seed_all", torch.manual_seed)(number)
