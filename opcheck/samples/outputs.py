"""Which outputs of an operator are tested, and maps that make ambiguous ones comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from opcheck.spec.claims import Outputs


def flatten(result: Any) -> tuple[Tensor, ...]:
    """Return the tensors of a result, in order: of (nested) tuples, lists and dicts; everything else is left out."""
    if isinstance(result, Tensor):
        return (result,)
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        return tuple(tensor for item in result for tensor in flatten(item))
    return ()


def gauge_invariant(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Replace matrices of eigenvectors and singular vectors by absolute values: what arbitrary phases leave alone.

    Eigenvalues and singular values, which have a dimension less, stay as they are.
    """
    most = max((output.dim() for output in outputs), default=0)
    return tuple(_abs(output) if output.dim() == most else output for output in outputs)


def _abs(output: Tensor) -> Tensor:
    return output if output.dtype is torch.bool else output.abs()


def _values(output: Tensor) -> Tensor:
    if output.layout is torch.strided:
        return output
    return (output.coalesce() if output.layout is torch.sparse_coo else output).values()


def _each(function: Callable[[Tensor], Tensor]) -> Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]:
    return lambda outputs: tuple(function(output) for output in outputs)


def _dense(masked: bool) -> Callable[[Tensor], Tensor]:
    return lambda output: output if output.layout is torch.strided else output.to_dense(masked_grad=masked)


def select(result: Any, spec: Outputs, masked: bool = False) -> tuple[Tensor, ...]:
    """Return the outputs under test."""
    outputs: tuple[Tensor, ...] = flatten(result)
    if spec.select is not None:
        outputs = tuple(outputs[index] for index in spec.select)
    if spec.apply is not None:
        outputs = _maps(masked)[spec.apply](outputs)
    return outputs


def _maps(masked: bool) -> dict[str, Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]]:
    return {
        "abs": _each(_abs),
        "real": _each(lambda output: output.real if output.is_complex() else output),
        "gauge_invariant": gauge_invariant,
        "to_dense": _each(_dense(masked)),
        "values": _each(_values),
    }


def differentiable(outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs of floating or complex dtype."""
    return tuple(output for output in outputs if output.is_floating_point() or output.is_complex())
