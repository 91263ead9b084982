"""Records the gradients that backward functions in Python return, before autograd casts them to the input's dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction, Function

from opcheck.derivatives.autodiff import functions_in, nodes_of
from opcheck.samples.results import with_gradient


@dataclass(frozen=True)
class RawGradient:
    """A gradient as a backward function returned it, with the dtype and device of its input."""

    function: str
    """The name of the class of the autograd node."""
    position: int
    """The index among the gradients that the backward function returned."""
    gradient: Tensor
    dtype: torch.dtype
    """The dtype of the input."""
    device: torch.device
    """The device of the input."""

    @property
    def converted(self) -> str:
        """The explanation for messages if the gradient and its input differ in dtype."""
        return f"gradient {self.position} of the backward function; autograd converts it silently, and digits are lost"


def have_batching_rule(outputs: tuple[Tensor, ...]) -> bool:
    """Return whether a custom `torch.autograd.Function` in the graph of outputs has a vmap rule of its own."""
    return any(type(node)._forward_cls.vmap is not Function.vmap for node in functions_in(outputs))


def have_own_backward(outputs: tuple[Tensor, ...]) -> bool:
    """Return whether a backward pass in the graph of outputs is not torch's own, but of a function in Python or C++."""
    return any(isinstance(node, BackwardCFunction) or "CppNode" in node.name() for node in nodes_of(outputs))


def raw_gradients(outputs: tuple[Tensor, ...], leaves: tuple[Tensor, ...]) -> list[RawGradient]:
    """Run one backward pass of `outputs` and return the gradients that each Python function in the graph returns.

    The autograd engine silently converts a gradient of the wrong dtype (`validate_outputs` in
    torch/csrc/autograd/engine.cpp), so a float32 gradient for a float64 input shows only as lost digits. Therefore, the
    gradient is recorded where the function returns it.
    """
    gradients: list[RawGradient] = []
    nodes = functions_in(outputs)
    if not nodes:
        return gradients
    for node in nodes:
        _watch(node, gradients)
    smooth = with_gradient(outputs)
    torch.autograd.grad(smooth, leaves, [torch.ones_like(output) for output in smooth], allow_unused=True)
    return gradients


def _watch(node: Any, gradients: list[RawGradient]) -> None:
    """Wrap `apply` of a node, so that the gradients that it returns are appended to `gradients`.

    The engine looks up `apply` on the node itself, so that replacing the attribute suffices. Since torch 2.14, it calls
    `apply_boxed` instead, with a list of cotangents, for a function with `boxed_grads_call`.
    """
    # The arguments that need a gradient and the non-empty edges are in the same order.
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
