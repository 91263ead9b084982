"""Caches what a group of consecutive cases shares, above all inputs, which most operators only read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from opcheck.samples.inputs import Inputs

T = TypeVar("T")


@dataclass(frozen=True)
class _Entry:
    inputs: Inputs
    tensors: tuple[Tensor, ...]
    copies: tuple[Tensor, ...]
    """Copies of the tensors as created."""

    def is_unchanged(self) -> bool:
        """Return whether the inputs are unchanged. An operator or an aborted in-place derivative may write to them."""
        pairs = zip(self.tensors, self.copies, strict=True)
        try:
            with torch.no_grad():
                return all(_is_as(now, before) for now, before in pairs)
        except RuntimeError:  # torch cannot compare some dtypes
            return False


class Kept:
    """What a group shares: the inputs of its samples, by name, and other values. A new group replaces the last one."""

    def __init__(self) -> None:
        self._group: tuple[object, ...] = ()
        self._entries: dict[str, _Entry] = {}
        self._made: dict[Hashable, Any] = {}

    def once(self, group: tuple[object, ...], key: Hashable, make: Callable[[], T]) -> T:
        """Return the value for a key, created once per group. Raises what `make` raises."""
        self._enter(group)
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def inputs(self, group: tuple[object, ...], name: str, make: Callable[[], Inputs]) -> Inputs:
        """Return the inputs of a sample: the cached ones if they are unchanged, else new ones."""
        self._enter(group)
        entry = self._entries.pop(name, None)
        if entry is None or not entry.is_unchanged():
            inputs = make()
            tensors = tuple(_tensors([*inputs.args, *inputs.kwargs.values(), *inputs.leaves]))
            if inputs.grad_outputs is not None or any(tensor.layout is not torch.strided for tensor in tensors):
                return inputs
            entry = _Entry(inputs, tensors, tuple(map(_copy, tensors)))
        self._entries[name] = entry
        return entry.inputs

    def _enter(self, group: tuple[object, ...]) -> None:
        if group != self._group:
            self._group, self._entries, self._made = group, {}, {}


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _is_as(now: Tensor, before: Tensor) -> bool:
    return now.grad is None and now.requires_grad == before.requires_grad and torch.equal(now, before)


def _tensors(items: Iterable[Any]) -> Iterator[Tensor]:
    for item in items:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _tensors(item)
