"""The gradient of an input does not depend on which other inputs require grad; nothing but inputs requires grad.

Whether cotangents require grad makes no difference either. Cotangents are not written to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from opcheck.checks.calls import Call, Result, Tensors, copies
from opcheck.checks.plain_torch import CALL
from opcheck.checks.relations import Row, computed, relation
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, fails
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import nodes_of
from opcheck.derivatives.coordinates import parts, real_size, vector
from opcheck.derivatives.cotangents import subsets, vectors_like
from opcheck.samples.captured import captured

VALUES = "actual, expected = function(*some), outputs"
GRADIENTS = """\
actual = pulled(function(*some), [some[k] for k in {chosen}], cotangents)
expected = [pulled(outputs, inputs, cotangents)[k] for k in {chosen}]"""


def rows(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Compare values and gradients where no leaf, each leaf alone, or all leaves but one require grad."""
    held = {id(tensor): name for name, tensor in captured(subject.function.operator) if tensor.requires_grad}
    if held:
        yield _beside_arguments(held.values())
    whose, code = "no input requires grad", _code((), VALUES)
    call = computed(f"the values where {whose}", lambda: _with_grad(subject), code)
    yield Row(f"the values where {whose}", call.values, here.values, code)
    if call.has_graph:
        yield _beside_arguments(f"a tensor of shape {list(tensor.shape)}" for tensor in _ends(call.results))
    slices = parts(here.gradient, map(real_size, subject.leaves))
    for chosen, whose in _subsets(subject.leaf_names):
        code = _code(chosen, GRADIENTS)
        call, got, cotangents = computed(f"the gradients where {whose}", partial(_alone, subject, chosen), code)
        if len(chosen) == 1:
            yield Row(f"the values where {whose}", call.values, here.values, _code(chosen, VALUES))
        yield Row(f"the cotangents after a backward pass where {whose}", vector(call.cotangents), cotangents)
        expected = torch.cat([slices[index] for index in chosen])
        yield Row(f"the gradients where {whose}", got, expected, code)
    if subject.supports.second_order:
        yield from _second_order(subject)


def _subsets(names: Sequence[str]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the indices of the leaves that require grad, and a description: each leaf alone, then all leaves but one.

    The latter happens if one tensor of a list does not require grad.
    """
    for chosen in subsets(len(names)):
        others = [name for index, name in enumerate(names) if index not in chosen]
        if len(chosen) == 1 and others:
            yield chosen, f"only {names[chosen[0]]} requires grad"
        elif others:
            yield chosen, f"all inputs but {others[0]} require grad"


def _code(chosen: tuple[int, ...], compared: str) -> str:
    """Return code that compares a call where only some inputs require grad with a call where all do."""
    some = "".join(f"some[{index}].requires_grad_()\n" for index in chosen)
    return f"{CALL}some = [x.detach() for x in inputs]\n{some}{compared.format(chosen=list(chosen))}"


def _alone(subject: Subject, chosen: Sequence[int]) -> tuple[Call, Tensor, Tensor]:
    """Call the operator where only some leaves require grad. Return the call, their gradients, and the cotangents.

    The cotangents are copies from before the backward pass.
    """
    call = _with_grad(subject, *chosen)
    alone = Call(tuple(call.leaves[index] for index in chosen), call.results)
    cotangents = vector(alone.cotangents)
    return alone, alone.gradient(), cotangents


def _second_order(subject: Subject) -> Iterator[Row]:
    """Compare second derivatives for cotangents with and without requires_grad, and where one leaf alone requires grad.

    Second derivatives that raise are skipped: another check reports them.
    """
    together = tried(lambda: _again(Call.of(subject)))
    variable = tried(lambda: _again(Call.of(subject), variable=True))
    if isinstance(together, Exception) or isinstance(variable, Exception):
        return
    expected, got = tried(partial(_of_all, variable)), tried(partial(_of_all, together))
    if isinstance(expected, Tensor) and isinstance(got, Tensor):
        yield Row("the second derivatives for a cotangent that does not require grad", got, expected)
    for index, name in enumerate(subject.leaf_names if len(subject.leaves) > 1 else ()):
        expected = tried(partial(_of_gradient, together, index))
        alone = tried(partial(_of_one, subject, index))
        if isinstance(alone, Tensor) and isinstance(expected, Tensor):
            yield Row(f"the second derivatives where only {name} requires grad", alone, expected)


def _again(call: Call, *, variable: bool = False) -> tuple[Tensors, Tensors]:
    """Return the leaves of a call and their gradients, with a graph.

    In place of the gradient of a leaf that does not require grad, the leaf itself is returned.
    variable: whether the cotangents require grad, too.
    """
    wanted = [leaf for leaf in call.leaves if leaf.requires_grad]
    cotangents = [own.requires_grad_(variable) for own in call.cotangents]
    gradients = iter(Call(tuple(wanted), call.results).gradients(cotangents, create_graph=True))
    return call.leaves, tuple(next(gradients) if leaf.requires_grad else leaf for leaf in call.leaves)


def _of_one(subject: Subject, index: int) -> Tensor:
    return _of_gradient(_again(_with_grad(subject, index)), index)


def _of_all(again: tuple[Tensors, Tensors]) -> Tensor:
    """Return the derivative of the gradients along a random direction, with respect to all leaves, of shape (N,).

    It is zero if no gradient requires grad.
    """
    leaves, gradients = again
    smooth = [(one, own) for one, own in zip(gradients, vectors_like(gradients), strict=True) if one.requires_grad]
    if not smooth:
        return torch.zeros(sum(map(real_size, leaves)), dtype=torch.float64)
    return Call(leaves, tuple(one for one, _ in smooth)).gradient([own for _, own in smooth])


def _of_gradient(again: tuple[Tensors, Tensors], index: int) -> Tensor:
    """Return the derivative of one leaf's gradient with respect to that leaf, for fixed cotangents."""
    leaves, gradients = again
    return Call((leaves[index],), (gradients[index],)).gradient()


def _with_grad(subject: Subject, *indices: int) -> Call:
    """Call the operator where only the leaves at the given indices require grad."""
    leaves = copies(subject.leaves)
    return Call.of(subject, [leaf.requires_grad_(number in indices) for number, leaf in enumerate(leaves)])


def _beside_arguments(names: Iterable[str]) -> Verdict:
    """Return a failure for tensors that require grad but are no arguments: no check tests their gradients."""
    listed = list(dict.fromkeys(names))
    title = "needs_input_grad: an output requires grad where no input does"
    if listed:
        title = f"needs_input_grad: {listed[0]} requires grad, but is no argument: its gradient is not tested"
    return fails(title, "\n".join(filter(None, (", ".join(listed[1:]), REMEDY))))


REMEDY = (
    "pass it as an argument, or detach it; name a module by its class, with the key module, or pass the module itself "
    "to opcheck.check"
)


def _ends(outputs: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """Yield the leaf tensors in the graph of some outputs: those that accumulate a gradient."""
    variables = (getattr(node, "variable", None) for node in nodes_of(outputs))
    return (variable for variable in variables if isinstance(variable, Tensor))


check = relation(rows)
