"""Each input alone requiring grad, and all of them, give the same gradients; nothing else requires grad."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, compared, copies, ordinary
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives.autodiff import nodes_of
from opcheck.derivatives.coordinates import parts, real_size, vector
from opcheck.samples.captured import captured


def judge(subject: Subject) -> Verdict:
    """Compare the gradient of each leaf that requires grad alone, and the values where none does."""
    expected = ordinary(subject)
    held = {id(tensor): name for name, tensor in captured(subject.function.operator) if tensor.requires_grad}
    if held:
        return _untested(held.values())
    slices = parts(expected.gradient, map(real_size, subject.leaves))
    for index in (None, *range(len(subject.leaves))):
        leaves = tuple(leaf.requires_grad_(k == index) for k, leaf in enumerate(copies(subject.leaves)))
        call = Call.of(subject, leaves)
        whose = "no input" if index is None else f"only {subject.leaf_names[index]}"
        verdict = compared(subject, f"the values where {whose} requires grad", vector(call.outputs), expected.value)
        if index is None and any(output.requires_grad for output in call.outputs):
            verdict = _untested(f"a tensor of shape {list(tensor.shape)}" for tensor in _ends(call.outputs))
        elif index is not None and verdict.passed:
            alone = Call((leaves[index],), call.outputs).pulled_back(call.cotangents)
            verdict = compared(subject, f"the gradient where {whose} requires grad", alone, slices[index])
        if not verdict.passed:
            return verdict
    return HOLDS


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


def _ends(outputs: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors at the ends of the graph of some outputs: those that accumulate a gradient."""
    for node in nodes_of(tuple(outputs)):
        if isinstance(variable := getattr(node, "variable", None), Tensor):
            yield variable


check = per_sample(judge)
