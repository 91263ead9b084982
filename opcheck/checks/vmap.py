"""Vmapping the operator equals looping over it, with all inputs batched and with each one batched alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from opcheck.checks.agreement import agree
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict

BATCH = 2


def judge(subject: Subject) -> Verdict:
    """Compare values on a batch of slightly different inputs."""
    leaves = [leaf.detach() for leaf in subject.leaves]
    for chosen in _batchings(len(leaves)):
        batched = [
            torch.stack([leaf, leaf * (1 + 1 / 64)]) if index in chosen else leaf for index, leaf in enumerate(leaves)
        ]
        looped = [
            # A clone has storage of its own. Under vmap, as_strided sees each row like that, too.
            subject.function(*(leaf[row].clone() if index in chosen else leaf for index, leaf in enumerate(batched)))
            for row in range(BATCH)
        ]
        in_dims = tuple(0 if index in chosen else None for index in range(len(leaves)))
        vmapped = torch.func.vmap(subject.function.__call__, in_dims=in_dims, randomness="same")(*batched)
        expected = [torch.stack(rows) for rows in zip(*looped, strict=True)]
        verdict = agree(
            subject, vmapped, expected, f"the loop, batched over inputs {list(chosen)}", names=subject.output_info.names
        )
        if not verdict.passed:
            return verdict
    return HOLDS


def _batchings(count: int) -> Iterator[tuple[int, ...]]:
    yield tuple(range(count))
    if count > 1:
        yield from ((index,) for index in range(count))


check = per_sample(judge)
