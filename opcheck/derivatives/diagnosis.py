"""What a disagreement of two Jacobians looks like: a lost sign, a factor, a missing sum, a cut graph.

Common mistakes, applied to a numerical block (one output by one leaf), are compared with the analytical block. A
mistake is reported only if it predicts that block within tolerance, and far better than the numerical block does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import blocks, index_text, split
from opcheck.derivatives.disagreement import Entry, Finding, Pair
from opcheck.derivatives.question import Numbers

CUT = "the gradient is zero: it is cut by detach, .data, item() or an integer cast on the way"
LOST = (
    "the second derivative is zero: the backward pass uses data saved without a graph"
    " (ctx attributes, .detach(), or numbers computed outside autograd)"
)
LISTED = 8  # places; the rest is counted
Look = tuple[str, str, dict[str, Any]]  # kind, sentence and plain data of a finding


def diagnose(pair: Pair, numbers: Numbers, *, check: str = "") -> list[Finding]:
    """Say what the disagreement of two Jacobians looks like. Blocks that look alike share a finding.

    check: empty for first derivatives, else as in "rev_over_rev": leaves are inputs, then cotangents (or tangents).
    """
    above, below = pair.names.outputs, pair.names.leaves
    inputs = sum(not name.startswith(("cotangent of", "tangent of")) for name in below)
    found: dict[str, Finding] = {}
    for block in _blocks(pair, numbers):
        if not bool(block.wrong.any()):
            continue
        kind, says, fields = _look(block)
        if kind == "zero" and check and block.j < inputs:
            kind, says = "second_order_lost", LOST
        alike = found.setdefault(f"{says} {fields}", Finding(kind, says, block.i, block.j, {**fields, "blocks": []}))
        alike.fields["blocks"].append([block.i, block.j])
    where = [", ".join(f"{above[i]} with respect to {below[j]}" for i, j in f.fields["blocks"]) for f in found.values()]
    return [replace(one, text=f"{place}: {one.text}") for one, place in zip(found.values(), where, strict=True)]


@dataclass(frozen=True)
class _Mistake:
    kind: str
    says: str
    fields: dict[str, Any]
    predicted: Tensor
    """What it makes of the numerical block."""
    noise: float = 1.0
    """What it multiplies the noise of the numerical block by."""


@dataclass(frozen=True)
class _Block:
    """Output i by leaf j: n and a are of shape (output elements, parts, leaf elements, parts)."""

    i: int
    j: int
    output: Tensor
    leaf: Tensor
    n: Tensor
    a: Tensor
    wrong: Tensor
    """Which entries exceed their tolerance, of shape (output elements, parts, leaf elements)."""
    numbers: Numbers
    names: tuple[str, str]

    @cached_property
    def zero(self) -> Tensor:
        """Where the analytical block is zero, compared with atol and with the largest numerical entry."""
        return _modulus(self.a) <= min(self.numbers.atol, self.numbers.rtol * float(self.n.abs().max()))

    def explained_by(self, mistake: _Mistake) -> bool:
        off = self.a - mistake.predicted
        bound = self.numbers.atol * mistake.noise + self.numbers.rtol * _modulus(mistake.predicted)
        return bool((_modulus(off) <= bound).all()) and bool(off.norm() <= 0.1 * (self.a - self.n).norm())

    def entry(self, position: int) -> Entry:
        """Return the entry at a position of the flattened `wrong`; of a complex leaf the worse part."""
        row, element = divmod(position, self.n.shape[2])
        n, a = (matrix.flatten(0, 1)[row, element] for matrix in (self.n, self.a))
        worse = int((a - n).abs().argmax())  # NaN is the greatest
        places = *split(row, self.output), *split(element * len(n) + worse, self.leaf)
        return Entry(self.i, self.j, *places, float(n[worse]), float(a[worse]), *self.names)


def _blocks(pair: Pair, numbers: Numbers) -> Iterator[_Block]:
    # The same infinity on both sides is agreement.
    same = pair.analytical.isinf() & (pair.analytical == pair.numerical)
    matrices = pair.numerical.masked_fill(same, 0), pair.analytical.masked_fill(same, 0), pair.excess > 0
    n, a, wrong = (blocks(matrix, pair.outputs, pair.leaves) for matrix in matrices)
    for i, output in enumerate(pair.outputs):
        for j, leaf in enumerate(pair.leaves):
            shape = (output.numel(), 1 + output.is_complex(), leaf.numel(), 1 + leaf.is_complex())
            entries = n[i][j].reshape(shape), a[i][j].reshape(shape), wrong[i][j].reshape(shape).any(3)
            yield _Block(i, j, output, leaf, *entries, numbers, (pair.names.outputs[i], pair.names.leaves[j]))


def _modulus(entries: Tensor) -> Tensor:
    """Return moduli over the parts of the leaf, as torch's gradcheck compares them."""
    return torch.hypot(*entries.unbind(3)) if entries.shape[3] == 2 else entries.squeeze(3).abs()


