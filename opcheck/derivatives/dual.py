"""Dual numbers of forward mode, typed: `torch.autograd.forward_ad` has no annotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor

_untyped: Any = fwad
dual_level = fwad.dual_level


def make_dual(primal: Tensor, tangent: Tensor) -> Tensor:
    """Return a tensor that carries a tangent of its shape."""
    dual: Tensor = _untyped.make_dual(primal, tangent)
    return dual


def tangent_of(tensor: Tensor) -> Tensor | None:
    """Return the tangent that a tensor carries; None where it carries none, which stands for zero."""
    tangent: Tensor | None = _untyped.unpack_dual(tensor).tangent
    # torch stands for zeros that nobody has looked at by tensors without memory.
    return None if tangent is None or tangent._is_zerotensor() else tangent


def pushed(
    function: Callable[..., tuple[Tensor, ...]], primals: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the outputs and their tangents by one call with dual numbers, zeros where there is none.

    A primal whose tangent is None goes in without one.
    """
    with dual_level():
        given = zip(primals, tangents, strict=True)
        outputs = function(*(primal if t is None else make_dual(primal, t) for primal, t in given))
        found = [tangent_of(output) for output in outputs]
    return outputs, tuple(torch.zeros_like(y) if t is None else t for t, y in zip(found, outputs, strict=True))


def jvp(
    function: Callable[..., tuple[Tensor, ...]], primals: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """Return the tangents of the outputs, as `pushed` does."""
    return pushed(function, primals, tangents)[1]
