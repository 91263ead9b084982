"""Converts two Jacobians that differ into plain data, from which reports draw pictures."""

from __future__ import annotations

from itertools import product
from typing import Any

from opcheck.derivatives.coordinates import labels, real_size
from opcheck.derivatives.disagreement import Pair

MOST = 64
"""The maximum number of rows and of columns shown of a block. In all, at most MOST * MOST entries are shown."""


def pictured(pair: Pair) -> list[dict[str, Any]]:
    """Return the blocks that have wrong entries, the worst block first. A block is one output with respect to one leaf.

    Of each block, a window of at most MOST rows and MOST columns around the worst entry is returned. Blocks after the
    first are left out if their size exceeds the remaining number of entries. `rows` and `columns` are the size of the
    block, `first_row` and `first_column` the start of the window, `wrong` the pairs (row, column) of the wrong entries,
    relative to the window. Complex tensors are in real coordinates, as in all evidence.
    """
    places = product(range(len(pair.outputs)), range(len(pair.leaves)))
    excess = {place: pair.block(*place)[-1] for place in places}
    worst = {place: float(block.max()) for place, block in excess.items() if block.numel()}
    windows: list[dict[str, Any]] = []
    room = MOST * MOST
    for place in sorted((place for place in worst if worst[place] > 0), key=lambda place: -worst[place]):
        window = _window(pair, *place)
        size = window["rows"] * window["columns"]
        if not windows or size <= room:
            windows.append(window)
            room -= min(size, room)
    return windows


def _window(pair: Pair, i: int, j: int) -> dict[str, Any]:
    """Return the window of block (i, j), output i with respect to leaf j, around its worst entry."""
    n, a, excess = pair.block(i, j)
    row, column = divmod(int(excess.argmax()), excess.shape[1])
    rows, columns = _around(row, excess.shape[0]), _around(column, excess.shape[1])
    n, a, excess = (matrix[rows][:, columns] for matrix in (n, a, excess))
    above, below = (sum(map(real_size, tensors)) for tensors in (pair.outputs[:i], pair.leaves[:j]))
    row_labels = pair.row_labels or labels(range(len(pair.excess)), pair.outputs)
    column_labels = pair.column_labels or labels(range(pair.excess.shape[1]), pair.leaves)
    output, leaf = pair.names.outputs[i], pair.names.leaves[j]
    return {
        "name": f"{output} with respect to {leaf}" + (", in one slice" if pair.row_labels else ""),
        "output": output,
        "leaf": leaf,
        "rows": real_size(pair.outputs[i]),
        "columns": real_size(pair.leaves[j]),
        "first_row": rows.start,
        "first_column": columns.start,
        "row_labels": row_labels[above + rows.start : above + rows.stop],
        "column_labels": column_labels[below + columns.start : below + columns.stop],
        "numerical": n.tolist(),
        "analytical": a.tolist(),
        "wrong": (excess > 0).nonzero().tolist(),
    }


def _around(place: int, size: int) -> slice:
    """Return a slice of at most MOST indices below `size`, with `place` in the middle if possible."""
    first = max(0, min(place - MOST // 2, size - MOST))
    return slice(first, min(first + MOST, size))
