"""Records the state of a tensor (values, shape, layout, strides, `requires_grad`, `.grad`, hooks) to detect changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from opcheck.samples.layouts import components, equal


@dataclass(frozen=True)
class Watched:
    """A tensor and its recorded state."""

    name: str
    tensor: Tensor
    before: Tensor
    requires_grad: bool
    stride: tuple[int, ...]
    grad: Tensor | None
    hooks: int

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Watched:
        """Record the state of a tensor. `name` is its name in messages."""
        stride = tensor.stride() if tensor.layout is torch.strided else ()
        grad = tensor.grad.clone() if tensor.is_leaf and tensor.grad is not None else None
        return cls(name, tensor, tensor.detach().clone(), tensor.requires_grad, stride, grad, _hooks(tensor))

    @classmethod
    def all(cls, kind: str, tensors: Iterable[Tensor]) -> list[Watched]:
        """Record the state of several tensors, with names made of `kind` (such as "output") and a number."""
        return [cls.of(f"{kind} {index}", tensor) for index, tensor in enumerate(tensors)]

    def change(self, now: Tensor | None = None) -> str:
        """Return a description of the first change; an empty string if there is none.

        now: another tensor to compare with the recorded state. Default: the tensor itself.
        """
        now = self.tensor if now is None else now
        if now.requires_grad != self.requires_grad:
            return f"{self.name} {'requires' if now.requires_grad else 'no longer requires'} grad"
        if now.shape != self.before.shape or (now.layout is torch.strided and now.stride() != self.stride):
            return f"{self.name} has another shape or other strides"
        if now.layout is not self.before.layout or (now.is_sparse and now.is_coalesced() != self.before.is_coalesced()):
            return f"{self.name} has another layout"
        if not _equal(now.detach(), self.before):
            return f"{self.name} has other values"
        if _hooks(now) != self.hooks:
            return f"{self.name} has another hook, or retains its gradient"
        grad = now.grad if now.is_leaf else None
        if self.grad is None:
            return f"{self.name} has a gradient in .grad" if grad is not None else ""
        return "" if grad is not None and _equal(grad, self.grad) else f"{self.name} has another gradient in .grad"


def _hooks(tensor: Tensor) -> int:
    """Return the number of functions that run when the gradient of a tensor is known; keeping it counts as one."""
    hooks = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
    return sum(len(own) for own in hooks if own) + tensor.retains_grad


def _equal(now: Tensor, before: Tensor) -> bool:
    if now.layout is not torch.strided:
        pairs = zip(components(now) or (now.to_dense(),), components(before) or (before.to_dense(),), strict=True)
        return all(_equal(one, other) for one, other in pairs)
    if equal(now, before):
        return True
    return now.shape == before.shape and bool(((now == before) | ((now != now) & (before != before))).all())
