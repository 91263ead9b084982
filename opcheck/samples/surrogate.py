"""A function whose derivative is what an operator's gradient should be, where that is not the operator's derivative.

What such a function detaches is held constant, as autograd does: its differences are then those of `x + (round(x) -
x).detach()`, say, as a straight-through estimator is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DETACHING = (torch.detach, Tensor.detach, Tensor.data.__get__)  # type: ignore[attr-defined]


class Unlike(Exception):
    """A surrogate is no surrogate of the operator. The text says why."""


class Held:
    """A function in which what it detaches is as at the first call, whatever the arguments are."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.constants: list[Tensor] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result for some arguments. Raises Unlike if it detaches other tensors than at first."""
        with _Holding(self.constants) as holding:
            result = self.function(*args, **kwargs)
        if self.constants is None:
            self.constants = holding.seen
        elif len(holding.seen) < len(self.constants):
            raise Unlike(OTHERS)
        return result


OTHERS = "the surrogate detaches other tensors for other values: what is to be held constant is not known"


class _Holding(TorchFunctionMode):
    """Puts constants in place of what is detached, in the order of calls; None: there are none yet."""

    def __init__(self, constants: Sequence[Tensor] | None) -> None:
        super().__init__()
        self.constants = constants
        self.seen: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in DETACHING:
            return result
        if self.constants is not None:
            number = len(self.seen)
            if number >= len(self.constants) or self.constants[number].shape != result.shape:
                raise Unlike(OTHERS)
            result = self.constants[number]
        self.seen.append(result.clone())
        return self.seen[-1].clone()  # which the function may write to


def expect_alike(own: Iterable[Tensor], others: Iterable[Tensor]) -> None:
    """Raise Unlike if the outputs of a surrogate differ from those of the operator in number, shapes or dtypes."""
    expected, got = (", ".join(map(_described, outputs)) for outputs in (own, others))
    if expected != got:
        raise Unlike(f"the surrogate returns {got or 'no tensors'}, the operator {expected}")


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
