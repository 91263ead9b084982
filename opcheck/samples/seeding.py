"""Seeds the random generators that a case uses, and no others."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from opcheck.devices.hooks import device_module, function


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


@contextmanager
def seeded(text: str) -> Iterator[None]:
    """Seed torch's global generator by a text, with the CPU as default device, and restore its state at the end."""
    state = torch.random.get_rng_state()
    try:
        torch.default_generator.manual_seed(zlib.crc32(text.encode()))
        # A context for the default device slows down every call of torch.
        with nullcontext() if torch.empty(0).is_cpu else torch.device("cpu"):
            yield
    finally:
        torch.random.set_rng_state(state)