def _look(block: _Block) -> Look:
    if not bool((block.n.isfinite() & block.a.isfinite()).all()):
        return _not_finite(block)
    made = (mistake for family in FAMILIES for mistake in family(block))
    fitting = [mistake for mistake in made if block.explained_by(mistake)]
    if not fitting:
        return _somewhere(block)
    first = fitting[0]
    also = sorted({mistake.kind for mistake in fitting} - {first.kind})
    return first.kind, first.says + (f" (or {', '.join(also)})" if also else ""), {**first.fields, "also": also}


def _zero_or_sign(block: _Block) -> Iterator[_Mistake]:
    if bool(block.zero.all()):
        yield _Mistake("zero", CUT, {}, torch.zeros_like(block.n))
    yield _Mistake("sign", "the gradient has the wrong sign", {}, -block.n)


def _broadcast(block: _Block) -> Iterator[_Mistake]:
    shape = block.output.shape
    aligned = [1] * (len(shape) - block.leaf.ndim) + [*block.leaf.shape]
    if len(aligned) > len(shape) or any(own not in (1, size) for own, size in zip(aligned, shape, strict=True)):
        return
    dims = [d for d, size in enumerate(shape) if aligned[d] == 1 < size]
    used = (~block.zero).flatten(1).any(1).reshape(shape).nonzero()
    taken = {d: int(used[0, d]) for d in dims if len({*used[:, d].tolist()}) == 1}
    if taken:
        kept = torch.zeros(shape, dtype=block.n.dtype)
        kept[tuple(taken.get(d, slice(None)) for d in range(len(shape)))] = 1
        only = " and ".join(f"position {k} of dim {d} of the output" for d, k in taken.items())
        says = f"only {only} reaches the gradient: the sum over a broadcast dim is missing"
        fields = {"dims": [*taken], "positions": [*taken.values()]}
        yield _Mistake("broadcast", says, fields, block.n * kept.view(-1, 1, 1, 1))
    for some in (some for count in range(len(dims)) for some in combinations(dims, count + 1)):
        size = prod(shape[d] for d in some)
        says = f"the gradient is divided by {size}: a mean, not the sum, over broadcast dims {[*some]} of the output"
        yield _Mistake("broadcast", says, {"dims": [*some], "divided_by": size}, block.n / size)


def _conjugated(block: _Block) -> Iterator[_Mistake]:
    dims = {"derivative": [1, 3], "gradient": [3], "cotangent": [1]}  # those of the parts
    for what, flipped in dims.items():
        if all(block.n.shape[dim] == 2 for dim in flipped):
            predicted = block.n.clone()
            for dim in flipped:
                predicted.select(dim, 1).neg_()
            says = f"the {what} is conjugated: a conj() too few or too many"
            yield _Mistake("conjugated", says, {"what": what}, predicted)


def _real_factor(block: _Block) -> Iterator[_Mistake]:
    factor = float((block.n * block.a).sum() / (block.n**2).sum())
    yield from _times(block, factor, "gradient", factor * block.n, block.n)


def _complex_factor(block: _Block) -> Iterator[_Mistake]:
    """A factor of the gradient or, if that is real, of the derivative."""
    dim, what = (3, "gradient") if block.leaf.is_complex() else (1, "derivative")
    if block.n.shape[dim] == 2:
        n, a = (torch.complex(*entries.unbind(dim)) for entries in (block.n, block.a))
        factor = (n.conj() * a).sum() / (n.abs() ** 2).sum()
        predicted = factor * n
        yield from _times(block, complex(factor), what, torch.stack([predicted.real, predicted.imag], dim), n)


def _times(block: _Block, factor: complex, what: str, predicted: Tensor, n: Tensor) -> Iterator[_Mistake]:
    real, imag = (_simple(part, abs(factor), block.numbers.rtol) for part in (factor.real, factor.imag))
    simple = real is not None and imag is not None
    # Any number is some multiple of another: from one alone, only a simple factor is news, or where there is no more.
    if not simple and int((n.abs() > block.numbers.atol).sum()) < 2 and block.n.numel() > 1:
        return
    given = complex(real or 0, imag or 0) if simple else complex(f"{factor:.4g}")
    if given in (0, 1, -1):
        return
    text, count, sizes = f"{given:.4g}", 0.0, list[str]()
    if given.imag == 0:
        text = str(Fraction(given.real).limit_denominator(10**9)) if simple else f"{given.real:.4g}"
        count = round(max(given.real, 1 / given.real), 6)
        sizes = _sizes(block, count) if simple else []
    says = f"the {what} is {text} times what it should be" + (f" ({count:g} = {' or '.join(sizes)})" if sizes else "")
    fields = {"factor": [given.real, given.imag] if given.imag else given.real, "what": what, "sizes": sizes}
    yield _Mistake("factor", says, fields, predicted, noise=max(1.0, abs(factor)))


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


