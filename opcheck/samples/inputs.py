"""The arguments of one sample: the leaves to differentiate with respect to, and all other arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from opcheck.samples.memory import own


@dataclass(frozen=True)
class Slot:
    """The position of a leaf among the arguments."""

    index: int
    path: tuple[int | str, ...]
    """Its path, such as ("args", 0) or ("kwargs", "weight"), followed by positions in lists."""
    through: Callable[[Tensor], Tensor]
    """The map from the leaf to the value that is passed to the operator."""


@dataclass(frozen=True)
class Made:
    """An object with tensors in it. It is made anew for each call, of the leaves of that call."""

    make: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]

    def describe(self) -> str:
        """Return the call that makes it as text."""
        return f"{getattr(self.make, '__name__', 'object')}({_listed(self.args, self.kwargs)})"


Make = Callable[[Callable[..., Any], list[Any], dict[str, Any]], Any]


def as_it_is(item: Any) -> Any:
    """Return a part of the arguments as it is."""
    return item


@dataclass(frozen=True)
class Inputs:
    """Arguments with a slot for each leaf. The leaves require grad, unless detached."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: tuple[Tensor, ...]
    slots: tuple[Slot, ...]
    grad_outputs: tuple[Tensor, ...] | None = None

    def fill(self, leaves: Sequence[Tensor] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs, with the given leaves (default: the sample's own) in their slots.

        Other tensors are copies: what a call writes to them, no other call reads.
        """
        return self.in_slots(self.leaves if leaves is None else leaves, called, apart)

    def in_slots(
        self, leaves: Sequence[Tensor], make: Make = Made, change: Callable[[Any], Any] = as_it_is
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs with leaves in their slots, and a function applied to all else.

        No object is made yet, unless `make` is `called`.
        """
        passed: dict[int, Any] = {}

        def value(item: Any) -> Any:
            if not isinstance(item, Slot):
                return change(item)
            if item.index not in passed:  # a slot in two places is one tensor
                passed[item.index] = item.through(leaves[item.index])
            return passed[item.index]

        return mapped(value, self.args, make), mapped(value, self.kwargs, make)

    def changed(self, change: Callable[[Any], Any]) -> Inputs:
        """Return the same inputs, with a function applied to each slot, tensor and plain value in the arguments."""
        return replace(self, args=mapped(change, self.args), kwargs=mapped(change, self.kwargs))

    def tensors(self) -> Iterator[Tensor]:
        """Yield the leaves, and the tensors among the arguments that are none."""
        yield from self.leaves
        yield from (part for part in parts([self.args, self.kwargs]) if isinstance(part, Tensor))

    def detached(self) -> Inputs:
        """Return the same inputs, with leaves that do not require grad."""
        return replace(self, leaves=tuple(leaf.detach() for leaf in self.leaves))

    def describe(self) -> str:
        """Return the arguments as text: dtypes, shapes, and strides of non-contiguous tensors."""
        return _listed(*self.in_slots(tuple(leaf.detach() for leaf in self.leaves)))


def apart(item: Any) -> Any:
    """Return a copy of a tensor that does not require grad; anything else as it is."""
    return own(item) if isinstance(item, Tensor) and not item.requires_grad else item


def called(make: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return the object that a `Made` stands for. Passes on the exceptions of making it."""
    return make(*args, **kwargs)


def mapped(change: Callable[[Any], Any], item: Any, make: Make = Made) -> Any:
    """Return a value with a function applied to what it consists of, in new containers of the same types.

    make: what becomes of a `Made`, given the same parts: another one by default, or the object, by `called`.
    """
    if type(item) in (list, tuple):  # a named tuple is an object: see `Made`
        return type(item)(mapped(change, part, make) for part in item)
    if type(item) is dict:
        return {key: mapped(change, part, make) for key, part in item.items()}
    if isinstance(item, Made):
        return make(item.make, mapped(change, item.args, make), mapped(change, item.kwargs, make))
    return change(item)


def parts(item: Any) -> Iterator[Any]:
    """Yield what a value consists of, as `mapped` sees it."""
    if type(item) in (list, tuple):
        for part in item:
            yield from parts(part)
    elif type(item) is dict:
        yield from parts([*item.values()])
    elif isinstance(item, Made):
        yield from parts([item.args, item.kwargs])
    else:
        yield item


def built(item: Any) -> Any:
    """Return a value with its objects made. Passes on the exceptions of making them."""
    return mapped(lambda part: part, item, called)


def _listed(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    return ", ".join([*map(describe, args), *(f"{name}={describe(value)}" for name, value in kwargs.items())])


def describe(value: Any) -> str:
    """Return a value as text. A tensor is described by its dtype, shape and memory layout."""
    if isinstance(value, Made):
        return value.describe()
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(describe(item) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if not isinstance(value, Tensor):
        return repr(value)
    text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    layout = str(value.layout).removeprefix("torch.").removeprefix("_")
    if layout != "strided":
        return f"{text} {layout}"
    if not value.is_contiguous():
        text += f" strides {list(value.stride())}"
    return text + (" conj" if value.is_conj() else "") + (" neg" if value.is_neg() else "")
