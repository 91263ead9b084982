"""Common mistakes in derivatives, applied to a numerical block: a lost sign, a factor, a missing sum, an exchange.

A block is one output by one leaf. A mistake explains an analytical block if it predicts the block within tolerance, and
far better than the numerical block does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.coordinates import place_of
from opcheck.derivatives.disagreement import Entry, Pair
from opcheck.derivatives.tolerances import Numbers

OF_ONE_ENTRY = ", judged from a single entry"
"""The end of a text about a block with a single nonzero entry, which always is a multiple of the right one."""


@dataclass(frozen=True)
class Mistake:
    """A mistake, and the analytical block that it would produce from a numerical one."""

    kind: str
    says: str
    fields: dict[str, Any]
    predicted: Tensor
    """The analytical block that the mistake would produce."""
    noise: float = 1.0
    """The factor by which the mistake multiplies the noise of the numerical block."""


@dataclass(frozen=True)
class Block:
    """Output i by leaf j: numerical n and analytical a, of shape (output elements, parts, leaf elements, parts)."""

    i: int
    j: int
    output: Tensor
    leaf: Tensor
    n: Tensor
    a: Tensor
    wrong: Tensor
    """A mask of the entries that exceed their tolerance, of shape (output elements, parts, leaf elements)."""
    numbers: Numbers
    pair: Pair
    mode: Mode

    @property
    def result(self) -> str:
        """What the derivative gives: a gradient, or in forward mode the tangent of an output."""
        return "gradient" if self.mode == "reverse" else "tangent"

    @property
    def sides(self) -> tuple[str, str]:
        """The vectors that have the shapes of the leaf and of the output."""
        forward = "tangent of the input", "tangent of the output"
        return ("gradient", "cotangent") if self.mode == "reverse" else forward

    @cached_property
    def zero(self) -> Tensor:
        """Where the analytical block is zero, compared with atol and with rtol times the largest numerical entry."""
        return moduli(self.a) <= min(self.numbers.atol, self.numbers.rtol * float(self.n.abs().max()))

    def explained_by(self, mistake: Mistake) -> bool:
        """Return whether a mistake predicts the analytical block within tolerance, and ten times better than n does."""
        off = self.a - mistake.predicted
        bound = self.numbers.atol * mistake.noise + self.numbers.rtol * moduli(mistake.predicted)
        return bool((moduli(off) <= bound).all()) and bool(off.norm() <= 0.1 * (self.a - self.n).norm())

    def entry(self, position: int) -> Entry:
        """Return the entry at a position of the flattened `wrong`; for a complex leaf, the worse part."""
        row, element = divmod(position, self.n.shape[2])
        n, a = (matrix.flatten(0, 1)[row, element] for matrix in (self.n, self.a))
        worse = int((a - n).abs().argmax())  # argmax counts NaN as the largest
        above, left = place_of(self.i, self.pair.outputs).start, place_of(self.j, self.pair.leaves).start
        return self.pair.entry(above + row, left + element * len(n) + worse)


def blocks_of(pair: Pair, numbers: Numbers, mode: Mode) -> Iterator[Block]:
    """Yield the blocks of two Jacobians, one output after another."""
    for i, output in enumerate(pair.outputs):
        for j, leaf in enumerate(pair.leaves):
            n, a, excess = pair.block(i, j)
            same = a.isinf() & (a == n)  # the same infinity on both sides is agreement
            shape = (output.numel(), 1 + output.is_complex(), leaf.numel(), 1 + leaf.is_complex())
            n, a, wrong = (x.reshape(shape) for x in (n.masked_fill(same, 0), a.masked_fill(same, 0), excess > 0))
            yield Block(i, j, output, leaf, n, a, wrong.any(3), numbers, pair, mode)


def moduli(entries: Tensor) -> Tensor:
    """Return the moduli over the parts of the leaf, which torch's gradcheck compares. The last dim is dropped."""
    return torch.hypot(*entries.unbind(3)) if entries.shape[3] == 2 else entries.squeeze(3).abs()