def _sizes(block: _Block, count: float) -> list[str]:
    """Say what has the size `count`: a dimension, or all elements, of the input or the output."""
    found = []
    for name, tensor in (("input", block.leaf), ("output", block.output)):
        found += [f"size of dim {d} of the {name}" for d, size in enumerate(tensor.shape) if size == count]
        found += [f"number of elements of the {name}"] * (tensor.ndim > 1 and tensor.numel() == count)
    return found


def _transposed(block: _Block) -> Iterator[_Mistake]:
    n, above, below = block.n, _swapped(block.output), _swapped(block.leaf)
    swapped = {"gradient": n[:, :, below], "cotangent": n[above], "gradient and cotangent": n[above][:, :, below]}
    for what, predicted in swapped.items():
        yield _Mistake("transposed", f"the last two dims of the {what} are swapped", {"what": what}, predicted)
    if n.shape[:2] == n.shape[2:]:
        says, fields = "the Jacobian is transposed: the gradient is J v where it should be J^T v", {"what": "Jacobian"}
        elements = n.permute(2, 1, 0, 3)
        yield _Mistake("transposed", says, fields, elements)
        if bool(((elements - n).abs() > block.numbers.atol).any()):  # else it would be a matter of conjugation
            yield _Mistake("transposed", says, fields, n.permute(2, 3, 0, 1))


def _swapped(tensor: Tensor) -> Tensor:
    """Return the order of elements after the last two dims are swapped."""
    order = torch.arange(tensor.numel()).reshape(tensor.shape)
    return (order.mT if tensor.ndim > 1 else order).flatten()


FAMILIES = (_zero_or_sign, _broadcast, _conjugated, _real_factor, _complex_factor, _transposed)
"""The most specific first."""


def _not_finite(block: _Block) -> Look:
    says, fields = [], dict[str, Any](entries=[])
    for name, matrix in (("analytical", block.a), ("numerical", block.n)):
        bad = ~matrix.isfinite().all(3)
        fields[name] = int(bad.sum())
        if fields[name]:
            places, listed = _listed(block, "entries", bad)
            fields["entries"] += listed
            says.append(f"the {name} Jacobian is NaN or infinite in {fields[name]} of {bad.numel()} entries: {places}")
    return "nan", "; ".join(says), fields


def _somewhere(block: _Block) -> Look:
    """Say where a block is wrong that no mistake explains. Zeros that agree elsewhere do not count."""
    wrong, size = block.wrong, _modulus(block.n)
    active = wrong | (torch.maximum(size, _modulus(block.a)) > block.numbers.atol)
    bad = {"entries": wrong, "columns": wrong.any(0).any(0), "rows": wrong.any(2)}
    of = {"entries": active, "columns": active.any(0).any(0), "rows": active.any(2)}
    count, total = ({kind: int(mask.sum()) for kind, mask in masks.items()} for masks in (bad, of))
    most = {kind: total[kind] // 4 if kind == "entries" else total[kind] - 1 for kind in bad}
    partial = [kind for kind in bad if count[kind] <= most[kind]]
    relative = (_modulus(block.a - block.n) / size)[wrong & (size > block.numbers.atol)].tolist()
    greatest = float(f"{max(relative):.3g}") if relative else None
    fields: dict[str, Any] = {"wrong": count["entries"], "of": wrong.numel(), "relative_error": greatest}
    if not partial:
        how = "all of which should be zero" if greatest is None else f"by up to {greatest:g} times their size"
        says = f"{count['entries']} of {wrong.numel()} entries are wrong, {how}, and look like no known mistake"
        return "unlike", says, fields
    kind = min(partial, key=lambda kind: count[kind])
    zero = bool(block.zero[wrong].all())
    places, fields[kind] = _listed(block, kind, bad[kind])
    what = {"entries": "entries", "columns": "elements of the input", "rows": "elements of the output"}[kind]
    how = ", the gradient zero" if zero else ""
    says = f"only {count[kind]} of {bad[kind].numel()} {what} are wrong{how}: {places}"
    return kind, says, {**fields, "count": count[kind], "zero": zero}


def _listed(block: _Block, kind: str, bad: Tensor) -> tuple[str, list[dict[str, Any]]]:
    """Return the first places of a mask over entries, rows or columns, as text and as plain data."""
    positions = bad.flatten().nonzero().flatten().tolist()
    entries = [block.entry(k * block.n.shape[2] if kind == "rows" else k) for k in positions[:LISTED]]
    shown = {
        "entries": Entry.describe,
        "rows": lambda entry: index_text(entry.output_index, entry.output_part),
        "columns": lambda entry: index_text(entry.leaf_index, ""),
    }[kind]
    own = {"entries": "_", "rows": "output_", "columns": "leaf_index"}[kind]
    more = f" and {len(positions) - LISTED} more" if len(positions) > LISTED else ""
    data = [{name: value for name, value in asdict(entry).items() if own in name} for entry in entries]
    return ("; " if kind == "entries" else ", ").join(map(shown, entries)) + more, data
