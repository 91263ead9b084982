"""Surrogates: functions whose derivative is the intended gradient of an operator, in place of its true derivative.

A straight-through estimator has a surrogate such as `x + (round(x) - x).detach()`. Tensors that a surrogate detaches,
or computes under `torch.no_grad()`, are constant for autograd, so they are held constant for finite differences, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DETACHING = (torch.detach, Tensor.detach, Tensor.data.__get__)  # type: ignore[attr-defined]


class Unlike(Exception):
    """Raised if a function is not a surrogate of the operator. The message gives the reason."""


OTHERS = "the surrogate must detach the same number of tensors, with the same shapes, in each call, but they vary"


class Held(TorchFunctionMode):
    """A function whose detached tensors keep their values of the first call, whatever the arguments are.

    During a call, it is the active mode. It replaces the results of detaching, and of operations without grad mode, by
    these constants, in the order of operations. Only changes of grad mode that it intercepts count: autograd.Function
    runs forward without grad mode too, but that is not a decision of the surrogate.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.constants: list[Tensor] | None = None
        self.seen: list[Tensor] = []
        self.without_grad = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result. Raises Unlike if the constants of a later call have other shapes or another number."""
        self.seen, self.without_grad = [], False
        with torch.enable_grad(), self:
            result = self.function(*args, **kwargs)
        if self.constants is None:
            self.constants = self.seen
        elif len(self.seen) < len(self.constants):
            raise Unlike(OTHERS)
        return result

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch.is_grad_enabled()
        result = func(*args, **(kwargs or {}))
        if torch.is_grad_enabled() is not before:
            self.without_grad = before
        elif self.without_grad or (before and func in DETACHING):
            return self._held(result, args)
        return result

    def _held(self, result: Any, args: Sequence[Any]) -> Any:
        """Return the constants for the result of an operation. If it returns an argument, overwrite that."""
        if isinstance(result, (list, tuple)):
            return type(result)([self._held(part, args) for part in result])
        if not isinstance(result, Tensor):
            return result
        constant = self._constant(result)
        return result.copy_(constant) if any(result is arg for arg in args) else constant

    def _constant(self, value: Tensor) -> Tensor:
        if self.constants is not None:
            number = len(self.seen)
            if number >= len(self.constants) or self.constants[number].shape != value.shape:
                raise Unlike(OTHERS)
            value = self.constants[number]
        self.seen.append(value.detach().clone())
        return self.seen[-1].clone()  # a copy, since the function may write to it


def expect_alike(own: Iterable[Tensor], others: Iterable[Tensor]) -> None:
    """Raise Unlike if the outputs of a surrogate differ from those of the operator in number, shapes or dtypes."""
    expected, got = (", ".join(map(_described, outputs)) for outputs in (own, others))
    if expected != got:
        raise Unlike(f"the surrogate returns {got or 'no tensors'}, the operator {expected}")


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
