"""One ordinary backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def vjp(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], cotangents: Sequence[Tensor], *, create_graph: bool = False
) -> tuple[Tensor, ...]:
    """Return J^T v for each leaf, zeros where a leaf is not used. The graph is kept for another pass.

    A gradient g that torch returns for a cotangent v satisfies Re<v, J dx> = Re<g, dx>, so that in real coordinates
    g = J^T v for complex tensors too (https://pytorch.org/docs/stable/notes/autograd.html, complex autograd).
    """
    pairs = [(output, v) for output, v in zip(outputs, cotangents, strict=True) if output.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    found = torch.autograd.grad(
        [output for output, _ in pairs], leaves, [v for _, v in pairs],
        retain_graph=True, create_graph=create_graph, allow_unused=True,
    )  # fmt: skip
    return tuple(torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True))
