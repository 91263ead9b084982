"""The gradient of an input does not depend on which other inputs require grad; nothing but inputs requires grad.

Whether cotangents require grad makes no difference either. Cotangents are not written to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from opcheck.checks.calls import Call, Result, copies
from opcheck.checks.plain_torch import CALL
from opcheck.checks.relations import Row, computed, relation, row
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, fails
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import nodes_of
from opcheck.derivatives.coordinates import real_size, vector
from opcheck.derivatives.cotangents import subsets, vectors_like
from opcheck.samples.captured import captured
from opcheck.samples.modules import ModuleCall

VALUES = "actual, expected = function(*some), outputs"
GRADIENTS = """\
actual = pulled(function(*some), [some[k] for k in {chosen}], cotangents)
expected = [pulled(outputs, inputs, cotangents)[k] for k in {chosen}]"""


def rows(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Compare values and gradients where no leaf, or some of the leaves only, require grad: see `_subsets`."""
    operator = subject.function.operator
    known = {*map(id, operator.state.values())} if isinstance(operator, ModuleCall) else set[int]()
    held = {id(tensor): name for name, tensor in captured(operator) if not {*map(id, _ends((tensor,)))} <= known}
    if held:
        yield _beside_arguments(held.values())
    whose, code = "no input requires grad", _code((), VALUES)
    alone = computed(f"the values where {whose}", lambda: _alone(subject), code)
    yield Row(f"the values where {whose}", alone.values, here.values, code)
    if alone.has_graph:
        yield _beside_arguments(f"a tensor of shape {list(tensor.shape)}" for tensor in _ends(alone.results))
    slices = torch.split(here.gradient, [*map(real_size, subject.leaves)])
    for chosen, whose in _subsets(subject.leaf_names):
        what, code = f"the gradients where {whose}", _code(chosen, GRADIENTS)
        alone = computed(what, partial(_alone, subject, *chosen), code)
        cotangents, expected = vector(alone.cotangents), torch.cat([slices[index] for index in chosen])
        gradients = row(what, alone.gradient, expected, code)
        if len(chosen) == 1:
            yield Row(f"the values where {whose}", alone.values, here.values, _code(chosen, VALUES))
        yield Row(f"the cotangents after a backward pass where {whose}", vector(alone.cotangents), cotangents)
        yield gradients
    if subject.supports.second_order:
        yield from _second_order(subject)


def _subsets(names: Sequence[str]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the indices of the leaves that require grad, and a description: each leaf alone, all but one, and halves.

    The latter happen if some tensors of a list do not require grad, or where a network is trained in part.
    """
    for chosen in subsets(len(names)):
        others = [name for index, name in enumerate(names) if index not in chosen]
        if others and len(chosen) == 1:
            yield chosen, f"only {names[chosen[0]]} requires grad"
        elif len(others) == 1:
            yield chosen, f"all inputs but {others[0]} require grad"
        elif others:
            yield chosen, f"only {' and '.join(names[index] for index in chosen)} require grad"


def _code(chosen: tuple[int, ...], compared: str) -> str:
    """Return code that compares a call where only some inputs require grad with a call where all do."""
    some = "".join(f"some[{index}].requires_grad_()\n" for index in chosen)
    return f"{CALL}some = [x.detach() for x in inputs]\n{some}{compared.format(chosen=list(chosen))}"


def _alone(subject: Subject, *chosen: int) -> Call:
    """Call the operator where only the leaves at some indices require grad. Return it as a call of these leaves."""
    leaves = copies(subject.leaves)
    call = Call.of(subject, [leaf.requires_grad_(number in chosen) for number, leaf in enumerate(leaves)])
    return Call(tuple(leaves[index] for index in chosen), call.results)


def _second_order(subject: Subject) -> Iterator[Row]:
    """Compare second derivatives for cotangents with and without requires_grad, and where one leaf alone requires grad.

    Second derivatives that raise are skipped: another check reports them.
    """
    count = len(subject.leaves)

    def backward(*chosen: int, variable: bool) -> Call:
        """Return the backward pass where only some leaves require grad, as a call. variable: cotangents do, too."""
        call = _alone(subject, *chosen)
        cotangents = tuple(v.requires_grad_(variable) for v in call.cotangents)
        gradients = call.gradients(cotangents, create_graph=True)
        return Call((*call.leaves, *cotangents) if variable else call.leaves, gradients)

    def alone(index: int, variable: bool) -> Tensor:
        return _gradient_of_all(backward(index, variable=variable))

    together, variable = (tried(partial(backward, *range(count), variable=own)) for own in (False, True))
    if isinstance(together, Exception) or isinstance(variable, Exception):
        return
    of_leaves = Call(variable.leaves[:count], variable.results)
    got, expected = (tried(partial(_gradient_of_all, call)) for call in (together, of_leaves))
    if isinstance(expected, Tensor) and isinstance(got, Tensor):
        yield Row("the second derivatives for a cotangent that does not require grad", got, expected)
    for index, name in enumerate(subject.leaf_names if count > 1 else ()):
        for whole, words in ((together, f"{name} requires"), (variable, f"the cotangent and {name} require")):
            one = Call((whole.leaves[index], *whole.leaves[count:]), (whole.results[index],))
            expected = tried(partial(_gradient_of_all, one))
            got = tried(partial(alone, index, whole is variable))
            if isinstance(got, Tensor) and isinstance(expected, Tensor):
                yield Row(f"the second derivatives where only {words} grad", got, expected)


def _gradient_of_all(call: Call) -> Tensor:
    """Return the gradient of the results that require grad, for random cotangents, of shape (N,); zero if none does."""
    smooth = [
        (one, own) for one, own in zip(call.results, vectors_like(call.results), strict=True) if one.requires_grad
    ]
    if not smooth:
        return torch.zeros(sum(map(real_size, call.leaves)), dtype=torch.float64, device="cpu")
    return Call(call.leaves, tuple(one for one, _ in smooth)).gradient([own for _, own in smooth])


def _beside_arguments(names: Iterable[str]) -> Verdict:
    """Return a failure for tensors that require grad but are not arguments: no check tests their gradients."""
    listed = list(dict.fromkeys(names))
    title = "needs_input_grad: an output requires grad where no input does"
    if listed:
        title = f"needs_input_grad: {listed[0]} requires grad, but is no argument: its gradient is not tested"
    return fails(title, "\n".join(filter(None, (", ".join(listed[1:]), REMEDY))))


REMEDY = (
    "pass it as an argument, or detach it; name a module by its class, with the key module, or pass the module itself "
    "to opcheck.check; parameters that forward creates have to be those of a lazy module"
)


def _ends(outputs: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """Yield the leaf tensors in the graph of some outputs, or among them: those that accumulate a gradient."""
    yield from (output for output in outputs if output.is_leaf and output.requires_grad)
    variables = (getattr(node, "variable", None) for node in nodes_of(outputs))
    yield from (variable for variable in variables if isinstance(variable, Tensor))


check = relation(rows)
