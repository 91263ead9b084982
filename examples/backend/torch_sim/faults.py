"""Mistakes of a device, one kernel each. SIM_FAULTS=gradient,conj in the environment plants two of them."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_sim.runtime import pending

aten = torch.ops.aten


class OnCpu(tuple):
    """Results that are not brought to the device."""


def missing(op: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(f"{op} has no kernel on sim")


def gradient(op: Any, *args: Any) -> Tensor:
    """One percent too large."""
    return op(*args) * 1.01


def noncontiguous(op: Any, x: Tensor, **kwargs: Any) -> Tensor:
    """Read memory as if it had no gaps, in the order of the indices."""
    return op(x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride()), **kwargs)


def on_cpu(op: Any, *args: Any, **kwargs: Any) -> OnCpu:
    """Leave the result where a fallback has computed it."""
    return OnCpu([op(*args, **kwargs)])


def conj(op: Any, *args: Tensor, **kwargs: Any) -> Tensor:
    """Hand memory to a library without telling it about lazy conjugation."""
    return op(*(x.conj() if x.is_conj() else x for x in args), **kwargs)


def float64(op: Any, *args: Tensor) -> Tensor:
    """Compute in single precision."""
    return op(*(x.float() if x.dtype is torch.float64 else x for x in args)).to(args[0].dtype)


def device_assert(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Fail on the device, of which the host hears later."""
    pending.append("device-side assert triggered")
    return op(*args, **kwargs)


FAULTS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "missing": (aten.erfinv, missing),
    "gradient": (aten.tanh_backward, gradient),
    "noncontiguous": (aten.atan, noncontiguous),
    "on_cpu": (aten.logaddexp2, on_cpu),
    "conj": (aten.dot, conj),
    "float64": (aten.sigmoid_backward, float64),
    "assert": (aten.logcumsumexp, device_assert),
}
"""By name: the operator with a mistake, and its kernel."""

KERNELS = dict(FAULTS[name] for name in os.environ.get("SIM_FAULTS", "").split(",") if name)
