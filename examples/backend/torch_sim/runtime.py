"""The runtime of the device, and `torch.sim`: the functions that torch expects in the module of a device."""

import os

import torch

LACKS = {getattr(torch, name) for name in os.environ.get("SIM_LACKS", "").split(",") if name}
"""Dtypes that the device does not have. SIM_LACKS=float64,complex128 in the environment takes away two of them."""

generator = torch.Generator()  # the random numbers of the device; those of the CPU are others
pending: list[str] = []
"""Errors of kernels that nobody has been told of yet. Nothing works after the first, as on CUDA."""


def check() -> None:
    """Raise the error that a kernel has left behind, again with every call: only a new process is rid of it."""
    if pending:
        raise torch.AcceleratorError(
            f"sim error: {pending[0]}. It may have been reported asynchronously by another call"
        )


def synchronize(device: object = None) -> None:
    check()


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def get_device_name(device: object = None) -> str:
    return "simulated on the CPU"


def manual_seed_all(seed: int) -> None:
    generator.manual_seed(seed)


def get_rng_state(device: object = None) -> torch.Tensor:
    return generator.get_state()


def set_rng_state(state: torch.Tensor, device: object = None) -> None:
    generator.set_state(state)
