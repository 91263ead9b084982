"""One tensor, or slices of one tensor, may be passed as several arguments, with the usual values and gradients.

An output may share memory with an argument, or with another output, only as a view that autograd tracks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, product

import torch
from torch import Tensor

from opcheck.checks.calls import Call, Result, copies, result
from opcheck.checks.plain_torch import CALL
from opcheck.checks.relations import Row, both, computed, off_by, relation
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors
from opcheck.derivatives.coordinates import real_size, vector
from opcheck.samples.layouts import share_memory
from opcheck.samples.results import differentiable

APART = f"""\
inputs[{{other}}] = inputs[{{one}}].detach().clone().requires_grad_()
{CALL}gradients = pulled(outputs, inputs, cotangents)
inputs[{{other}}] = inputs[{{one}}]
"""
VALUES = f"{APART}actual, expected = function(*inputs), outputs"
GRADIENT = f"""\
{APART}actual = pulled(function(*inputs), [inputs[{{one}}]], cotangents)
expected = [gradients[{{one}}] + gradients[{{other}}]]"""


PARTS = f"""\
{CALL}expected = {{call}}
for n, part in zip({{own}}, torch.stack([inputs[n].detach() for n in {{own}}]).requires_grad_()):
    inputs[n] = part
outputs = function(*inputs)
actual = {{of_outputs}}"""


def rows(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Yield rows for one tensor passed twice and for slices of one tensor, and failures if outputs share memory."""
    subject = subject.calling(on_copies=False)  # copies share no memory
    alike = defaultdict[object, list[int]](list)
    for index, leaf in enumerate(subject.leaves):
        if index not in subject.function.written and leaf.layout is torch.strided:
            alike[leaf.shape, leaf.dtype].append(index)
    for own in alike.values():
        for one, other in combinations(own, 2):
            yield from _twice(subject, one, other)
        yield from _parts(subject, here, own) if len(own) > 1 else ()
    _, inputs, outputs = _with_copies(subject)
    for (index, output), (number, tensor) in product(enumerate(outputs), enumerate(inputs)):
        is_shared = output.requires_grad and tensor is not output and share_memory(tensor, output)
        if is_shared and not _is_known(subject, index, number):
            title = f"output {index} shares memory with {subject.leaf_names[number]} behind autograd's back"
            yield fails(f"aliasing: {title}", REMEDY)
    for index, other in permutations(range(len(outputs)), 2):
        if share_memory(outputs[index], outputs[other]) and not _is_known_to_other(subject, index, other):
            title = f"output {index} shares memory with output {other} behind autograd's back"
            yield fails(f"aliasing: {title}", REMEDY_OF_OUTPUTS)
    yield HOLDS  # the outputs were tested, even if nothing else was yielded


REMEDY_OF_OUTPUTS = "a write to one changes the other, but not its gradient; return copies"
REMEDY = "a write to the output changes the input, but not its gradient; return a view that autograd knows, or a copy"


def _twice(subject: Subject, one: int, other: int) -> Iterator[Row]:
    """Compare passing one tensor twice with passing two copies: the values, and the gradient with the sum of two."""
    leaves = list(copies(subject.leaves))
    leaves[other] = copies((leaves[one],))[0]
    apart = tried(lambda: result(subject, Call.of(subject, leaves)))
    if isinstance(apart, Exception):
        return  # the operator rejects equal values for these arguments
    pieces = torch.split(apart.gradient, [*map(real_size, leaves)])
    leaves[other] = leaves[one]
    what = f"one tensor as both {subject.leaf_names[one]} and {subject.leaf_names[other]}"
    code = GRADIENT.format(one=one, other=other)

    def shared() -> tuple[Tensor, Tensor]:
        call = Call.of(subject, leaves)
        return call.values, Call((leaves[one],), call.results).gradient()

    values, gradient = computed(f"the results for {what}", shared, code)
    yield Row(f"the values for {what}", values, apart.values, VALUES.format(one=one, other=other))
    expected = pieces[one] + pieces[other]
    if expected.isfinite().all():  # at a pole, where both are equal, the sum of both is infinite, or NaN in one part
        yield Row(f"the gradients for {what}", gradient, expected, code)


def _parts(subject: Subject, here: Result, own: Sequence[int]) -> Iterator[Row]:
    """Compare a call whose arguments are consecutive slices of one tensor with an ordinary call."""
    leaves = list(copies(subject.leaves))
    whole = torch.stack([leaves[index].detach() for index in own]).requires_grad_()
    for index, part in zip(own, whole, strict=True):
        leaves[index] = part
    where = f"for parts of one tensor as {' and '.join(subject.leaf_names[index] for index in own)}"
    code = PARTS.replace("{own}", str([*own]))
    yield from both(where, lambda: result(subject, Call.of(subject, leaves)), here, code)


def _with_copies(subject: Subject) -> tuple[Tensors, Tensors, Tensors]:
    """Return leaves, clones of them (which, unlike leaves, can be changed in place), and the outputs for the clones."""
    leaves = copies(subject.leaves)
    cloned = tuple(leaf.clone() for leaf in leaves)
    return leaves, cloned, differentiable(subject.function(*cloned))


def _is_known(subject: Subject, index: int, number: int) -> bool:
    """Return whether autograd tracks that an output shares memory with an input.

    The output is doubled in place. Either autograd raises, or the gradient of each changed element of the input is 2.
    """
    leaves, cloned, outputs = _with_copies(subject)
    before = vector((cloned[number],))
    try:
        outputs[index].mul_(2)
    except RuntimeError:
        return True
    doubled = vector((cloned[number],)) != before
    ones = torch.ones_like(cloned[number]) * (1 + 1j if cloned[number].is_complex() else 1)
    (gradient,) = torch.autograd.grad(cloned[number], leaves[number], ones)
    return bool((vector((gradient,))[doubled] == 2).all())


def _is_known_to_other(subject: Subject, index: int, other: int) -> bool:
    """Return whether autograd tracks that an output shares memory with another one.

    The first is doubled in place. Either autograd raises, or the gradient of the changed elements of the other doubles.
    """
    call, again = Call.of(subject), Call.of(subject)
    one, two = call.outputs[index], call.outputs[other]
    before = two.detach().clone()
    try:
        one.mul_(2)
        changed = (two.detach() != before).to(two.dtype)
        got = Call(call.leaves, (two,)).gradient([changed])
    except RuntimeError:
        return True
    expected = 2 * Call(again.leaves, (again.outputs[other],)).gradient([changed])
    return not off_by(subject, got, expected)


check = relation(rows)
