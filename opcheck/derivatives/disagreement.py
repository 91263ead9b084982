"""Why a claim does not hold: where two Jacobians differ, and which mistake is likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any, Literal

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Primal, Pullback, Pushforward, Sum, Tensors
from opcheck.derivatives.coordinates import index_text, located, place_of, real_size, split

Kind = Literal["wrong", "refused", "inconclusive", "coarse", "low accuracy"]
"""wrong: a wrong number; refused: an error instead of a number; inconclusive: the function has no derivative at the
point, so that there is nothing to compare; coarse: its values are too coarse for differences; low accuracy: right
within the tolerance, but not to the last digits."""

BELOW_ATOL = (
    "the difference is below atol, but exceeds rtol plus the error of finite differences, which are more accurate than "
    "atol here"
)


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
    """The label of the output, such as `output 0`, `output.loss` or `gradient of x`."""
    leaf_name: str
    """The label of the leaf, such as `x` or `cotangent of output 0`."""

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
    """The row of the worst entry in the block, in real coordinates; `column` likewise."""
    column: int
    wrong: int
    """The number of entries of the block that differ."""
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
    """The likely cause of the disagreement of a block."""

    kind: str
    text: str
    output: int
    leaf: int
    fields: dict[str, Any]
    """Plain data; "blocks" are the pairs [output, leaf] with this cause, the first of which is `output` and `leaf`."""


@dataclass(frozen=True)
class Disagreement:
    """Why a claim about derivatives does not hold."""

    text: str
    kind: Kind = "wrong"
    mismatch: Mismatch | None = None
    """The worst entry, and the Jacobians around it."""
    findings: tuple[Finding, ...] = ()
    """The likely causes."""
    worst: tuple[Entry, ...] = ()
    """The entries that differ most, worst first."""
    pair: Pair | None = None
    """Both Jacobians, or one slice of them, if their entries are known."""
    below_atol: bool = False
    """Whether no entry is off by more than the tolerance, although some are by more than the error of differences."""
    agrees: bool = False
    """Whether the Jacobians agree although the function has a kink: by chance, so that the claim is not confirmed."""
    memory: str = ""
    """The memory layout of the cotangents for which the gradient is wrong: see `MEMORIES` in strides.py."""
    cause: Exception | None = None
    """The exception that the function raises where it should not."""

    @classmethod
    def of_entries(
        cls, mismatch: Mismatch | None, worst: Sequence[Entry], findings: Sequence[Finding] = (),
        pair: Pair | None = None, *, below_atol: bool = False,
    ) -> Disagreement:  # fmt: skip
        """Return that entries of two Jacobians differ, with a text of several lines: where, and the likely causes."""
        lines = ["the Jacobians differ" if mismatch is None else mismatch.describe()]
        lines += [BELOW_ATOL] * below_atol
        others = [entry for entry in worst[1:] if isfinite(entry.numerical) and isfinite(entry.analytical)]
        lines += [f"also: {entry.describe()}" for entry in others]  # entries that are not finite add no information
        lines += [f"it looks like this: {finding.text}" for finding in findings if finding.kind != "unlike"]
        text = "\n".join(lines)
        return cls(text, "wrong", mismatch, tuple(findings), tuple(worst), pair, below_atol=below_atol)


def output_label(output: int, names: Sequence[str]) -> str:
    """Return the label of an output: `output.loss`, or `output 0` if outputs have no names (`names` is empty)."""
    return f"output{names[output]}" if names else f"output {output}"


@dataclass(frozen=True)
class Names:
    """The labels of a function whose Jacobian is compared, of its outputs and of its leaves."""

    outputs: tuple[str, ...]
    leaves: tuple[str, ...]
    function: str = "the function"
    order: int = 1
    """The order of the Jacobian: 1 for the function itself, 2 for its backward pass."""
    linear: int = 0
    """The number of leaves in which a derivative is linear: its last ones, cotangents or tangents."""

    @classmethod
    def of(cls, function: Differentiable, leaves: Tensors) -> Names:
        """Return the labels for a function of some leaves."""
        if isinstance(function, Primal):
            above = tuple(output_label(k, function.output_names) for k in function.chosen)
            return cls(above, function.leaf_names or tuple(f"input {k}" for k in range(len(leaves))))
        inner = cls.of(function.inner, function.leaves(leaves))
        if isinstance(function, Sum):
            return replace(inner, outputs=("sum of the gradients",))
        assert isinstance(function, (Pullback, Pushforward))
        if isinstance(function, Pullback):
            own, what, by, above, below = "the backward pass", "gradient", "cotangent", inner.leaves, inner.outputs
            if function.fixed:  # fixed cotangents are not arguments
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
        """Return an entry of the whole Jacobian, given its values and the coordinates of its output and its input."""
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
    """The labels of the rows of a slice of a Jacobian, such as `[7, 2]`; empty if rows are coordinates of `outputs`."""
    column_labels: Sequence[str] = ()

    def block(self, i: int, j: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numerical block, the analytical block and the excess for an output by a leaf."""
        rows, columns = place_of(i, self.outputs), place_of(j, self.leaves)
        return self.numerical[rows, columns], self.analytical[rows, columns], self.excess[rows, columns]

    def worst(self, most: int = 5) -> list[Entry]:
        """Return the entries that exceed their tolerance most; for a complex leaf, the worse part of an element."""
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
        """The excess, with zero for the better of the two parts of each element of a complex leaf."""
        off = (self.analytical - self.numerical).abs().nan_to_num(nan=float("inf"))
        worse = torch.ones_like(off, dtype=torch.bool)
        pieces = (torch.split(matrix, [*map(real_size, self.leaves)], 1) for matrix in (off, worse))
        for leaf, own, mask in zip(self.leaves, *pieces, strict=True):
            if leaf.is_complex():
                real, imag = own[:, ::2], own[:, 1::2]
                mask[:, ::2], mask[:, 1::2] = real >= imag, real < imag
        return torch.where(worse, self.excess, 0.0)


RADIUS = 2
"""The number of rows and columns that are shown on each side of an entry."""


def _window(numerical: Tensor, analytical: Tensor, row: int, column: int) -> str:
    """Return both matrices around an entry as text, side by side, with the entry marked."""
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
