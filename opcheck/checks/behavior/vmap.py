"""Vmapping the operator gives the same values as a loop, and the same gradients.

All inputs, each input alone, and all inputs but one are batched; all inputs also in a batch of one, along other
dimensions, and in a batch of batches. Gradients are compared where all inputs are batched; of operators with a
backward pass of their own, in each of these cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from opcheck.checks.calls import Call
from opcheck.checks.per_sample import PerSample, blame, raised
from opcheck.checks.plain_torch import asserted
from opcheck.checks.raw_gradients import have_own_backward
from opcheck.checks.relations import agree, computed
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, noted
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import are_strided
from opcheck.derivatives.cotangents import subsets
from opcheck.text import one_line

BATCH = 2
IN_A_BATCH = """\
inputs = [x.detach() for x in inputs]
rows = [[x * (1 {sign} n / 64) if k in {chosen} else x for k, x in enumerate(inputs)] for n in range({rows})]
expected = [torch.stack(ys) for ys in zip(*(function(*row) for row in rows))]
batch = [xs[0] if dim is None else torch.stack(xs, dim) for dim, xs in zip({in_dims}, zip(*rows))]
actual = torch.func.vmap(function, in_dims={in_dims}, randomness="same")(*batch)"""

GRADIENTS = """\
rows = [[x.detach() * (1 {sign} n / 64) for x in inputs] for n in range({rows})]
batch = [x.requires_grad_() for x in [
    torch.stack(xs) if k in {chosen} else xs[0] for k, xs in enumerate(zip(*rows))
]]
each = [[x[n] if k in {chosen} else x for k, x in enumerate(batch)] for n in range({rows})]
looped = [torch.stack(ys).requires_grad_() for ys in zip(*(function(*row) for row in each))]
vmapped = [
    ys.requires_grad_() for ys in torch.func.vmap(function, in_dims={in_dims}, randomness="same")(*batch)
]
torch.manual_seed(0)
cotangents = [torch.randn_like(ys) for ys in looped]
expected = pulled(looped, batch, cotangents)
actual = pulled(vmapped, batch, cotangents)"""
RULE = (
    "a vmap rule must compute its outputs by torch's own operators or by apply of an autograd.Function, "
    "as a kernel that is called directly leaves no graph"
)

Rows = Sequence[Sequence[Tensor]]
Dims = tuple[int | None, ...]
"""The dim along which each input is batched; None if it is not batched."""


@dataclass(frozen=True)
class Batch:
    """Rows of slightly different inputs, and the outputs of the operator for each row."""

    chosen: Sequence[int]
    """The indices of the leaves that differ between rows and are batched."""
    rows: Rows
    looped: Rows
    sign: str
    """Whether later rows are larger (+) or smaller (-) than the sample."""

    def along(self, turns: Sequence[int]) -> tuple[Dims, list[Tensor]]:
        """Return the dim along which each input is batched, and the stacked inputs. The dims in `turns` alternate."""
        dims = tuple(turns[k % len(turns)] if k in self.chosen else None for k in range(len(self.rows[0])))
        each = zip(dims, zip(*self.rows, strict=True), strict=True)
        return dims, [own[0] if dim is None else torch.stack(own, dim) for dim, own in each]


def judge(subject: Subject) -> Iterator[Verdict]:
    """Compare batches of slightly different inputs with the loop: along several dimensions, nested, and gradients."""
    leaves = tuple(leaf.detach() for leaf in subject.leaves)
    has_gradients = subject.supports.backward and not subject.function.writes
    with torch.enable_grad():
        is_own = has_gradients and have_own_backward(subject.outputs)
    for chosen in subsets(len(leaves)):
        if not subject.function.written <= set(chosen):
            continue  # vmap cannot write a batch into an unbatched tensor
        batch = _batch(subject, leaves, chosen)
        yield _along(subject, batch)
        may_compare = not subject.function.is_random and are_strided((*batch.rows[0], *batch.looped[0]))
        if may_compare and (len(chosen) == len(leaves) or is_own) and has_gradients:
            yield _gradients(subject, batch)
        if len(chosen) < len(leaves):
            continue
        yield _along(subject, replace(batch, rows=batch.rows[:1], looped=batch.looped[:1]))
        if not may_compare:
            continue
        yield _unless_refused(subject, batch, (-1,), "the last dimension")
        if len(chosen) > 1:
            yield _unless_refused(subject, batch, (-1, 0), "the last and the first dimension in turns")
        yield _nested(subject, batch)


def _batch(subject: Subject, leaves: Sequence[Tensor], chosen: Sequence[int]) -> Batch:
    """Return a batch of slightly larger numbers or, if the operator rejects them, of slightly smaller ones.

    Raise the operator's exception if it rejects both.
    """
    refusals = []
    for sign, step in (("+", 1 / 64), ("-", -1 / 64)):  # the domain may end at 1, or begin there
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
    """Return a multiple of a leaf, contiguous as the rows of a batch are."""
    other = leaf * factor
    return other.contiguous() if other.layout is torch.strided else other


def _along(subject: Subject, batch: Batch, turns: Sequence[int] = (0,), where: str = "") -> Verdict:
    """Compare a batch with the loop.

    turns: the dims along which inputs are batched, taken in turns. Outputs are always batched along the first dim: for
        any other one, torch reads out of bounds if an output has no batch.
    """
    chosen, count = batch.chosen, len(batch.rows)
    in_dims, batched = batch.along(turns)
    function = torch.func.vmap(subject.function.__call__, in_dims=in_dims, randomness="same")
    code = IN_A_BATCH.format(chosen=list(chosen), rows=count, in_dims=in_dims, sign=batch.sign)
    got = tried(lambda: function(*batched))
    how = "in a batch of one" if count == 1 else f"batched over {', '.join(subject.leaf_names[k] for k in chosen)}"
    how += f" along {where}" if where else ""
    if isinstance(got, Exception):
        wrong = raised(subject, got, code=asserted(code))
        return replace(wrong, detail=f"{how}\n{wrong.detail}")
    expected = _stacked(batch.looped)
    return agree(subject, got, expected, f"the loop, {how}", names=subject.output_info.names, code=code)


def _unless_refused(subject: Subject, batch: Batch, turns: Sequence[int], where: str) -> Verdict:
    """Compare a batch along other dimensions with the loop. Pass if the operator rejects rows with gaps in memory."""
    verdict = _along(subject, batch, turns, where)
    if verdict.passed:
        return verdict
    dims, batched = batch.along(turns)

    def row(number: int) -> list[Tensor]:
        return [x if dim is None else x.select(dim, number) for dim, x in zip(dims, batched, strict=True)]

    refusal = tried(lambda: [subject.function(*row(number)) for number in range(BATCH)])
    return HOLDS if isinstance(refusal, Exception) else verdict  # it may reject non-contiguous tensors


def _nested(subject: Subject, batch: Batch) -> Verdict:
    """Compare a batch of two batches, the rows and the rows in reverse order, with the loop."""

    def table(items: Rows) -> list[Tensor]:
        return [torch.stack([torch.stack(own), torch.stack(own[::-1])]) for own in zip(*items, strict=True)]

    function = torch.func.vmap(torch.func.vmap(subject.function.__call__, randomness="same"), randomness="same")
    names = subject.output_info.names
    got = computed("the values by vmap of vmap", lambda: function(*table(batch.rows)))
    return agree(subject, got, table(batch.looped), "the loop, by vmap of vmap", names=names)


def _gradients(subject: Subject, batch: Batch) -> Verdict:
    """Compare the gradients of a vmapped call with those of the loop. An exception is noted: it is not silent."""
    in_dims, batched = batch.along((0,))
    leaves = tuple(x.detach().requires_grad_() for x in batched)
    vmapped = torch.func.vmap(subject.function.__call__, in_dims=in_dims, randomness="same")

    def looped() -> Tensors:
        rows = zip(
            *(x.expand(BATCH, *x.shape) if dim is None else x for dim, x in zip(in_dims, leaves, strict=True)),
            strict=True,
        )
        return Call(leaves, _stacked([subject.function(*row) for row in rows])).gradients()

    def by_vmap() -> tuple[bool, Tensors]:
        call = Call(leaves, vmapped(*leaves))
        return call.has_graph, call.gradients()

    expected, found = tried(looped), tried(by_vmap)
    if isinstance(expected, Exception):
        return HOLDS  # other checks report it
    if isinstance(found, Exception):
        return noted([f"the gradients of a vmapped call are not compared: {one_line(found)}"])
    has_graph, got = found
    how = "is not that of the loop" if has_graph else "is missing: its outputs do not require grad"
    code = GRADIENTS.format(rows=len(batch.rows), sign=batch.sign, chosen=list(batch.chosen), in_dims=in_dims)
    for name, own, other in zip(subject.leaf_names, got, expected, strict=True):
        verdict = agree(subject, [own.to_dense()], [other.to_dense()], "the loop", code=code)
        if not verdict.passed:
            title = f"{subject.check}: the gradient of {name} through the vmapped operator {how}"
            among = ", ".join(subject.leaf_names[k] for k in batch.chosen)
            title += f", batched over {among}" if len(batch.chosen) < len(leaves) else ""
            detail = verdict.detail if own.any() else f"{verdict.detail}\n{RULE}"
            wrong = replace(verdict, title=title, detail=detail)
            return blame(subject, wrong, ("purity", "nondeterminism", "backward"))
    return HOLDS


def _stacked(rows: Rows) -> Tensors:
    """Return a batch of each tensor of the rows, along the first dim."""
    return tuple(torch.stack(own) for own in zip(*rows, strict=True))


check = PerSample(judge)
