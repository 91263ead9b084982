"""Which autograd formulas the samples of an operator reach: the nodes of the graphs that torch records for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes  # at the first gradient, autograd would: once, not in each process
from torch import Tensor

from opcheck.checks.subject import Subject
from opcheck.derivatives.autodiff import nodes_of
from opcheck.planning.planner import plan
from opcheck.running.own_process import apart, parted
from opcheck.running.session import RunSession
from opcheck.samples.results import flatten, with_gradient
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.library import Library, Operator


def reached(
    operators: Sequence[Operator], session: RunSession, processes: int, seconds: float | None = None
) -> tuple[set[str], dict[str, str]]:
    """Return the names of the formulas that the samples of operators reach on the CPU, and why one has no answer.

    Each operator has a process of its own, where that is possible.

    Args:
        operators: Whose samples are called. The session has imported what they name.
        session: What belongs to the process.
        processes: How many operators are called at the same time.
        seconds: How long one may take.
    """
    answers = apart(partial(formulas, session=session), operators, processes, seconds)
    by_id, lost = parted((operator.id for operator in operators), answers)
    return set[str]().union(*by_id.values()), lost


def formulas(operator: Operator, session: RunSession) -> set[str]:
    """Return the names of the formulas that the written samples reach on the CPU, at first and at second order.

    Nodes of the engine, such as `torch::autograd::AccumulateGrad`, are none.

    Each sample is called in the first real and in the first complex dtype that it is meant for, in each variant.
    """
    names = set[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of operators: a run shows them
        for subject in _subjects(operator, session):
            try:
                for outputs in orders(subject.function.result, subject.leaves):
                    names |= names_in(outputs)
            except Exception:  # what refuses a sample, or a second derivative, is judged by a run
                continue
    return names


def names_in(outputs: Sequence[Tensor]) -> set[str]:
    """Return the formulas in the graph of some outputs."""
    return {name_of(node.name()) for node in nodes_of(outputs) if "::" not in node.name()}


def name_of(node: str) -> str:
    """Return the formula of a node: its name without the digits that tell overloads apart."""
    return node.rstrip("0123456789")


def _subjects(operator: Operator, session: RunSession) -> Iterator[Subject]:
    seen, cpu = set(), DeviceProfile(name="cpu")
    for case in plan(Library((operator,)), [cpu], seed=session.settings.seed):
        context = session.context(case, case.samples)
        for sample in case.samples:
            key = (case.variant, sample.name, context.dtype.is_complex)
            if key in seen or not (context.dtype.is_floating_point or context.dtype.is_complex):
                continue
            seen.add(key)
            try:
                yield context.subject(sample)
            except Exception:  # a run says what is wrong with it
                continue


def orders(function: Callable[..., Any], leaves: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    """Yield the outputs of a function, and then their gradients for cotangents that require grad themselves."""
    outputs = with_gradient(flatten(function(*leaves)))
    yield outputs
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    for output in outputs if wanted else ():
        cotangent = torch.ones_like(output).requires_grad_()
        gradients = torch.autograd.grad(
            output, wanted, cotangent, create_graph=True, retain_graph=True, allow_unused=True
        )
        yield [gradient for gradient in gradients if gradient is not None]
