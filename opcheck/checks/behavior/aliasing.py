"""One tensor in two places has the sum of both gradients; outputs share no memory behind autograd's back."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, compared, copies, ordinary
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import HOLDS, Verdict, fails, first_failure
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.coordinates import parts, real_size, vector
from opcheck.samples.results import differentiable


def judge(subject: Subject) -> Verdict:
    """Pass one tensor twice, and write to outputs that share memory with an argument."""
    ordinary(subject)
    leaves = subject.leaves
    like = [pair for pair in combinations(range(len(leaves)), 2) if _is_like(leaves[pair[0]], leaves[pair[1]])]
    twice = first_failure(_twice(subject, *pair) for pair in like)
    return _memory(subject) if twice.passed else twice


def _is_like(one: Tensor, other: Tensor) -> bool:
    return one.layout is other.layout is torch.strided and (one.shape, one.dtype) == (other.shape, other.dtype)


def _twice(subject: Subject, one: int, other: int) -> Verdict:
    """Compare the gradient of a tensor in two places with the sum of those of two tensors of its values."""
    leaves = list(copies(subject.leaves))
    leaves[other] = copies((leaves[one],))[0]
    try:
        apart = Call.of(subject, leaves)
        gradient = apart.pulled_back()
    except NO_REFUSAL:
        raise
    except Exception:
        return HOLDS  # the operator does not take equal values there
    pieces = list(parts(gradient, map(real_size, leaves)))
    leaves[other] = leaves[one]
    shared = Call.of(subject, leaves)
    what = f"one tensor as both {subject.leaf_names[one]} and {subject.leaf_names[other]}"
    verdict = compared(subject, f"the values for {what}", vector(shared.outputs), vector(apart.outputs))
    if not verdict.passed:
        return verdict
    alone = Call((leaves[one],), shared.outputs).pulled_back()
    return compared(subject, f"the gradient for {what}", alone, pieces[one] + pieces[other])


def _memory(subject: Subject) -> Verdict:
    """Write to each output that shares memory with a leaf. Autograd must refuse it, or know of it."""
    _, inputs, outputs = _with_copies(subject)
    for index, output in enumerate(outputs):
        for number, tensor in enumerate(inputs):
            if output.requires_grad and _share(tensor, output) and not _is_known(subject, index, number):
                return fails(
                    f"aliasing: output {index} shares memory with {subject.leaf_names[number]} behind autograd's back",
                    "a write to the output changes the input, but not its gradient; return a view that autograd knows, "
                    "or a copy",
                )
    return HOLDS


def _with_copies(subject: Subject) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return leaves, copies of them that may be written to, and the outputs for the copies."""
    leaves = copies(subject.leaves)
    cloned = tuple(leaf.clone() for leaf in leaves)
    return leaves, cloned, differentiable(subject.function(*cloned))


def _share(one: Tensor, other: Tensor) -> bool:
    if one is other or not one.layout is other.layout is torch.strided or not one.numel() or not other.numel():
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _is_known(subject: Subject, index: int, number: int) -> bool:
    """Double an output in place. Tell whether autograd refuses it, or gives the leaf the gradient of what it is now."""
    leaves, copies, outputs = _with_copies(subject)
    before = vector((copies[number],))
    try:
        outputs[index].mul_(2)
    except RuntimeError:
        return True
    doubled = vector((copies[number],)) != before
    ones = torch.ones_like(copies[number]) * (1 + 1j if copies[number].is_complex() else 1)
    (gradient,) = torch.autograd.grad(copies[number], leaves[number], ones)
    return bool((vector((gradient,))[doubled] == 2).all())


check = per_sample(judge)
