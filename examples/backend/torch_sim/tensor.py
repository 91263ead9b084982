"""Tensors of the device, and what every operator does with them: it computes on the CPU, and returns to the device."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from torch_sim import runtime
from torch_sim.faults import KERNELS, OnCpu

aten = torch.ops.aten
MIXES = (aten.copy_, aten._to_copy, aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)
"""What takes tensors of the CPU beside those of the device: copies, and, as on CUDA, indices."""


NO_KEYS = torch._C.DispatchKeySet.from_raw_repr(0)


class SimTensor(torch.Tensor):
    """A tensor on the device. A tensor on the CPU holds its numbers."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "SimTensor":
        if held.layout is not torch.strided or held.dtype in runtime.LACKS:
            raise TypeError(f"sim has no {held.layout} tensors of {held.dtype}")
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ZeroTensor) if held._is_zerotensor() else NO_KEYS
        size = held.numel() * held.element_size() if held._is_zerotensor() else held.untyped_storage().nbytes()
        with torch.inference_mode(False):  # a view of an ordinary tensor must be one, even in inference mode
            tensor: SimTensor = torch.Tensor._make_wrapper_subclass(
                cls, held.size(), held.stride(), held.storage_offset(), dtype=held.dtype,
                device=torch.device("sim", 0), storage_size=size, _extra_dispatch_keys=keys,
            )  # fmt: skip
        torch._C._set_conj(tensor, held.is_conj())
        torch._C._set_neg(tensor, held.is_neg())
        tensor.held = held
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            with torch.overrides.enable_reentrant_dispatch():  # what operators do to lazy bits happens below, too
                return run(op, *args, **(kwargs or {}))
        except Exception as error:
            if threading.get_ident() == threading.main_thread().ident:
                raise
            # In a thread of autograd, an exception would abort the process. Of this, torch says that it is no tensor.
            count = len(op._schema.returns)
            return error if count == 1 else (error,) * count

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()

    def __repr__(self) -> str:
        return f"{repr(self.held)[:-1]}, device='{self.device}')"


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator. What it returns is on the device, unless it is asked for another one."""
    runtime.check()
    given: dict[int, SimTensor] = {}
    wanted = []

    def to_cpu(item: Any) -> Any:
        if isinstance(item, SimTensor):
            held = numbers_of(item)
            given[id(held)] = item
            return held
        if isinstance(item, torch.Tensor) and item.dim() and op.overloadpacket not in MIXES:
            raise RuntimeError(f"{op} expects all tensors on the same device, but found sim:0 and {item.device}")
        dtype = item.dtype if isinstance(item, torch.Tensor) and item.dim() else item
        if isinstance(dtype, torch.dtype) and dtype in runtime.LACKS:
            raise TypeError(f"{op}: sim has no {dtype}, and converts neither from it nor to it")
        if isinstance(item, torch.device):
            wanted.append(item.type)
            return torch.device("cpu") if item.type == "sim" else item
        return item

    def to_device(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        return given[id(item)] if id(item) in given else SimTensor(item)

    kernel = KERNELS.get(op.overloadpacket, random if torch.Tag.nondeterministic_seeded in op.tags else call)
    result = kernel(op, *mapped(to_cpu, args), **mapped(to_cpu, kwargs))
    for tensor in given.values():
        refresh(tensor)
    if isinstance(result, OnCpu):
        return result[0]
    return mapped(to_device, result) if set(wanted) <= {"sim"} else result


def mapped(change: Callable[[Any], Any], item: Any) -> Any:
    """Apply a function to everything in lists, tuples and dicts."""
    if isinstance(item, (list, tuple)):
        return type(item)([mapped(change, part) for part in item])
    if isinstance(item, dict):
        return {key: mapped(change, part) for key, part in item.items()}
    return change(item)


def numbers_of(tensor: SimTensor) -> torch.Tensor:
    """Return the tensor that holds the numbers. torch may have set the lazy bits of the outer one meanwhile."""
    if tensor.is_conj() != tensor.held.is_conj():
        tensor.held = tensor.held.conj()
    if tensor.is_neg() != tensor.held.is_neg():
        tensor.held = torch._neg_view(tensor.held)
    return tensor.held


def refresh(tensor: SimTensor) -> None:
    """Let a tensor that has been written to look so: t_() and out= may change its shape and lazy bits, too."""
    held = tensor.held
    if (tensor.shape, tensor.stride()) != (held.shape, held.stride()):
        tensor.data = SimTensor(held)
    torch._C._set_conj(tensor, held.is_conj())
    torch._C._set_neg(tensor, held.is_neg())


def call(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def random(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator that draws numbers, with the generator of the device."""
    with torch.random.fork_rng([]):
        torch.set_rng_state(runtime.generator.get_state())
        result = op(*args, **kwargs)
        runtime.generator.set_state(torch.get_rng_state())
    return result


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy between devices, where torch passes over __torch_dispatch__: `torch.tensor(numbers, device="sim")`."""
    run(aten.copy_.default, target, source)
    return target
