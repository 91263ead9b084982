"""Each input alone requiring grad, and all of them, give the same gradients; nothing else requires grad."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, Result, copies
from opcheck.checks.relations import Row, relation
from opcheck.checks.verdict import Verdict, fails
from opcheck.derivatives.autodiff import nodes_of
from opcheck.derivatives.coordinates import parts, real_size
from opcheck.samples.captured import captured


def rows(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Compare the values where no leaf requires grad, and the gradient of each one that does alone."""
    held = {id(tensor): name for name, tensor in captured(subject.function.operator) if tensor.requires_grad}
    if held:
        yield _untested(held.values())
    call, whose = _with_grad(subject, None), "no input requires grad"
    yield f"the values where {whose}", call.values, here.values
    if call.has_graph:
        yield _untested(f"a tensor of shape {list(tensor.shape)}" for tensor in _ends(call.results))
    slices = parts(here.gradient, map(real_size, subject.leaves))
    for index, expected in enumerate(slices if len(slices) > 1 else ()):  # one alone is all there are
        call, whose = _with_grad(subject, index), f"only {subject.leaf_names[index]} requires grad"
        yield f"the values where {whose}", call.values, here.values
        alone = Call((call.leaves[index],), call.results)
        yield f"the gradient where {whose}", alone.gradient(), expected


def _with_grad(subject: Subject, index: int | None) -> Call:
    """Call the operator at leaves of which none requires grad but that at an index."""
    leaves = copies(subject.leaves)
    return Call.of(subject, [leaf.requires_grad_(number == index) for number, leaf in enumerate(leaves)])


def _untested(names: Iterable[str]) -> Verdict:
    """Return the verdict on state that requires grad: no check compares its gradient with anything."""
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
    """Yield the tensors at the ends of the graph of some outputs: those that accumulate a gradient."""
    variables = (getattr(node, "variable", None) for node in nodes_of(outputs))
    return (variable for variable in variables if isinstance(variable, Tensor))


check = relation(rows)
