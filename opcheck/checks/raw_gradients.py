"""What backward functions written in Python return, before autograd casts it to the dtype of the input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from opcheck.derivatives.autodiff import nodes_of


@dataclass(frozen=True)
class RawGradient:
    """One gradient, as a backward function returned it, and the dtype and device that its input has."""

    function: str
    position: int
    gradient: Tensor
    dtype: torch.dtype
    device: torch.device

    @property
    def converted(self) -> str:
        """What happens to one of another dtype than that of its input."""
        return f"gradient {self.position} of the backward function; autograd converts it silently, and digits are lost"


def functions_of(outputs: tuple[Tensor, ...]) -> list[Any]:
    """Return the nodes of autograd functions written in Python in the graph of some outputs."""
    return [node for node in nodes_of(outputs) if isinstance(node, BackwardCFunction)]


def raw_gradients(outputs: tuple[Tensor, ...], leaves: tuple[Tensor, ...]) -> list[RawGradient]:
    """Run one backward pass over `outputs`, and return the gradients of every Python function on the way.

    The engine of autograd silently converts a gradient of the wrong dtype (`validate_outputs` in
    torch/csrc/autograd/engine.cpp), so that a float32 gradient for a float64 input shows only as lost digits. Here the
    gradient is looked at where it is returned.
    """
    gradients: list[RawGradient] = []
    nodes = functions_of(outputs)
    if not nodes:
        return gradients
    for node in nodes:
        _watch(node, gradients)
    differentiable = [output for output in outputs if output.requires_grad]
    cotangents = [torch.ones_like(output) for output in differentiable]
    torch.autograd.grad(differentiable, leaves, cotangents, allow_unused=True)
    return gradients


def _watch(node: Any, gradients: list[RawGradient]) -> None:
    """Record what a node's backward returns. The engine looks `apply` up on the node itself.

    Since torch 2.14 it calls `apply_boxed` instead, with a list of cotangents, for a function with `boxed_grads_call`.
    """
    # Arguments that need a gradient and edges that lead somewhere stand in the same order.
    needing = [position for position, needed in enumerate(node.needs_input_grad) if needed]
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    expected = {position: _expected(*edge) for position, edge in zip(needing, edges, strict=False)}

    def watched(apply: Callable[..., Any], *cotangents: Any) -> Any:
        result = apply(*cotangents)
        for position, gradient in enumerate(result if isinstance(result, tuple) else (result,)):
            target = expected.get(position)
            if isinstance(gradient, Tensor) and target is not None:
                gradients.append(RawGradient(type(node).__name__, position, gradient.detach(), *target))
        return result

    for name in ("apply", "apply_boxed"):
        if hasattr(node, name):
            setattr(node, name, partial(watched, getattr(node, name)))


def _expected(node: Any, number: int) -> tuple[torch.dtype, torch.device] | None:
    variable = getattr(node, "variable", None)
    if variable is not None:
        return variable.dtype, variable.device
    metadata = getattr(node, "_input_metadata", ())
    return (metadata[number].dtype, metadata[number].device) if number < len(metadata) else None
