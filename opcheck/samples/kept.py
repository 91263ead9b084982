"""Keeps what one group of cases has in common, whose checks follow one another: inputs, which most only read."""

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
    """The tensors as they were made."""

    def is_unchanged(self) -> bool:
        """Tell whether nobody has written to the inputs: an operator, or a derivative taken in place that broke off."""
        pairs = zip(self.tensors, self.copies, strict=True)
        try:
            with torch.no_grad():
                return all(_is_as(now, before) for now, before in pairs)
        except RuntimeError:  # of dtypes that torch cannot compare
            return False


class Kept:
    """What a group has in common: the inputs of its samples, by name, and more. Another group takes its place."""

    def __init__(self) -> None:
        self._group: tuple[object, ...] = ()
        self._entries: dict[str, _Entry] = {}
        self._made: dict[Hashable, Any] = {}

    def once(self, group: tuple[object, ...], key: Hashable, make: Callable[[], T]) -> T:
        """Return what is made only once for a group. Exceptions are those of making it."""
        self._enter(group)
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def inputs(self, group: tuple[object, ...], name: str, make: Callable[[], Inputs]) -> Inputs:
        """Return the inputs of a sample: those of the last time where they are as they were, else new ones."""
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
