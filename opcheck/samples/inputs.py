"""The arguments of a sample: the leaves to differentiate with respect to, and all other arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from opcheck.samples.layouts import own
from opcheck.spec.positions import KeyPath


@dataclass(frozen=True)
class Slot:
    """The position of a leaf among the arguments."""

    index: int
    path: KeyPath
    """The path of the argument, such as ("args", 0) or ("kwargs", "weight"), followed by positions in containers."""
    through: Callable[[Tensor], Tensor]
    """The map from the leaf to the value that is passed to the operator."""


@dataclass(frozen=True)
class Made:
    """An object that contains tensors. It is constructed anew for each call, from the leaves of the call."""

    make: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        """Return a new object. Passes on the exceptions of `make`."""
        return self.make(*self.args, **self.kwargs)


def unchanged(item: Any) -> Any:
    """Return the argument unchanged."""
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

        change: function to apply to all other parts, as `mapped` does. Default: copy tensors, so that a call that
            writes to them does not affect other calls, and construct objects.
        """
        leaves, change = self.leaves if leaves is None else leaves, change or _ready
        passed = [slot.through(leaves[slot.index]) for slot in self.slots]  # a leaf passed twice is one tensor

        def value(item: Any) -> Any:
            return passed[item.index] if isinstance(item, Slot) else change(item)

        return mapped(value, self.args), mapped(value, self.kwargs)

    def changed(self, change: Callable[[Any], Any]) -> Inputs:
        """Return inputs with a function applied to each slot, tensor and plain value in the arguments."""
        return replace(self, args=mapped(change, self.args), kwargs=mapped(change, self.kwargs))

    def tensors(self) -> Iterator[Tensor]:
        """Yield the leaves, then the tensors among the arguments that are not leaves."""
        yield from self.leaves
        yield from (part for part in parts([self.args, self.kwargs]) if isinstance(part, Tensor))

    def detached(self) -> Inputs:
        """Return inputs with detached leaves, which do not require grad."""
        return replace(self, leaves=tuple(leaf.detach() for leaf in self.leaves))

    def describe(self) -> str:
        """Return a description of the arguments: dtypes, shapes, and strides of non-contiguous tensors."""
        args, kwargs = self.fill([leaf.detach() for leaf in self.leaves], unchanged)
        return listed(args, kwargs, describe)


def _ready(item: Any) -> Any:
    """Return a part as passed to a call: a copy of a tensor that does not require grad, the object of a `Made`."""
    if isinstance(item, Tensor) and not item.requires_grad:
        return own(item)
    return item() if isinstance(item, Made) else item


def mapped(change: Callable[[Any], Any], item: Any) -> Any:
    """Return a value with a function applied to its parts, in new containers (lists, tuples, dicts) of the same types.

    For a `Made`, the function is applied to the parts of its arguments, then to a `Made` with the results.
    """
    if type(item) in (list, tuple):  # a named tuple is a single part
        return type(item)([mapped(change, part) for part in item])
    if type(item) is dict:
        return {key: mapped(change, part) for key, part in item.items()}
    if isinstance(item, Made):
        item = Made(item.make, mapped(change, item.args), mapped(change, item.kwargs))
    return change(item)


def parts(item: Any) -> list[Any]:
    """Return the parts of a value to which `mapped` applies a function, in order."""
    seen: list[Any] = []
    mapped(seen.append, item)
    return seen


def built(item: Any) -> Any:
    """Return a value with the object of each `Made` constructed. Passes on exceptions."""
    return mapped(lambda part: part() if isinstance(part, Made) else part, item)


def code_of(item: Any, leaf: Callable[[Any], str], name: Callable[[Any], str]) -> str:
    """Return Python code for a value.

    leaf: returns the code for a part, in the sense of `mapped`. name: returns the code for `Made.make`.
    """

    def text(part: Any) -> str:
        return code_of(part, leaf, name)

    if type(item) is list:
        return f"[{listed(item, {}, text)}]"
    if type(item) is tuple:
        return f"({listed(item, {}, text)}{',' * (len(item) == 1)})"
    if type(item) is dict:
        return f"{{{', '.join(f'{key!r}: {text(part)}' for key, part in item.items())}}}"
    return f"{name(item.make)}({listed(item.args, item.kwargs, text)})" if isinstance(item, Made) else leaf(item)


def listed(args: Iterable[Any], kwargs: Mapping[str, Any], text: Callable[[Any], str]) -> str:
    """Return the argument list of a call as text, as in `x, dim=0`."""
    return ", ".join([*map(text, args), *(f"{name}={text(value)}" for name, value in kwargs.items())])


def describe(value: Any) -> str:
    """Return a description of a value. A tensor is described by its dtype, shape and memory layout."""
    return code_of(value, _described, lambda make: getattr(make, "__name__", "object"))


def _described(value: Any) -> str:
    if isinstance(value, tuple):  # a named tuple
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