def _zero_or_sign(block: Block) -> Iterator[Mistake]:
    if bool(block.zero.all()):
        yield Mistake("zero", "the derivative is zero", {}, torch.zeros_like(block.n))
    yield Mistake("sign", f"the {block.result} has the wrong sign", {}, -block.n)


def _broadcast(block: Block) -> Iterator[Mistake]:
    shape = block.output.shape
    aligned = [1] * (len(shape) - block.leaf.ndim) + [*block.leaf.shape]
    if len(aligned) > len(shape) or any(own not in (1, size) for own, size in zip(aligned, shape, strict=True)):
        return
    dims = [d for d, size in enumerate(shape) if aligned[d] == 1 < size]
    used = (~block.zero).flatten(1).any(1).reshape(shape).nonzero()
    taken = {d: int(used[0, d]) for d in dims if len({*used[:, d].tolist()}) == 1}
    if taken:
        kept = torch.zeros(shape, dtype=block.n.dtype, device="cpu")
        kept[tuple(taken.get(d, slice(None)) for d in range(len(shape)))] = 1
        only = " and ".join(f"position {k} of dim {d} of the output" for d, k in taken.items())
        says = f"only {only} reaches the {block.result}: the sum over a broadcast dim is missing"
        fields = {"dims": [*taken], "positions": [*taken.values()]}
        yield Mistake("broadcast", says, fields, block.n * kept.view(-1, 1, 1, 1))
    for some in (some for count in range(len(dims)) for some in combinations(dims, count + 1)):
        size = prod(shape[d] for d in some)
        says = (
            f"the {block.result} is divided by {size}: a mean, not the sum, over broadcast dims {[*some]} of the output"
        )
        yield Mistake("broadcast", says, {"dims": [*some], "divided_by": size}, block.n / size)


def _conjugated(block: Block) -> Iterator[Mistake]:
    below, above = block.sides
    dims = {"derivative": [1, 3], below: [3], above: [1]}  # the dims of the parts
    for what, flipped in dims.items():
        if all(block.n.shape[dim] == 2 for dim in flipped):
            predicted = block.n.clone()
            for dim in flipped:
                predicted.select(dim, 1).neg_()
            says = f"the {what} is conjugated: a conj() too few or too many"
            yield Mistake("conjugated", says, {"what": what}, predicted)


def _real_factor(block: Block) -> Iterator[Mistake]:
    factor = float((block.n * block.a).sum() / (block.n**2).sum())
    yield from _times(block, factor, block.result, factor * block.n)


def _complex_factor(block: Block) -> Iterator[Mistake]:
    """Yield a factor of the gradient or tangent or, if the leaf is real, of the derivative."""
    dim, what = (3, block.result) if block.leaf.is_complex() else (1, "derivative")
    if block.n.shape[dim] == 2:
        n, a = (torch.complex(*entries.unbind(dim)) for entries in (block.n, block.a))
        factor = (n.conj() * a).sum() / (n.abs() ** 2).sum()
        predicted = factor * n
        yield from _times(block, complex(factor), what, torch.stack([predicted.real, predicted.imag], dim))


def _times(block: Block, factor: complex, what: str, predicted: Tensor) -> Iterator[Mistake]:
    real, imag = (_simple(part, abs(factor), block.numbers.rtol) for part in (factor.real, factor.imag))
    simple = real is not None and imag is not None
    # Report only a simple factor of a single entry.
    alone = int((block.n.abs().amax((1, 3)) > block.numbers.atol).sum()) < 2
    if alone and not simple:
        return
    value = complex(real or 0, imag or 0) if simple else complex(f"{factor:.4g}")
    if value in (0, 1, -1):
        return
    text, count, sizes = f"{value:.4g}", 0.0, list[str]()
    if value.imag == 0:
        text = str(Fraction(value.real).limit_denominator(10**9)) if simple else f"{value.real:.4g}"
        count = round(max(value.real, 1 / value.real), 6)
        sizes = _sizes(block, count) if simple else []
    says = f"the {what} is {text} times what it should be" + (f" ({count:g} = {' or '.join(sizes)})" if sizes else "")
    says += OF_ONE_ENTRY * alone
    number = [value.real, value.imag] if value.imag else value.real
    sides = {"input": block.leaf, "output": block.output}
    elements = [
        f"number of elements of the {name}" for name, tensor in sides.items() if simple and tensor.numel() == count
    ]
    fields = {"factor": number, "what": what, "sizes": sizes, "elements": elements, "alone": alone}
    yield Mistake("factor", says, fields, predicted, noise=max(1.0, abs(factor)))


