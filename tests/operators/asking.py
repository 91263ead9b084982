"""Claims about a function at leaves, as tests state them: `check_claim(check, Request(function, leaves, ...))`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from opcheck.derivatives import AUTO, Coverage, Disagreement, Numbers, by_torch
from opcheck.derivatives import check_claim as claims
from opcheck.derivatives.autodiff import Function
from opcheck.derivatives.point import Point


@dataclass(frozen=True)
class Request:
    """A function, its leaves, and how its derivatives are compared: the parameters of a point and of `check_claim`."""

    function: Function
    leaves: tuple[Tensor, ...]
    numbers: Numbers
    grad_outputs: tuple[Tensor, ...] | None = None
    masked: bool = False
    coverage: Coverage = AUTO
    output_names: tuple[str, ...] = ()
    leaf_names: tuple[str, ...] = ()
    forward_ad: bool = True
    undefined_grad: bool = True
    non_contiguous: tuple[bool, ...] = (False, True)
    expected: bool = False
    whole: tuple[str, ...] = ()
    reference: Function | None = None

    @property
    def point(self) -> Point:
        """A new point."""
        return Point.of(
            self.function, self.leaves, coverage=self.coverage, cotangents=self.grad_outputs, masked=self.masked,
            output_names=self.output_names, leaf_names=self.leaf_names,
        )  # fmt: skip


def check_claim(check: str, request: Request, point: Point | None = None) -> Disagreement | None:
    """Return why a claim does not hold. point: that of the request, if it is made."""
    return claims.check_claim(
        check, point or request.point, request.numbers, expected=request.expected, forward_ad=request.forward_ad,
        undefined_grad=request.undefined_grad, non_contiguous=request.non_contiguous, whole=request.whole,
        reference=request.reference,
    )  # fmt: skip


def lost_digits(check: str, request: Request, point: Point | None = None) -> Disagreement | None:
    """Return why a Jacobian is wrong, or has fewer digits than it should."""
    return claims.lost_digits(check, point or request.point, request.numbers)


def ask_torch(check: str, request: Request, **more: bool) -> Disagreement | None:
    """Return what torch's own functions say. more: `fast_mode` and `raise_exception`."""
    return by_torch.check_claim(
        check, request.function, request.leaves, request.numbers, grad_outputs=request.grad_outputs,
        masked=request.masked, forward_ad=request.forward_ad, undefined_grad=request.undefined_grad,
        non_contiguous=request.non_contiguous, **more,
    )  # fmt: skip
