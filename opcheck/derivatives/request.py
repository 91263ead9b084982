"""`Request`: a function, the tensors to differentiate it at, and how much to compute."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Literal, TypeVar

import torch
from torch import Tensor

from opcheck.derivatives.tolerances import Numbers

Function = Callable[..., tuple[Tensor, ...]]
"""A function of leaves that returns outputs, all of them tensors of any shape. If it has an attribute `surrogate`,
differences are taken of that function instead: the one whose derivative it is meant to have."""


def surrogate_of(function: Function) -> Function | None:
    """Return the `surrogate` of a function, of which differences are taken in its place; None if it has none."""
    own: Function | None = getattr(function, "surrogate", None)
    return own


MATRICES = 32
"""The number of matrices of the size of the whole Jacobian that are assumed to be in memory at a time: directions,
values at the stencil, the Jacobian by each mode, and temporaries of the comparison. Measured: 22 to 37."""

COMPRESSED = 16
"""The number of matrices of shape (directions, coordinates) that are assumed to be in memory at a time, where one
direction serves many slices (see `Coverage.allows_compressed`)."""

COPIES = 16
"""The number of tensors of the size of inputs and outputs that an operator is assumed to need at a time."""


class TooLarge(Exception):
    """A sample needs more memory than the settings allow. The message states how much, and which setting to raise."""


NO_REFUSAL = (TooLarge, MemoryError, torch.OutOfMemoryError)
"""Exceptions that do not show what a function supports."""


T = TypeVar("T")


def tried(call: Callable[[], T], *, in_any_memory: bool = False) -> T | Exception:
    """Return the result of a call, or the exception that it raises.

    in_any_memory: whether to return a lack of memory (NO_REFUSAL), too, for callers that can do with less memory.

    Raises NO_REFUSAL otherwise, and bugs of opcheck itself (see `is_bug_of_opcheck`).
    """
    try:
        return call()
    except Exception as error:
        for_memory = issubclass(type(error), NO_REFUSAL)  # `type()`, since its __class__ may raise
        if is_bug_of_opcheck(error) or (for_memory and not in_any_memory):
            raise
        return error


def is_bug_of_opcheck(error: BaseException) -> bool:
    """Return whether an exception is a bug in opcheck itself, rather than an error of the operator.

    It is if it was raised in opcheck and has a type that torch does not raise for the outputs of an operator (such as
    NameError), or if it was raised in a folder whose code never handles tensors.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    place = frames[-1].f_code.co_filename if frames else ""
    kinds = (NameError, AttributeError, ImportError, AssertionError)
    is_of_a_kind = issubclass(type(error), kinds)
    return place.startswith(PACKAGE if is_of_a_kind else WITHOUT_TENSORS)


# Strings, which compare faster than paths: each refused sample is compared with them.
PACKAGE = f"{Path(__file__).resolve().parent.parent}{os.sep}"
WITHOUT_TENSORS = tuple(f"{Path(PACKAGE, folder)}{os.sep}" for folder in ("spec", "planning", "samples/derive"))
"""The folders whose code never handles tensors."""


Extent = Literal["full", "structured", "projected"]
"""How much of a Jacobian is compared. full: all entries; structured: all entries that can be nonzero where slices of
the inputs are independent; projected: random projections."""


@dataclass(frozen=True)
class Coverage:
    """How much of a Jacobian is computed, and in how much memory."""

    jacobian: Literal["full", "projected", "auto"] = "auto"
    """full: the whole Jacobian; projected: its products with random directions; auto: the whole Jacobian up to
    `largest`, above that all entries that can be nonzero if slices of the inputs are independent, else products."""
    largest: int = 512
    """The largest number of real coordinates, of inputs and of outputs, for which auto means the whole Jacobian."""
    projections: int = 8
    """The number of random directions on each side."""
    memory: int = 1 << 28
    """The maximum number of bytes of a batch, as estimated by `chunk`, and of a Jacobian that is full or compressed."""

    def directions(self, size: tuple[int, int]) -> int | None:
        """Return the number of random directions on each side of a Jacobian of shape (M, N); None for a whole one.

        Raises TooLarge if "full" is requested and does not fit into `memory`.
        """
        needed = 8 * MATRICES * size[0] * size[1]
        if self.jacobian == "full" and needed > self.memory:
            raise TooLarge(
                f"the whole Jacobian of shape {tuple(size)} takes about {_mebibytes(needed)} MiB, at most "
                f"{_mebibytes(self.memory)} are allowed (batch_memory of [tool.opcheck]): make the sample smaller, or "
                'choose jacobian = "projected"'
            )
        if self.jacobian == "full":
            return None
        return None if self.jacobian == "auto" and max(size) <= self.largest else self.projections

    def allows_compressed(self, size: tuple[int, int], *directions: int) -> bool:
        """Return whether all entries of a Jacobian of shape (M, N) may be computed with these numbers of directions."""
        return max(directions) <= self.largest and 8 * COMPRESSED * max(size) * max(directions) <= self.memory

    def chunk(self, size: tuple[int, int]) -> int:
        """Return the number of points to evaluate per batch, for a Jacobian of shape (M, N)."""
        return max(1, self.memory // (8 * COPIES * max(1, sum(size))))


def _mebibytes(count: int) -> int:
    return -(-count >> 20)


AUTO = Coverage()


@dataclass(frozen=True)
class Request:
    """A function at some leaves, which require grad, and how to compare its derivatives."""

    function: Function
    leaves: tuple[Tensor, ...]
    numbers: Numbers
    grad_outputs: tuple[Tensor, ...] | None = None
    """Cotangents for second order; None: random ones."""
    masked: bool = False
    """Whether unspecified elements of sparse leaves are left out of the derivative."""
    forward_ad: bool = True
    """Whether the function is claimed to support forward mode. If not, checks of both modes test reverse mode only."""
    undefined_grad: bool = True
    """Whether second order includes undefined cotangents."""
    by_torch: bool = False
    """Whether torch's own gradcheck and gradgradcheck test the claim: a second opinion."""
    fast_mode: bool = False
    raise_exception: bool = True
    non_contiguous: tuple[bool, ...] = (False, True)
    """For second order: whether generated cotangents have gaps in memory. Each of these values is tested."""
    coverage: Coverage = AUTO
    whole: tuple[str, ...] = ()
    """The names of derivatives of higher order whose whole Jacobians are compared. For others, a look along one random
    direction comes first: the whole Jacobian is compared only if the look fails."""
    names: tuple[str, ...] = ()
    """The names of the outputs, such as `.loss` and `['logits']`; empty: they are labeled by position."""
    reference: Function | None = None
    """Another function of the leaves with the same outputs, which autograd can differentiate; None if there is none."""
    expected: bool = False
    """Whether a disagreement is expected, so that confirming its worst entry is enough."""
    leaf_names: tuple[str, ...] = ()
    """The names of the leaves, such as `weight`; empty: they are labeled by position."""
