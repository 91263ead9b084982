"""The arguments of one sample: the leaves to differentiate with respect to, and all other arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Slot:
    """The position of a leaf among the arguments."""

    index: int
    path: tuple[int | str, ...]
    """Its path, such as ("args", 0) or ("kwargs", "weight"), followed by positions in lists."""
    through: Callable[[Tensor], Tensor]
    """The map from the leaf to the value that is passed to the operator."""


@dataclass(frozen=True)
class Inputs:
    """Arguments with a slot for each leaf. The leaves require grad, unless detached."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: tuple[Tensor, ...]
    slots: tuple[Slot, ...]
    grad_outputs: tuple[Tensor, ...] | None = None

    def fill(self, leaves: Sequence[Tensor] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs, with the given leaves (default: the sample's own) in their slots."""
        values = self.leaves if leaves is None else leaves
        args: tuple[Any, ...] = tuple(_filled(item, values) for item in self.args)
        return args, {name: _filled(item, values) for name, item in self.kwargs.items()}

    def detached(self) -> Inputs:
        """Return the same inputs, with leaves that do not require grad."""
        leaves = tuple(leaf.detach() for leaf in self.leaves)
        return Inputs(self.args, self.kwargs, leaves, self.slots, self.grad_outputs)

    def describe(self) -> str:
        """Return the arguments as text: dtypes, shapes, and strides of non-contiguous tensors."""
        args, kwargs = self.fill(tuple(leaf.detach() for leaf in self.leaves))
        parts = [describe(arg) for arg in args] + [f"{name}={describe(value)}" for name, value in kwargs.items()]
        return ", ".join(parts)


def _filled(item: Any, leaves: Sequence[Tensor]) -> Any:
    if isinstance(item, Slot):
        return item.through(leaves[item.index])
    if type(item) in (list, tuple):  # no named tuple, which has no leaves in it
        return type(item)(_filled(part, leaves) for part in item)
    return item


def describe(value: Any) -> str:
    """Return a value as text. A tensor is described by its dtype, shape and memory layout."""
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
