"""Vmapping the operator equals looping over it: all inputs, and each one alone; one row; other dimensions; nested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import tried
from opcheck.checks.judging import per_sample, raised
from opcheck.checks.relations import agree
from opcheck.checks.script import asserted
from opcheck.checks.verdict import HOLDS, Verdict

BATCH = 2
IN_A_BATCH = """\
inputs = [x.detach() for x in inputs]
rows = [[x * (1 + n / 64) if k in {chosen} else x for k, x in enumerate(inputs)] for n in range({rows})]
expected = [torch.stack(ys) for ys in zip(*(function(*row) for row in rows))]
batch = [torch.stack(xs, {dim}) if k in {chosen} else xs[0] for k, xs in enumerate(zip(*rows))]
actual = torch.func.vmap(function, in_dims={in_dims}, randomness="same")(*batch)"""

Rows = Sequence[Sequence[Tensor]]


def judge(subject: Subject) -> Iterator[Verdict]:
    """Compare values on a batch of slightly different inputs: along the first dimension, the last one, and nested."""
    leaves = tuple(leaf.detach() for leaf in subject.leaves)
    for chosen in _batchings(len(leaves)):
        if not subject.function.written <= set(chosen):
            continue  # vmap refuses to write a batch into what has none
        rows = [[_in_batch(leaf, n) if k in chosen else leaf for k, leaf in enumerate(leaves)] for n in range(BATCH)]
        looped = [subject.function(*(leaf.clone() for leaf in row)) for row in rows]
        yield _along(subject, chosen, rows, looped, 0)
        if len(chosen) == len(leaves):
            yield _along(subject, chosen, rows[:1], looped[:1], 0)
        if len(chosen) == len(leaves) and _has_other_batches(subject, (*leaves, *looped[0])):
            yield _along_the_last(subject, chosen, rows, looped)
            yield _nested(subject, rows, looped)


def _batchings(count: int) -> Iterator[tuple[int, ...]]:
    every = tuple(range(count))
    yield every
    if count > 1:
        yield from ((index,) for index in every)
    if count > 2:
        yield from (tuple(k for k in every if k != index) for index in every)


def _in_batch(leaf: Tensor, number: int) -> Tensor:
    """Return a leaf in the memory that it has in a batch, whose rows are contiguous."""
    other = leaf * (1 + number / 64)
    return other.contiguous() if other.layout is torch.strided else other


def _has_other_batches(subject: Subject, tensors: Iterable[Tensor]) -> bool:
    """Tell whether other batches say more. What is drawn at random depends on how a batch lies in memory."""
    return subject.function.seed is None and all(tensor.layout is torch.strided for tensor in tensors)


def _stacked(chosen: Sequence[int], rows: Rows, dim: int) -> list[Tensor]:
    return [torch.stack(own, dim) if index in chosen else own[0] for index, own in enumerate(zip(*rows, strict=True))]


def _along(subject: Subject, chosen: Sequence[int], rows: Rows, looped: Rows, dim: int) -> Verdict:
    """Compare a batch along one dimension with the loop.

    That of outputs is the first: along any other, torch reads memory that is not there if an output has no batch.
    """
    batched = _stacked(chosen, rows, dim)
    in_dims = tuple(dim if index in chosen else None for index in range(len(batched)))
    function = torch.func.vmap(subject.function.__call__, in_dims=in_dims, randomness="same")
    code = IN_A_BATCH.format(chosen=list(chosen), rows=len(rows), dim=dim, in_dims=in_dims)
    got = tried(lambda: function(*batched))
    if isinstance(got, Exception):
        return replace(raised(subject, got), code=asserted(code))
    expected = [torch.stack(outputs) for outputs in zip(*looped, strict=True)]
    whose = "the loop, in a batch of one" if len(rows) == 1 else f"the loop, batched over inputs {list(chosen)}"
    whose += " along the last dimension" if dim else ""
    return agree(subject, got, expected, whose, names=subject.output_info.names, code=code)


def _along_the_last(subject: Subject, chosen: Sequence[int], rows: Rows, looped: Rows) -> Verdict:
    """Compare a batch along the last dimension, where rows have gaps in memory, unless the loop over them raises."""
    verdict = _along(subject, chosen, rows, looped, -1)
    if verdict.passed:
        return verdict
    batched = _stacked(chosen, rows, -1)
    refusal = tried(lambda: [subject.function(*(leaf.select(-1, n) for leaf in batched)) for n in range(BATCH)])
    return HOLDS if isinstance(refusal, Exception) else verdict  # the operator may not take tensors with such memory


def _nested(subject: Subject, rows: Rows, looped: Rows) -> Verdict:
    """Compare a batch of batches with the loop: the rows, and the rows in reverse."""

    def table(items: Rows) -> list[Tensor]:
        return [torch.stack([torch.stack(own), torch.stack(own[::-1])]) for own in zip(*items, strict=True)]

    function = torch.func.vmap(torch.func.vmap(subject.function.__call__, randomness="same"), randomness="same")
    names = subject.output_info.names
    return agree(subject, function(*table(rows)), table(looped), "the loop, by vmap of vmap", names=names)


check = per_sample(judge)
