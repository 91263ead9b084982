"""Where two Jacobians differ most, shown to a person: the worst entry, and both matrices around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import place, split
from opcheck.derivatives.numbers import Numbers

Jacobians = Sequence[Sequence[Tensor]]


@dataclass(frozen=True)
class Mismatch:
    """The worst entry of a pair of Jacobians, with what surrounds it."""

    output: int
    leaf: int
    row: int
    column: int
    output_place: str
    leaf_place: str
    numerical: float
    analytical: float
    wrong: int
    """How many entries of this Jacobian differ."""
    entries: int
    window: str
    name: str = ""
    """What the output is called, as in `.loss`; empty: it has a position."""

    def describe(self) -> str:
        """Return the mismatch as text of several lines."""
        share = f"{self.wrong} of {self.entries} entries differ" if self.entries > 1 else "the only entry differs"
        return (
            f"{called(self.output, self.name)} with respect to input {self.leaf}: {share}\n"
            f"worst entry: d output{self.name}{self.output_place} / d input{self.leaf_place}"
            f" = {self.numerical:.8g} numerically, {self.analytical:.8g} analytically\n{self.window}"
        )


def called(output: int, name: str) -> str:
    """Return what an output is called: `output 0`, or `output.loss` where it has a name."""
    return f"output{name}" if name else f"output {output}"


def find_mismatch(
    numerical: Jacobians,
    analytical: Jacobians,
    outputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    numbers: Numbers,
    names: Sequence[str] = (),
) -> Mismatch | None:
    """Return the entry that exceeds its tolerance by most, over all outputs and leaves; None where all agree."""
    worst: tuple[float, int, int] | None = None
    for i, row in enumerate(numerical):
        for j, n in enumerate(row):
            excess = _excess(n, analytical[i][j], numbers)
            most = float(excess.max()) if excess.numel() else 0.0
            if most > 0 and (worst is None or most > worst[0]):
                worst = (most, i, j)
    if worst is None:
        return None
    _, i, j = worst
    n, a = numerical[i][j], analytical[i][j].to(numerical[i][j])
    excess = _excess(n, a, numbers)
    row_index, column = divmod(int(excess.argmax()), n.shape[1])
    return Mismatch(
        i, j, row_index, column,
        place(*split(row_index, outputs[i])), place(*split(column, leaves[j])),
        float(n[row_index, column]), float(a[row_index, column]),
        int((excess > 0).sum()), n.numel(),
        _window(n, a, row_index, column), names[i] if names else "",
    )  # fmt: skip


def _excess(numerical: Tensor, analytical: Tensor, numbers: Numbers) -> Tensor:
    """Return by how much each entry exceeds its tolerance; NaN on one side only counts as infinite."""
    a = analytical.to(numerical)
    beyond = (a - numerical).abs() - (numbers.atol + numbers.rtol * numerical.abs())
    beyond = torch.where((a == numerical) | (a.isnan() & numerical.isnan()), torch.zeros_like(beyond), beyond)
    return beyond.nan_to_num(nan=float("inf")).clamp_min(0)


def _window(numerical: Tensor, analytical: Tensor, row: int, column: int, radius: int = 2) -> str:
    """Return both matrices around an entry, side by side, the entry marked."""
    rows = range(max(0, row - radius), min(numerical.shape[0], row + radius + 1))
    columns = range(max(0, column - radius), min(numerical.shape[1], column + radius + 1))

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
