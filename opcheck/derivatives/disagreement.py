"""Why a claim does not hold: where two Jacobians differ, and what the mistake looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any, Literal

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Primal, Pullback, Pushforward, Sum
from opcheck.derivatives.coordinates import index_text, located, parts, place_of, real_size, split
from opcheck.derivatives.request import Request

Kind = Literal["wrong", "refused", "inconclusive", "coarse", "low accuracy"]
"""wrong: another number; refused: an error instead of a number; inconclusive: the function has no derivative at the
point, so that there is nothing to compare; coarse: its values are too coarse for differences; low accuracy: right
within the tolerance, but not to the last digits."""


@dataclass(frozen=True)
class Entry:
    """An entry of a Jacobian. Parts are "real" or "imag", and empty for real dtypes."""

    output: int
    leaf: int
    output_index: tuple[int, ...]
    output_part: str
    leaf_index: tuple[int, ...]
    leaf_part: str
    numerical: float
    analytical: float
    name: str
    """What the output is called, as in `output 0`, `output.loss` or `gradient of x`."""
    leaf_name: str
    """What the leaf is called, as in `x` or `cotangent of output 0`."""

    def describe(self) -> str:
        """Return the entry as a line of text."""
        above = f"{self.name}{index_text(self.output_index, self.output_part)}"
        below = f"{self.leaf_name}{index_text(self.leaf_index, self.leaf_part)}"
        return f"d {above} / d {below} = {self.numerical:.8g} numerically, {self.analytical:.8g} analytically"


@dataclass(frozen=True)
class Mismatch:
    """The worst entry of a pair of Jacobians, and the block around it: one output with respect to one leaf."""

    worst: Entry
    row: int
    """Of the block, in real coordinates."""
    column: int
    wrong: int
    """How many entries of the block differ."""
    entries: int
    window: str

    def describe(self) -> str:
        """Return the mismatch as text of several lines."""
        entry = self.worst
        share = f"{self.wrong} of {self.entries} entries differ" if self.entries > 1 else "the only entry differs"
        return (
            f"{entry.name} with respect to {entry.leaf_name}: {share}\nworst entry: {entry.describe()}\n{self.window}"
        )


@dataclass(frozen=True)
class Finding:
    """What the disagreement of a block looks like."""

    kind: str
    text: str
    output: int
    leaf: int
    fields: dict[str, Any]
    """Plain data; "blocks" are the pairs [output, leaf] that look like this, of which this one is the first."""


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
    pair: Pair | None = None
    """Both Jacobians, or a slice of them, if they are known entry by entry."""
    below_atol: bool = False
    """Whether no entry is off by more than the tolerance, but by more than differences can be."""
    agrees: bool = False
    """Whether the Jacobians agree, at a kink: by chance, so that this is no verdict."""
    memory: str = ""
    """How a cotangent lies in memory for which the gradient is another one: see `MEMORIES` in strides.py."""
    cause: Exception | None = None
    """The exception that the function raises where it should not."""

    @classmethod
    def of_entries(
        cls, mismatch: Mismatch | None, worst: Sequence[Entry], findings: Sequence[Finding] = (),
        pair: Pair | None = None, *, below_atol: bool = False,
    ) -> Disagreement:  # fmt: skip
        """Return that entries of two Jacobians differ: where, and what the mistake looks like, as lines of text."""
        lines = ["the Jacobians differ" if mismatch is None else mismatch.describe()]
        lines += ["less than atol, but more than rtol and the error of the differences account for"] * below_atol
        others = [entry for entry in worst[1:] if isfinite(entry.numerical) and isfinite(entry.analytical)]
        lines += [f"also: {entry.describe()}" for entry in others]  # a place that is NaN says what all say
        lines += [f"it looks like this: {finding.text}" for finding in findings if finding.kind != "unlike"]
        text = "\n".join(lines)
        return cls(text, "wrong", mismatch, tuple(findings), tuple(worst), pair, below_atol=below_atol)


def output_label(output: int, name: str) -> str:
    """Return what to call an output: `output 0`, or `output.loss` if it has a name."""
    return f"output{name}" if name else f"output {output}"


@dataclass(frozen=True)
class Names:
    """What a function is called whose Jacobian is compared, and what its outputs and leaves are."""

    outputs: tuple[str, ...]
    leaves: tuple[str, ...]
    function: str = "the function"
    order: int = 1
    """That of the Jacobian: 1 for the function itself, 2 for its backward pass."""
    linear: int = 0
    """How many leaves it is linear in, by being a derivative: the last ones, cotangents or tangents."""

    @classmethod
    def of(cls, function: Differentiable, request: Request) -> Names:
        """Return the names for the function of a request, or for a derivative of it."""
        if isinstance(function, Primal):
            names = request.names
            above = tuple(output_label(k, names[k] if names else "") for k in function.chosen)
            below = request.leaf_names or tuple(f"input {k}" for k in range(len(request.leaves)))
            return cls(above, below)
        if isinstance(function, Sum):
            pulled = cls.of(function.inner, request)
            return replace(pulled, outputs=("sum of the gradients",))
        assert isinstance(function, (Pullback, Pushforward))
        inner = cls.of(function.inner, request)
        if isinstance(function, Pullback):
            own, what, by, above, below = "the backward pass", "gradient", "cotangent", inner.leaves, inner.outputs
            if function.fixed:  # these are no arguments
                below = tuple(name for name, v in zip(below, function.fixed, strict=True) if v is None)
        else:
            own, what, by, above, below = "the jvp", "tangent", "tangent", inner.outputs, inner.leaves
        return cls(
            tuple(f"{what} of {name}" for name in above), inner.leaves + tuple(f"{by} of {name}" for name in below),
            own if inner.order == 1 else f"{own} of {inner.function}", inner.order + 1, len(below),
        )  # fmt: skip

    def entry(
        self, row: int, column: int, numerical: float, analytical: float, outputs: Sequence[Tensor],
        leaves: Sequence[Tensor],
    ) -> Entry:  # fmt: skip
        """Return an entry of the whole Jacobian, at an output and an input coordinate."""
        (i, m), (j, n) = located(row, outputs), located(column, leaves)
        places = *split(m, outputs[i]), *split(n, leaves[j])
        return Entry(i, j, *places, numerical, analytical, self.outputs[i], self.leaves[j])


@dataclass(frozen=True)
class Pair:
    """Two Jacobians of shape (M, N), and by how much each entry exceeds its tolerance: see `uncertainty.excess`."""

    numerical: Tensor
    analytical: Tensor
    excess: Tensor
    outputs: Sequence[Tensor]
    leaves: Sequence[Tensor]
    names: Names
    row_labels: Sequence[str] = ()
    """What to call the rows of a slice of a Jacobian, as in `[7, 2]`; empty: they are indices in `outputs`."""
    column_labels: Sequence[str] = ()

    def block(self, i: int, j: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return both Jacobians of an output by a leaf, and the excess of their entries."""
        rows, columns = place_of(i, self.outputs), place_of(j, self.leaves)
        return self.numerical[rows, columns], self.analytical[rows, columns], self.excess[rows, columns]

    def worst(self, most: int = 5) -> list[Entry]:
        """Return the entries that exceed their tolerance most. Of an element of a complex leaf it is the worse part."""
        ranked = self._ranked.flatten()
        order = ranked.argsort(descending=True, stable=True)[:most].tolist()
        return [self.entry(*divmod(k, self.excess.shape[1])) for k in order if ranked[k] > 0]

    def mismatch(self) -> Mismatch | None:
        """Return the worst entry and its surroundings, or None if no entry exceeds its tolerance."""
        if not bool((self.excess > 0).any()):
            return None
        row, column = divmod(int(self._ranked.argmax()), self.excess.shape[1])
        (i, own_row), (j, own_column) = located(row, self.outputs), located(column, self.leaves)
        n, a, excess = self.block(i, j)
        return Mismatch(
            self.entry(row, column), own_row, own_column, int((excess > 0).sum()), n.numel(),
            _window(n, a, own_row, own_column),
        )  # fmt: skip

    def entry(self, row: int, column: int) -> Entry:
        """Return an entry of the whole Jacobian."""
        n, a = float(self.numerical[row, column]), float(self.analytical[row, column])
        return self.names.entry(row, column, n, a, self.outputs, self.leaves)

    @cached_property
    def _ranked(self) -> Tensor:
        """The excess, without that of the better part of each entry of a complex leaf."""
        off = (self.analytical - self.numerical).abs().nan_to_num(nan=float("inf"))
        worse = torch.ones_like(off, dtype=torch.bool)
        for leaf, own, mask in zip(
            self.leaves, *(parts(matrix, map(real_size, self.leaves), 1) for matrix in (off, worse)), strict=True
        ):
            if leaf.is_complex():
                real, imag = own[:, ::2], own[:, 1::2]
                mask[:, ::2], mask[:, 1::2] = real >= imag, real < imag
        return torch.where(worse, self.excess, 0.0)


RADIUS = 2
"""How many rows and columns on each side of an entry are shown."""


def _window(numerical: Tensor, analytical: Tensor, row: int, column: int) -> str:
    """Return both matrices around an entry, side by side, the entry marked."""
    rows = range(max(0, row - RADIUS), min(numerical.shape[0], row + RADIUS + 1))
    columns = range(max(0, column - RADIUS), min(numerical.shape[1], column + RADIUS + 1))

    def line(matrix: Tensor, r: int) -> str:
        cells = []
        for c in columns:
            mark = "*" if (r, c) == (row, column) else " "
            cells.append(f"{float(matrix[r, c]):>11.4g}{mark}")
        return "".join(cells)

    left = [line(numerical, r) for r in rows]
    right = [line(analytical, r) for r in rows]
    width = max(len(text) for text in left)
    title = f"rows {rows[0]}-{rows[-1]}, columns {columns[0]}-{columns[-1]} of {tuple(numerical.shape)}"
    head = f"{'':6}{'numerical'.center(width)} | {'analytical'.center(width)}   ({title})"
    body = [f"{r:>5} {a} | {b}" for r, a, b in zip(rows, left, right, strict=True)]
    return "\n".join([head, *body])