def _simple(value: float, whole: float, rtol: float) -> float | None:
    """Return the simple number near a fitted one, such as 0, 2, -1/3 or 3/2, or None if there is none."""
    close = max(0.1 * rtol, 1e-6)
    if abs(value) <= close * whole:
        return 0.0
    if not 1e-9 < abs(value) < 1e9:
        return None
    ratio = value if abs(value) >= 1 else 1 / value
    near = Fraction(ratio).limit_denominator(6)
    if abs(ratio - near) > min(close * abs(ratio), 0.01) or (near.denominator > 1 and abs(near.numerator) > 12):
        return None
    return float(near if abs(value) >= 1 else 1 / near)


def _sizes(block: Block, count: float) -> list[str]:
    """Return what has the size `count`: a dimension, or all elements, of the input or the output."""
    sizes = []
    for name, tensor in (("input", block.leaf), ("output", block.output)):
        sizes += [f"size of dim {d} of the {name}" for d, size in enumerate(tensor.shape) if size == count]
        sizes += [f"number of elements of the {name}"] * (tensor.ndim > 1 and tensor.numel() == count)
    return sizes


def _exchanged(block: Block) -> Iterator[Mistake]:
    """Yield the derivatives with respect to the other leaves, and those of the other outputs, of the same shapes."""
    names = block.pair.names
    of_leaves = [(block.i, j, leaf, block.leaf, names.leaves[j]) for j, leaf in enumerate(block.pair.leaves)]
    of_outputs = [(i, block.j, output, block.output, names.outputs[i]) for i, output in enumerate(block.pair.outputs)]
    for i, j, other, own, name in (*of_leaves, *of_outputs):
        if (i, j) == (block.i, block.j) or other.shape != own.shape or other.is_complex() != own.is_complex():
            continue
        n = block.pair.block(i, j)[0].reshape(block.n.shape)
        if bool((n.abs() > block.numbers.atol).any()):
            yield Mistake("exchanged", f"the {block.result} is that of {name}", {"with": name}, n)


SYMMETRIC = (
    'the {} is that of a symmetric matrix; if only such matrices are meant, write through = "symmetrize" instead of a '
    "structure"
)


def _transposed(block: Block) -> Iterator[Mistake]:
    n, above, below = block.n, _swapped(block.output), _swapped(block.leaf)
    own, other = block.sides
    swapped = {own: n[:, :, below], other: n[above], f"{own} and {other}": n[above][:, :, below]}
    for what, predicted in swapped.items():
        yield Mistake("transposed", f"the last two dims of the {what} are swapped", {"what": what}, predicted)
    if block.leaf.ndim > 1 and block.leaf.shape[-1] == block.leaf.shape[-2]:
        yield Mistake("symmetric", SYMMETRIC.format(block.result), {}, (n + n[:, :, below]) / 2)
    if n.shape[:2] == n.shape[2:]:
        products = ("J v", "J^T v") if block.mode == "reverse" else ("J^T v", "J v")
        says = "the Jacobian is transposed: the {} is {} where it should be {}".format(block.result, *products)
        fields = {"what": "Jacobian"}
        elements = n.permute(2, 1, 0, 3)
        yield Mistake("transposed", says, fields, elements)
        if bool(((elements - n).abs() > block.numbers.atol).any()):  # otherwise it would be a conjugation
            yield Mistake("transposed", says, fields, n.permute(2, 3, 0, 1))


def _swapped(tensor: Tensor) -> Tensor:
    """Return the order of elements after the last two dims are swapped."""
    order = torch.arange(tensor.numel(), device="cpu").reshape(tensor.shape)
    return (order.mT if tensor.ndim > 1 else order).flatten()


FAMILIES = (_zero_or_sign, _broadcast, _conjugated, _real_factor, _complex_factor, _exchanged, _transposed)
"""The families of mistakes, the most specific first."""
