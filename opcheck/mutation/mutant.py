"""Mutants: operators whose gradient is wrong under one condition only. Running some validates the measurement."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.per_sample import implementation
from opcheck.mutation.call import Call
from opcheck.mutation.conditions import Condition
from opcheck.mutation.measure import Answer, Derivative, Measured, Target
from opcheck.samples.arguments import Signature
from opcheck.samples.cache import Cache
from opcheck.samples.inputs import mapped


class _Wrong(torch.autograd.Function):
    """Returns a copy of its input. One derivative is wrong: a ramp is added, which no projection of it removes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, of: Derivative) -> Tensor:
        return x.clone()  # not a view, which an in-place operator may not write to

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.of = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if ctx.of == "second derivative":
            return _Wrong.apply(gradient, "gradient"), None  # type: ignore[no-untyped-call]
        return _spoiled(gradient) if ctx.of == "gradient" else gradient, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _spoiled(tangent) if ctx.of == "tangent" else tangent.clone()


def _spoiled(derivative: Tensor) -> Tensor:
    if not derivative.numel():
        raise RuntimeError("a mutant refuses a derivative without elements")
    ramp = torch.linspace(1, 2, derivative.numel(), dtype=derivative.dtype, device=derivative.device)
    return derivative + ramp.reshape(derivative.shape)


def mutant(
    operator: Callable[..., Any], condition: Condition, signature: Signature, of: Derivative = "gradient"
) -> Callable[..., Any]:
    """Return an operator with the same outputs as `operator`, but a wrong derivative if a condition holds."""

    def wrong_at(item: Any) -> Any:
        is_smooth = isinstance(item, Tensor) and (item.is_floating_point() or item.is_complex())
        is_dense = is_smooth and item.layout is torch.strided and not item.is_nested
        return _Wrong.apply(item, of) if is_dense else item  # type: ignore[no-untyped-call]

    @functools.wraps(operator)
    def wrong(*args: Any, **kwargs: Any) -> Any:
        if condition.holds(Call(args, kwargs, signature, ())):
            args, kwargs = mapped(wrong_at, args), mapped(wrong_at, kwargs)
        return operator(*args, **kwargs)

    return wrong


@dataclass(frozen=True)
class Proof:
    """The results of the checks for one mutant, as printed with `--json`."""

    operator: str
    condition: str
    met: bool
    """Whether a sample meets the condition, according to `measure`."""
    noticed: bool
    """Whether the checks return other results for the mutant than for the operator itself."""

    @property
    def agrees(self) -> bool:
        """Whether the measurement is right: the mutant is noticed if and only if its condition is met."""
        return self.met == self.noticed


def drawn(measured: Sequence[Measured], seed: int) -> list[tuple[str, Answer]]:
    """Return the operator id and the answer for each mutant that can be run, in random order."""
    pool = [
        (one.operator, answer)
        for one in measured
        for answer in one.answers
        if answer.is_of_samples and answer.state != "unreachable"
    ]
    return Random(seed).sample(pool, len(pool))


def prove(target: Target, answer: Answer) -> Proof | None:
    """Run the checks of the derivative on a mutant.

    Return None if the operator itself does not pass, or if it is a module, which is not a function to wrap.
    """
    if target.operator.spec.module is not None:
        return None
    plain = said(target, None)
    if not all(passed for passed, _ in plain):
        return None
    (condition,) = (one for one in target.conditions if one.name == answer.condition)
    return Proof(target.operator.id, answer.condition, answer.state == "met", said(target, condition) != plain)


def said(target: Target, condition: Condition | None) -> list[tuple[bool, int]]:
    """Run the checks on a mutant. Return, for each verdict, whether it passes, and its number of notes.

    condition: the condition under which the derivative is wrong; None: the operator itself.
    """
    verdicts = []
    for case in (*target.looks, *target.further):
        context = replace(target.session.context(case), cache=Cache())
        if condition is not None:
            wrong = mutant(context.operator, condition, target.signature, target.of)
            context = replace(context, callables={case.variant.path: wrong})
        verdicts += [*implementation(case.kind)(context)]
    return [(verdict.passed, len(verdict.fields.get("notes", ()))) for verdict in verdicts]
