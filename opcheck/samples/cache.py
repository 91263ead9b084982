"""Lets the checks of one operator share inputs, instead of making them anew for each check."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from opcheck.samples.inputs import Inputs
from opcheck.samples.layouts import components
from opcheck.samples.watched import Watched

T = TypeVar("T")


class Memo:
    """What is made once, on first use."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Any, bool]] = {}
        """What was made, and whether making it has turned gradients off."""

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, calling it once for a key. Passes on its exceptions.

        It is made with gradients enabled. If making it disables them, as an operator may, they are disabled whenever it
        is returned, so that each check sees that.
        """
        if key not in self._made:
            before = torch.is_grad_enabled()
            torch.set_grad_enabled(True)
            try:
                made = make()
            finally:
                turned_off = not torch.is_grad_enabled()
                torch.set_grad_enabled(before and not turned_off)
            self._made[key] = made, turned_off
        made, turned_off = self._made[key]
        if turned_off:
            torch.set_grad_enabled(False)
        result: T = made
        return result


@dataclass(frozen=True)
class _Entry:
    inputs: Inputs
    watched: Sequence[Watched]
    """The tensors as they were when they were made."""
    memo: Memo

    def is_unchanged(self) -> bool:
        """Tell whether the inputs are still as they were made: nothing has written to them."""
        try:
            return not any(one.change() for one in self.watched)
        except RuntimeError:  # torch cannot compare tensors of some dtypes
            return False


class Cache:
    """Holds what the cases of one group share. When another group begins, it is emptied.

    A group is a tuple of what the cases must have in common. Groups are compared by `==`.
    """

    def __init__(self) -> None:
        self._group: tuple[object, ...] = ()
        self._memo = Memo()
        self._entries: dict[str, _Entry] = {}

    def memo(self, group: tuple[object, ...]) -> Memo:
        """Return what the checks of a group share, whatever the sample."""
        if group != self._group:
            self._group, self._entries, self._memo = group, {}, Memo()
        return self._memo

    def inputs(self, group: tuple[object, ...], name: str, make: Callable[[], Inputs]) -> tuple[Inputs, Memo]:
        """Return the inputs of the sample `name`, and what the checks share that is about them.

        They are the last ones if nothing has changed them, else new ones.
        """
        self.memo(group)
        entry = self._entries.pop(name, None)
        if entry is None or not entry.is_unchanged():
            inputs = make()
            tensors = tuple(inputs.tensors())
            if inputs.grad_outputs is not None or any(components(tensor) is None for tensor in tensors):
                return inputs, Memo()
            entry = _Entry(inputs, Watched.all("input", tensors), Memo())
        self._entries[name] = entry
        return entry.inputs, entry.memo
