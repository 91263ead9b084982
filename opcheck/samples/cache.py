"""Caches inputs and intermediate results that the checks of one operator share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from typing import Any, TypeVar

import torch

from opcheck.samples.inputs import Inputs
from opcheck.samples.layouts import components
from opcheck.samples.watched import Watched

T = TypeVar("T")


class Memo:
    """A cache of results, each computed at its first use."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Any, bool]] = {}
        """The result for each key, and whether computing it has disabled gradients."""

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, which is called once for each key. Passes on its exceptions.

        `make` is called with gradients enabled. If it disables them, as a faulty operator may, they are disabled
        whenever the cached result is returned, too, so that each check notices.
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


def once(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Make a function of an object compute its result once: it is cached in the `memo` of the object."""

    @wraps(function)
    def kept(owner: Any) -> T:
        result: T = owner.memo.once(function, lambda: function(owner))
        return result

    return kept


class Cache:
    """Caches inputs and results for the cases of one group. A call for another group empties the cache.

    A group is a tuple of everything that its cases have in common. Groups are compared by `==`.
    """

    def __init__(self) -> None:
        self._group: tuple[object, ...] = ()
        self._memo = Memo()
        self._made: dict[str, tuple[Inputs, list[Watched], Memo]] = {}
        """The inputs of each sample, with their tensors as they were created, and the results computed from them."""

    def memo(self, group: tuple[object, ...]) -> Memo:
        """Return the cache for results of a group that do not depend on the sample."""
        if group != self._group:
            self._group, self._made, self._memo = group, {}, Memo()
        return self._memo

    def inputs(self, group: tuple[object, ...], name: str, make: Callable[[], Inputs]) -> tuple[Inputs, Memo]:
        """Return the inputs of the sample `name`, and the cache for results that depend on these inputs.

        Cached inputs are returned if nothing has changed them; else `make` creates new ones. Inputs are not cached if
        they have `grad_outputs`, or a tensor of a layout that `components` does not support.
        """
        self.memo(group)
        inputs, watched, memo = self._made.pop(name, (None, [], Memo()))
        if inputs is None or _any_changed(watched):
            inputs, memo = make(), Memo()
            tensors = tuple(inputs.tensors())
            if inputs.grad_outputs is not None or any(components(tensor) is None for tensor in tensors):
                return inputs, memo
            watched = Watched.all("input", tensors)
        self._made[name] = inputs, watched, memo
        return inputs, memo


def _any_changed(watched: Iterable[Watched]) -> bool:
    try:
        return any(one.change() for one in watched)
    except RuntimeError:  # torch cannot compare tensors of some dtypes
        return True
