"""The arguments of one sample: the leaves to differentiate with respect to, and all other arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from opcheck.samples.layouts import own


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

    def __call__(self) -> Any:
        """Make the object. Passes on the exceptions of what makes it."""
        return self.make(*self.args, **self.kwargs)


def unchanged(item: Any) -> Any:
    """Return a part of the arguments, or a leaf, as it is."""
    return item


@dataclass(frozen=True)
class Inputs:
    """Arguments with a slot for each leaf. The leaves require grad, unless detached."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: tuple[Tensor, ...]
    slots: tuple[Slot, ...]
    grad_outputs: tuple[Tensor, ...] | None = None

    def fill(
        self, leaves: Sequence[Tensor] | None = None, change: Callable[[Any], Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs, with the given leaves (default: the sample's own) in their slots.

        change: what is applied to all else, as by `mapped`. Default: tensors are copied, so that what a call writes to
        them, no other call reads; and objects are made.
        """
        leaves, change = self.leaves if leaves is None else leaves, change or _ready
        passed = [slot.through(leaves[slot.index]) for slot in self.slots]  # a leaf that is passed twice is one tensor

        def value(item: Any) -> Any:
            return passed[item.index] if isinstance(item, Slot) else change(item)

        return mapped(value, self.args), mapped(value, self.kwargs)

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
        args, kwargs = self.fill([leaf.detach() for leaf in self.leaves], unchanged)
        return listed(args, kwargs, describe)


def _ready(item: Any) -> Any:
    """Return a part of the arguments as a call gets it: a copy of a tensor that does not require grad, an object."""
    if isinstance(item, Tensor) and not item.requires_grad:
        return own(item)
    return item() if isinstance(item, Made) else item


def mapped(change: Callable[[Any], Any], item: Any) -> Any:
    """Return a value with a function applied to what it consists of, in new containers of the same types.

    A `Made` consists of its arguments. The function is applied to them first, and then to a `Made` of the results.
    """
    if type(item) in (list, tuple):  # a named tuple is an object: see `Made`
        return type(item)([mapped(change, part) for part in item])
    if type(item) is dict:
        return {key: mapped(change, part) for key, part in item.items()}
    if isinstance(item, Made):
        item = Made(item.make, mapped(change, item.args), mapped(change, item.kwargs))
    return change(item)


def parts(item: Any) -> list[Any]:
    """Return what a value consists of, as `mapped` sees it."""
    seen: list[Any] = []
    mapped(seen.append, item)
    return seen


def built(item: Any) -> Any:
    """Return a value with its objects made. Passes on the exceptions of making them."""
    return mapped(lambda part: part() if isinstance(part, Made) else part, item)


def written(item: Any, leaf: Callable[[Any], str], name: Callable[[Any], str]) -> str:
    """Return a value as Python code, as far as `mapped` looks into it.

    leaf: writes all else. name: writes what makes an object.
    """

    def text(part: Any) -> str:
        return written(part, leaf, name)

    if type(item) is list:
        return f"[{listed(item, {}, text)}]"
    if type(item) is tuple:
        return f"({listed(item, {}, text)}{',' * (len(item) == 1)})"
    if type(item) is dict:
        return f"{{{', '.join(f'{key!r}: {text(part)}' for key, part in item.items())}}}"
    return f"{name(item.make)}({listed(item.args, item.kwargs, text)})" if isinstance(item, Made) else leaf(item)


def listed(args: Iterable[Any], kwargs: Mapping[str, Any], text: Callable[[Any], str]) -> str:
    """Return arguments as they stand in a call."""
    return ", ".join([*map(text, args), *(f"{name}={text(value)}" for name, value in kwargs.items())])


def describe(value: Any) -> str:
    """Return a value as text. A tensor is described by its dtype, shape and memory layout."""
    return written(value, _described, lambda make: getattr(make, "__name__", "object"))


def _described(value: Any) -> str:
    if isinstance(value, tuple):  # a named one
        return describe(tuple(value))
    if not isinstance(value, Tensor):
        return repr(value)
    text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    layout = str(value.layout).removeprefix("torch.").removeprefix("_")
    if layout != "strided":
        return f"{text} {layout}"
    if not value.is_contiguous():
        text += f" strides {list(value.stride())}"
    return text + (" conj" if value.is_conj() else "") + (" neg" if value.is_neg() else "")
