"""Dual numbers of forward mode, typed: `torch.autograd.forward_ad` has no annotations."""

from __future__ import annotations

from typing import Any

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
