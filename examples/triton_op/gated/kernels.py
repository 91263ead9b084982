"""The kernels. A program works on a block of rows, and goes through them in blocks of columns."""

import triton
import triton.language as tl


@triton.jit
def tile(rows, start, height, width, SIZE: tl.constexpr):
    """Return the columns of a tile, where its elements lie in a matrix in row-major order, and which are inside."""
    columns = start + tl.arange(0, SIZE)[None, :]
    return columns, rows * width + columns, (rows < height) & (columns < width)


@triton.jit
def largest(x_at, rows, height, width, SIZE: tl.constexpr):
    """Return the largest element of each row, of shape (SIZE, 1)."""
    top = tl.full((SIZE, 1), float("-inf"), tl.float32)
    for start in range(0, width, SIZE):
        _, at, inside = tile(rows, start, height, width, SIZE)
        x = tl.load(x_at + at, mask=inside, other=float("-inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
    return tl.where(rows < height, top, 0.0)


@triton.jit
def normalizer(x_at, top, rows, height, width, SIZE: tl.constexpr, SUM: tl.constexpr, MASKED: tl.constexpr):
    """Return the sum of exp(x - top) over each row, of shape (SIZE, 1). SUM is the precision of the accumulator."""
    total = tl.zeros((SIZE, 1), tl.float32)
    for start in range(0, width, SIZE):
        _, at, inside = tile(rows, start, height, width, SIZE)
        exp = tl.exp(tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32) - top)
        if MASKED:
            exp = tl.where(inside, exp, 0.0)
        total = (total + tl.sum(exp, axis=1, keep_dims=True)).to(SUM).to(tl.float32)
    return total


@triton.jit
def share(x_at, top, total, at, inside):
    """Return softmax(x) on a tile, and zeros outside of the matrix."""
    x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside, tl.exp(x - top) / total, 0.0)


@triton.jit
def forward(x_at, weight_at, y_at, height, width, SIZE: tl.constexpr, SUM: tl.constexpr):
    """y = softmax(x) * weight."""
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)[:, None]
    top = largest(x_at, rows, height, width, SIZE)
    total = normalizer(x_at, top, rows, height, width, SIZE, SUM, True)
    for start in range(0, width, SIZE):
        columns, at, inside = tile(rows, start, height, width, SIZE)
        p = share(x_at, top, total, at, inside)
        weight = tl.load(weight_at + columns, mask=columns < width, other=0.0).to(tl.float32)
        tl.store(y_at + at, p * weight, mask=inside)


@triton.jit
def backward(
    x_at, weight_at, v_at, dx_at, part_at, height, width,
    SIZE: tl.constexpr, SUM: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """dx = p (g - sum(p g)) with p = softmax(x) and g = v * weight; the gradient of weight sums v * p over rows.

    The latter is the sum over the rows of a program: one row of `part` for each program.
    """
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)[:, None]
    top = largest(x_at, rows, height, width, SIZE)
    total = normalizer(x_at, top, rows, height, width, SIZE, SUM, MASKED)
    mean = tl.zeros((SIZE, 1), tl.float32)
    for start in range(0, width, SIZE):
        columns, at, inside = tile(rows, start, height, width, SIZE)
        p = share(x_at, top, total, at, inside)
        v = tl.load(v_at + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_at + columns, mask=columns < width, other=0.0).to(tl.float32)
        mean += tl.sum(p * v * weight, axis=1, keep_dims=True)
        part = tl.sum(p * v, axis=0, keep_dims=True)
        tl.store(part_at + tl.program_id(0) * width + columns, part, mask=columns < width)
    for start in range(0, width, SIZE):
        columns, at, inside = tile(rows, start, height, width, SIZE)
        p = share(x_at, top, total, at, inside)
        v = tl.load(v_at + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_at + columns, mask=columns < width, other=0.0).to(tl.float32)
        tl.store(dx_at + at, p * (v * weight - mean), mask=inside)
