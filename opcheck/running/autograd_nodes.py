"""Collects the autograd formulas that samples of operators reach: the node names of the graphs that torch records."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes  # imported before forking; else each process does at its first gradient
from torch import Tensor

from opcheck.checks.subject import Subject
from opcheck.derivatives.autodiff import nodes_of
from opcheck.devices.device import CPU
from opcheck.planning.planner import plan
from opcheck.running.own_process import apart, split_results
from opcheck.running.session import RunSession
from opcheck.samples.results import flatten, with_gradient
from opcheck.spec.library import Library, Operator


def reached(
    operators: Sequence[Operator], session: RunSession, processes: int, seconds: float | None = None
) -> tuple[set[str], dict[str, str]]:
    """Return the names of the formulas that samples reach on the CPU, and the reasons why operators have no result.

    The reasons are by operator id. Each operator runs in a process of its own, where possible.

    Args:
        operators: The operators to call. The session must have imported the modules that they name.
        session: The session of this process.
        processes: The number of operators to run in parallel.
        seconds: The time limit of an operator. None: no limit.
    """
    answers = apart(partial(formulas, session=session), operators, processes, seconds)
    by_id, lost = split_results((operator.id for operator in operators), answers)
    return set[str]().union(*by_id.values()), lost


def formulas(operator: Operator, session: RunSession) -> set[str]:
    """Return the names of the first- and second-order formulas that an operator's written samples reach on the CPU.

    Nodes of the autograd engine, such as `torch::autograd::AccumulateGrad`, are left out.

    Each sample is called in each variant, in the first real and in the first complex dtype that it is meant for.
    """
    names = set[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of operators are shown by a run
        for subject in _subjects(operator, session):
            try:
                for outputs in orders(subject.function.result, subject.leaves):
                    names |= names_in(outputs)
            except Exception:  # a run reports samples, or second derivatives, that raise
                continue
    return names


def names_in(outputs: Sequence[Tensor]) -> set[str]:
    """Return the names of the autograd formulas in the graph of some outputs."""
    return {name_of(node.name()) for node in nodes_of(outputs) if "::" not in node.name()}


def name_of(node: str) -> str:
    """Return the name of a node's formula: the node's name without the trailing digits that number overloads."""
    return node.rstrip("0123456789")


def _subjects(operator: Operator, session: RunSession) -> Iterator[Subject]:
    seen, cpu = set(), CPU.profile
    for case in plan(Library((operator,)), [cpu], seed=session.settings.seed):
        context = session.context(case)
        for sample in case.samples:
            key = (case.variant, sample.name, context.dtype.is_complex)
            if key in seen or not (context.dtype.is_floating_point or context.dtype.is_complex):
                continue
            seen.add(key)
            try:
                yield context.subject(sample)
            except Exception:  # a run reports the exception
                continue


def orders(function: Callable[..., Any], leaves: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    """Yield the outputs of a function that require grad, then the gradients of each of these outputs.

    The cotangents require grad, so that the gradients have a graph even if the function is linear.
    """
    outputs = with_gradient(flatten(function(*leaves)))
    yield outputs
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    for output in outputs if wanted else ():
        cotangent = torch.ones_like(output).requires_grad_()
        gradients = torch.autograd.grad(
            output, wanted, cotangent, create_graph=True, retain_graph=True, allow_unused=True
        )
        yield [gradient for gradient in gradients if gradient is not None]
