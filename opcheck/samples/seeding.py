"""Seeds the random generators that a case uses, and no others."""

from __future__ import annotations

import torch


def seed_device(number: int, device: str = "cpu") -> None:
    """Seed the generator of the CPU, and those of `device` if it is another device.

    `torch.manual_seed` seeds every kind of device. For kinds not yet in use, it stores the request with a stack trace,
    which takes longer than most operators.
    """
    torch.default_generator.manual_seed(number)
    if torch.device(device).type != "cpu":
        getattr(torch.get_device_module(device), "manual_seed_all", torch.manual_seed)(number)
