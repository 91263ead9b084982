"""What checks ask of an engine that computes derivative evidence, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from torch import Tensor

from opcheck.derivatives.amount import AUTO, Amount
from opcheck.derivatives.diagnosis import Entry, Finding
from opcheck.derivatives.mismatch import Mismatch
from opcheck.derivatives.numbers import Numbers

Function = Callable[..., tuple[Tensor, ...]]
"""Leaves in, outputs out, both tensors of any shape."""


@dataclass(frozen=True)
class Request:
    """A function at some leaves (which require grad), and how to compare."""

    function: Function
    leaves: tuple[Tensor, ...]
    numbers: Numbers
    grad_outputs: tuple[Tensor, ...] | None = None
    """Cotangents for second order; None: random ones."""
    masked: bool = False
    """Whether unspecified elements of sparse leaves are left out of the derivative."""
    forward_ad: bool = True
    """Whether forward mode may be used in checks that concern both modes."""
    undefined_grad: bool = True
    """Whether second order includes undefined cotangents."""
    fast_mode: bool = False
    raise_exception: bool = True
    non_contiguous: tuple[bool, ...] = (False, True)
    """For second order: the memory of generated cotangents, each in turn."""

    amount: Amount = AUTO
    """How much evidence is gathered, and in how much memory."""
    together: tuple[str, ...] = ()
    """Checks beside the Jacobian that are claimed: an engine may settle them at once."""
    jacobians: tuple[str, ...] = ()
    """Checks of Jacobians that are claimed: what they need may be computed at once. Empty: nobody knows."""
    names: tuple[str, ...] = ()
    """What the outputs are called, as in `.loss` and `['logits']`; empty: they have positions."""
    key: str = ""
    """The same text for the same function and leaves; empty: nothing is kept from one question to the next."""

    def with_(self, **changes: Any) -> Request:
        """Return the same request with some fields changed."""
        return replace(self, **changes)


Kind = Literal["wrong", "refused", "inconclusive", "low accuracy"]
"""wrong: another number; refused: an error instead of a number; inconclusive: the function has no derivative at the
point, so that there is nothing to compare; low accuracy: a remark, the claim holds."""


@dataclass(frozen=True)
class Disagreement:
    """Why a claim about derivatives does not hold."""

    text: str
    kind: Kind = "wrong"
    mismatch: Mismatch | None = None
    """The Jacobians around the entry that differs most."""
    findings: tuple[Finding, ...] = ()
    """What the mistake looks like."""
    worst: tuple[Entry, ...] = ()
    """The entries that differ most, the worst one first."""

    def shown(self) -> str:
        """Return the Jacobians around the worst entry, further entries and what the mistake looks like, as lines."""
        lines = [self.mismatch.describe() if self.mismatch else self.text]
        lines += [f"also: {entry.describe()}" for entry in self.worst[1:]]
        lines += [f"it looks like this: {finding.text}" for finding in self.findings if finding.kind != "unlike"]
        return "\n".join(lines)


class Engine(Protocol):
    """Computes derivative evidence and says where it contradicts a claim."""

    @property
    def name(self) -> str:
        """The name for `--engine`."""
        ...

    def ask(self, check: str, request: Request) -> Disagreement | None:
        """Return why the claim of a derivative check does not hold for a request; None where it holds.

        Exceptions of the function and of its derivatives are passed on.
        """
        ...
