"""Vmapping the operator equals looping over it: all inputs, and each one alone; along other dimensions; nested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from opcheck.checks.agreement import agree
from opcheck.checks.base import Subject
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import HOLDS, Verdict
from opcheck.derivatives import NO_REFUSAL

BATCH = 2

Rows = Sequence[Sequence[Tensor]]


def judge(subject: Subject) -> Verdict:
    """Compare values on a batch of slightly different inputs: along the first dimension, the last one, and nested."""
    leaves = tuple(leaf.detach() for leaf in subject.leaves)
    for chosen in _batchings(len(leaves)):
        rows = [_row(leaves, chosen, number) for number in range(BATCH)]
        looped = [subject.function(*(leaf.clone() for leaf in row)) for row in rows]
        verdict = _along(subject, chosen, rows, looped, 0)
        if verdict.passed and len(chosen) == len(leaves) and _has_other_batches(subject, (*leaves, *looped[0])):
            verdict = _along_the_last(subject, chosen, rows)
            verdict = _nested(subject, rows, looped) if verdict.passed else verdict
        if not verdict.passed:
            return verdict
    return HOLDS


def _row(leaves: Sequence[Tensor], chosen: Sequence[int], number: int) -> list[Tensor]:
    """Return the leaves of one row of a batch. Those that are not chosen are the same in each."""
    return [_in_batch(leaf, number) if index in chosen else leaf for index, leaf in enumerate(leaves)]


def _in_batch(leaf: Tensor, number: int) -> Tensor:
    """Return a leaf in the memory that it has in a batch, whose rows are contiguous."""
    other = leaf * (1 + number / 64)
    return other.contiguous() if other.layout is torch.strided else other


def _has_other_batches(subject: Subject, tensors: Iterable[Tensor]) -> bool:
    """Tell whether other batches say more. What is drawn at random depends on how a batch lies in memory."""
    return subject.function.seed is None and all(tensor.layout is torch.strided for tensor in tensors)


def _along(subject: Subject, chosen: Sequence[int], rows: Rows, looped: Rows, dim: int) -> Verdict:
    """Compare a batch along one dimension, of inputs and of outputs, with the loop."""
    batched = _stacked(chosen, rows, dim)
    in_dims = tuple(dim if index in chosen else None for index in range(len(batched)))
    function = torch.func.vmap(subject.function.__call__, in_dims=in_dims, out_dims=dim, randomness="same")
    expected = [torch.stack(outputs, dim) for outputs in zip(*looped, strict=True)]
    whose = f"the loop, batched over inputs {list(chosen)}" + (" along the last dimension" if dim else "")
    return agree(subject, function(*batched), expected, whose, names=subject.output_info.names)


def _along_the_last(subject: Subject, chosen: Sequence[int], rows: Rows) -> Verdict:
    """Compare a batch along the last dimension, where rows have gaps in memory, with the loop over these rows."""
    batched = _stacked(chosen, rows, -1)
    try:
        looped = [subject.function(*(leaf.select(-1, number) for leaf in batched)) for number in range(BATCH)]
    except NO_REFUSAL:
        raise
    except Exception:
        return HOLDS  # the operator does not take tensors with such memory
    return _along(subject, chosen, rows, looped, -1)


def _stacked(chosen: Sequence[int], rows: Rows, dim: int) -> list[Tensor]:
    return [torch.stack(own, dim) if index in chosen else own[0] for index, own in enumerate(zip(*rows, strict=True))]


def _nested(subject: Subject, rows: Rows, looped: Rows) -> Verdict:
    """Compare a batch of batches with the loop: the rows, and the rows in reverse."""

    def table(items: Rows) -> list[Tensor]:
        return [torch.stack([torch.stack(own), torch.stack(own[::-1])]) for own in zip(*items, strict=True)]

    function = torch.func.vmap(torch.func.vmap(subject.function.__call__, randomness="same"), randomness="same")
    names = subject.output_info.names
    return agree(subject, function(*table(rows)), table(looped), "the loop, by vmap of vmap", names=names)


def _batchings(count: int) -> Iterator[tuple[int, ...]]:
    every = tuple(range(count))
    yield every
    if count > 1:
        yield from ((index,) for index in every)
    if count > 2:
        yield from (tuple(k for k in every if k != index) for index in every)


check = per_sample(judge)
