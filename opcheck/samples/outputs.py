"""Selects the outputs to test, and applies maps that make ambiguous outputs comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from opcheck.samples.results import Untestable, flatten, named, names_among
from opcheck.spec.claims import Outputs

T = TypeVar("T")


def gauge_invariant(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Replace matrices of eigenvectors and singular vectors by their absolute values, which do not depend on phases.

    Eigenvalues and singular values, which have one dimension less, are unchanged.
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
    """Return the outputs to test. Raises Untestable if there are none."""
    outputs = _chosen(flatten(result), spec)
    return outputs if spec.apply is None else _maps(masked)[spec.apply](outputs)


def names(result: Any, spec: Outputs) -> tuple[str, ...]:
    """Return the names of the outputs to test, such as `.loss` and `['logits']`; empty if they only have positions."""
    return names_among(_chosen([path for path, _ in named(result)], spec))


def _chosen(outputs: Sequence[T], spec: Outputs) -> tuple[T, ...]:
    if spec.select is None:
        return tuple(outputs)
    count = len(outputs)
    missing = [index for index in spec.select if not -count <= index < count]
    if missing:
        raise Untestable(f"outputs.select names output {missing[0]}, but the operator returned {count} tensors")
    return tuple(outputs[index] for index in spec.select)


def _maps(masked: bool) -> dict[str, Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]]:
    return {
        "abs": _each(_abs),
        "real": _each(lambda output: output.real if output.is_complex() else output),
        "gauge_invariant": gauge_invariant,
        "to_dense": _each(_dense(masked)),
        "values": _each(_values),
    }


def differentiable(outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs with a floating or complex dtype."""
    return tuple(output for output in outputs if output.is_floating_point() or output.is_complex())


def with_gradient(outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs that have a backward pass."""
    return tuple(output for output in differentiable(outputs) if output.requires_grad)
