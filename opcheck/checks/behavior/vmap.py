"""Vmapping the operator equals looping over it: all inputs, and each one alone; one row; other dimensions; nested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from opcheck.checks.per_sample import PerSample, raised
from opcheck.checks.plain_torch import asserted
from opcheck.checks.relations import agree
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict
from opcheck.derivatives import tried
from opcheck.derivatives.cotangents import subsets

BATCH = 2
IN_A_BATCH = """\
inputs = [x.detach() for x in inputs]
rows = [[x * (1 {sign} n / 64) if k in {chosen} else x for k, x in enumerate(inputs)] for n in range({rows})]
expected = [torch.stack(ys) for ys in zip(*(function(*row) for row in rows))]
batch = [xs[0] if dim is None else torch.stack(xs, dim) for dim, xs in zip({in_dims}, zip(*rows))]
actual = torch.func.vmap(function, in_dims={in_dims}, randomness="same")(*batch)"""

Rows = Sequence[Sequence[Tensor]]
Dims = tuple[int | None, ...]
"""Along which dim each input is batched; None: along none."""


@dataclass(frozen=True)
class Batch:
    """Slightly different inputs, and what the operator gives for each of them."""

    chosen: Sequence[int]
    """Which leaves differ, and are batched."""
    rows: Rows
    looped: Rows
    sign: str
    """Whether later rows are larger (+) or smaller (-) than the sample."""

    def along(self, turns: Sequence[int]) -> tuple[Dims, list[Tensor]]:
        """Return the inputs, batched along dims that they take in turns: which dim each is batched along, and them."""
        dims = tuple(turns[k % len(turns)] if k in self.chosen else None for k in range(len(self.rows[0])))
        each = zip(dims, zip(*self.rows, strict=True), strict=True)
        return dims, [own[0] if dim is None else torch.stack(own, dim) for dim, own in each]


def judge(subject: Subject) -> Iterator[Verdict]:
    """Compare values on a batch of slightly different inputs: along the first dimension, the last one, and nested."""
    leaves = tuple(leaf.detach() for leaf in subject.leaves)
    for chosen in subsets(len(leaves)):
        if not subject.function.written <= set(chosen):
            continue  # vmap refuses to write a batch into what has none
        batch = _batch(subject, leaves, chosen)
        yield _along(subject, batch)
        if len(chosen) == len(leaves):
            yield _along(subject, replace(batch, rows=batch.rows[:1], looped=batch.looped[:1]))
            yield from _in_other_batches(subject, batch)


def _in_other_batches(subject: Subject, batch: Batch) -> Iterator[Verdict]:
    """Compare values on a batch of all inputs along other dimensions, and on a batch of batches."""
    tensors = (*batch.rows[0], *batch.looped[0])
    if subject.function.seed is not None or any(tensor.layout is not torch.strided for tensor in tensors):
        return  # what is drawn at random depends on how a batch lies in memory
    yield _unless_refused(subject, batch, (-1,), "the last dimension")
    if len(batch.chosen) > 1:
        yield _unless_refused(subject, batch, (-1, 0), "the last and the first dimension in turns")
    yield _nested(subject, batch)


def _batch(subject: Subject, leaves: Sequence[Tensor], chosen: Sequence[int]) -> Batch:
    """Return a batch. Passes on the exception of the operator if it takes neither larger nor smaller numbers."""
    refusals = []
    for sign, step in (("+", 1 / 64), ("-", -1 / 64)):  # an operator may take numbers up to 1 only, or from 1 on
        rows = [
            [_in_batch(leaf, 1 + n * step) if k in chosen else leaf for k, leaf in enumerate(leaves)]
            for n in range(BATCH)
        ]
        looped = tried(partial(_looped, subject, rows))
        if not isinstance(looped, Exception):
            return Batch(chosen, rows, looped, sign)
        refusals.append(looped)
    raise refusals[0]


def _looped(subject: Subject, rows: Rows) -> Rows:
    return [subject.function(*(leaf.clone() for leaf in row)) for row in rows]


def _in_batch(leaf: Tensor, factor: float) -> Tensor:
    """Return a multiple of a leaf in the memory that it has in a batch, whose rows are contiguous."""
    other = leaf * factor
    return other.contiguous() if other.layout is torch.strided else other


def _along(subject: Subject, batch: Batch, turns: Sequence[int] = (0,), where: str = "") -> Verdict:
    """Compare a batch along some dimensions, which inputs take in turns, with the loop.

    That of outputs is the first: along any other, torch reads memory that is not there if an output has no batch.
    """
    chosen, count = batch.chosen, len(batch.rows)
    in_dims, batched = batch.along(turns)
    function = torch.func.vmap(subject.function.__call__, in_dims=in_dims, randomness="same")
    code = IN_A_BATCH.format(chosen=list(chosen), rows=count, in_dims=in_dims, sign=batch.sign)
    got = tried(lambda: function(*batched))
    how = "in a batch of one" if count == 1 else f"batched over inputs {list(chosen)}"
    how += f" along {where}" if where else ""
    if isinstance(got, Exception):
        wrong = raised(subject, got)
        return replace(wrong, detail=f"{how}\n{wrong.detail}", code=asserted(code))
    expected = [torch.stack(outputs) for outputs in zip(*batch.looped, strict=True)]
    return agree(subject, got, expected, f"the loop, {how}", names=subject.output_info.names, code=code)


def _unless_refused(subject: Subject, batch: Batch, turns: Sequence[int], where: str) -> Verdict:
    """Compare a batch along other dimensions, where rows have gaps in memory, unless the loop over them raises."""
    verdict = _along(subject, batch, turns, where)
    if verdict.passed:
        return verdict
    dims, batched = batch.along(turns)

    def row(number: int) -> list[Tensor]:
        return [x if dim is None else x.select(dim, number) for dim, x in zip(dims, batched, strict=True)]

    refusal = tried(lambda: [subject.function(*row(number)) for number in range(BATCH)])
    return HOLDS if isinstance(refusal, Exception) else verdict  # the operator may not take tensors with such memory


def _nested(subject: Subject, batch: Batch) -> Verdict:
    """Compare a batch of batches with the loop: the rows, and the rows in reverse."""

    def table(items: Rows) -> list[Tensor]:
        return [torch.stack([torch.stack(own), torch.stack(own[::-1])]) for own in zip(*items, strict=True)]

    function = torch.func.vmap(torch.func.vmap(subject.function.__call__, randomness="same"), randomness="same")
    names = subject.output_info.names
    return agree(subject, function(*table(batch.rows)), table(batch.looped), "the loop, by vmap of vmap", names=names)


check = PerSample(judge)
