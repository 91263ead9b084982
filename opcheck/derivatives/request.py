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
"""Leaves in, outputs out, both tensors of any shape. Its attribute `surrogate`, if it has one, is the function that
differences are taken of in its place: the one whose derivative it is meant to have."""


def surrogate_of(function: Function) -> Function | None:
    """Return the function that differences are taken of in place of another one; None: there is none."""
    own: Function | None = getattr(function, "surrogate", None)
    return own


MATRICES = 32
"""How many matrices of the size of the whole Jacobian are assumed to be in memory at a time: directions, values at the
stencil, the Jacobian by each mode, and temporaries of the comparison. Measured: 22 to 37."""

COMPRESSED = 16
"""The same for a matrix of directions by coordinates, where directions are fewer."""

COPIES = 16
"""How many tensors of the size of inputs and outputs an operator is assumed to need at a time."""


class TooLarge(Exception):
    """A sample needs more than the settings allow. The text says what, and which setting allows more."""


NO_REFUSAL = (TooLarge, MemoryError, torch.OutOfMemoryError)
"""Exceptions that say nothing about what a function supports."""


T = TypeVar("T")


def tried(call: Callable[[], T], *, in_any_memory: bool = False) -> T | Exception:
    """Return what a call returns, or the exception by which the function refuses it.

    in_any_memory: whether a lack of memory is returned, too, as where the same can be had in less.

    Raises NO_REFUSAL, and mistakes of opcheck itself.
    """
    try:
        return call()
    except Exception as error:
        for_memory = issubclass(type(error), NO_REFUSAL)  # its __class__ may raise
        if is_own(error) or (for_memory and not in_any_memory):
            raise
        return error


def is_own(error: BaseException) -> bool:
    """Tell whether an exception is a mistake in opcheck itself, and not what an operator raises.

    Where torch is called with what an operator has returned, it is if its kind is one that torch does not raise.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    place = frames[-1].f_code.co_filename if frames else ""
    kinds = (NameError, AttributeError, ImportError, AssertionError)
    is_of_a_kind = issubclass(type(error), kinds)
    return place.startswith(PACKAGE if is_of_a_kind else WITHOUT_TENSORS)


# As text, since each sample that an operator refuses is compared with them.
PACKAGE = f"{Path(__file__).resolve().parent.parent}{os.sep}"
WITHOUT_TENSORS = tuple(f"{Path(PACKAGE, folder)}{os.sep}" for folder in ("spec", "planning", "samples/derive"))
"""The folders whose code never has a tensor."""


Extent = Literal["full", "structured", "projected"]
"""How much of a Jacobian is compared: all of its entries, all that can be other than zero where slices of the inputs
are independent, or random projections."""


@dataclass(frozen=True)
class Coverage:
    """How much of a Jacobian is computed, and in how much memory."""

    jacobian: Literal["full", "projected", "auto"] = "auto"
    """The whole Jacobian, or its products with random directions; auto: the whole one up to `largest`, above it all
    entries that can be other than zero, if slices of the inputs are independent, else products."""
    largest: int = 512
    """The most real coordinates of inputs, or of outputs, for which auto means the whole Jacobian."""
    projections: int = 8
    """The number of random directions on each side."""
    memory: int = 1 << 28
    """The bytes that a batch may take, by the estimate of `chunk`, and a whole Jacobian that is asked for as such."""

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
        """Tell whether all entries of a Jacobian of shape (M, N) may be computed, by so many directions on a side."""
        return max(directions) <= self.largest and 8 * COMPRESSED * max(size) * max(directions) <= self.memory

    def chunk(self, size: tuple[int, int]) -> int:
        """Return how many points to evaluate at once, for a Jacobian of shape (M, N)."""
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
    """Whether the function is claimed to support forward mode. Checks of both modes leave it out where it is not."""
    undefined_grad: bool = True
    """Whether second order includes undefined cotangents."""
    by_torch: bool = False
    """Whether torch's own gradcheck and gradgradcheck are to tell: a second opinion."""
    fast_mode: bool = False
    raise_exception: bool = True
    non_contiguous: tuple[bool, ...] = (False, True)
    """For second order: whether generated cotangents have gaps in memory; each kind in turn."""
    coverage: Coverage = AUTO
    whole: tuple[str, ...] = ()
    """The derivatives of higher order whose whole Jacobians are compared. Others are, where one direction objects."""
    names: tuple[str, ...] = ()
    """The names of the outputs, as in `.loss` and `['logits']`; empty: they have positions."""
    reference: Function | None = None
    """Another function of the leaves with the same outputs, which autograd differentiates; None: there is none."""
    expected: bool = False
    """Whether a disagreement is expected, so that its worst entry is confirmed, and not all of them."""
    leaf_names: tuple[str, ...] = ()
    """The names of the leaves, as in `weight`; empty: they have positions."""
