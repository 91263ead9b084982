"""Lazy modules: parameters and buffers that are constructed without a shape, and get one by a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from opcheck.text import message_of


def uninitialized(module: Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module that have no shape yet, by name."""
    state = (*module.named_parameters(), *module.named_buffers())
    return {name: tensor for name, tensor in state if is_lazy(tensor)}


def initialize(module: Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call a lazy module once, which gives shapes and initial values to its parameters and buffers.

    The call leaves no other trace: running statistics are as constructed. An exception of forward does not matter once
    all of them have shapes. Raises ValueError if some still have none.
    """
    why = "forward does not use it"
    with torch.no_grad(), _otherwise_unchanged(module):
        try:
            module(*args, **kwargs)
        except Exception as error:
            why = f"{type(error).__name__}: {message_of(error)}"
    left = uninitialized(module)
    if left:
        raise ValueError(f"{next(iter(left))} is lazy, and has no shape after a call with the sample: {why}")


@contextmanager
def _otherwise_unchanged(module: Module) -> Iterator[None]:
    """Put parameters and buffers back at the end; those that are lazy as they are before their module's forward."""
    kept: dict[tuple[int, str], tuple[dict[str, Any], str, Tensor, Tensor]] = {}

    def keep(part: Module, args: Any = ()) -> None:
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                if tensor is not None and not is_lazy(tensor):
                    kept.setdefault((id(table), name), (table, name, tensor, tensor.detach().clone()))

    for part in module.modules():
        keep(part)
    # Hooks are called in the order of registration: that of a lazy module, which initializes it, comes first.
    handles = [part.register_forward_pre_hook(keep) for part in module.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for table, name, tensor, before in kept.values():
            tensor.copy_(before)
            table[name] = tensor
