"""A call of an operator, as conditions receive it: its arguments by name, its tensors and its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.attempts import Attempt
from opcheck.samples.arguments import Signature
from opcheck.samples.inputs import parts
from opcheck.samples.results import differentiable


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an operator: its arguments and its outputs."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    signature: Signature
    outputs: tuple[Tensor, ...]
    """The outputs of floating or complex dtype."""

    @classmethod
    def of(cls, attempt: Attempt, signature: Signature) -> Call | None:
        """Return the call of an attempt; None if the operator refused it, or if no output requires grad."""
        if attempt.subject is None or not any(output.requires_grad for output in attempt.outputs):
            return None
        args, kwargs = attempt.subject.inputs.fill()
        return cls(args, kwargs, signature, differentiable(attempt.outputs))

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors among the arguments."""
        return tuple(part for part in parts([list(self.args), self.kwargs]) if isinstance(part, Tensor))

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The strided, not nested tensors of floating or complex dtype among the arguments."""
        return tuple(x for x in differentiable(self.tensors) if x.layout is torch.strided and not x.is_nested)

    @cached_property
    def indices(self) -> tuple[Tensor, ...]:
        """The tensors of integers among the arguments."""
        return tuple(x for x in self.tensors if not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool))

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, as far as the names are known, with the defaults of those that are not passed."""
        return {
            **self.signature.defaults,
            **dict(zip(self.signature.positional, self.args, strict=False)),
            **self.kwargs,
        }

    def sets(self, keyword: str) -> bool:
        """Return whether a keyword is passed, with a value other than its default."""
        default = self.signature.defaults.get(keyword)
        value = self.arguments.get(keyword, default)
        if isinstance(value, Tensor) or isinstance(default, Tensor):
            return value is not default
        return type(value) is not type(default) or bool(value != default)

    @property
    def has_numbers(self) -> bool:
        """Whether inputs and outputs have elements, so that there is something to compare."""
        return any(x.numel() for x in self.inputs) and any(output.numel() for output in self.outputs)

    @property
    def broadcasts(self) -> bool:
        """Whether the inputs can be broadcast together, and their shapes differ."""
        try:
            shape = torch.broadcast_shapes(*(x.shape for x in self.inputs))  # type: ignore[no-untyped-call]
        except RuntimeError:
            return False
        return any(x.shape != shape for x in self.inputs)
