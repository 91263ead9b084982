"""Mutants: an operator whose gradient is wrong under one condition only. To run some shows that measuring is enough."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.judging import implementation
from opcheck.mutation.call import Call, Signature
from opcheck.mutation.conditions import Condition
from opcheck.mutation.measure import Derivative, Measured
from opcheck.planning.expectations import samples_to_run
from opcheck.running.session import RunSession
from opcheck.samples.cache import Cache
from opcheck.samples.inputs import mapped


class _Wrong(torch.autograd.Function):
    """Returns its input. One of its derivatives is wrong: something is added to it that no projection takes away."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, of: Derivative) -> Tensor:
        return x.view_as(x)

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
        return (_spoiled(tangent) if ctx.of == "tangent" else tangent).view_as(tangent)


def _spoiled(derivative: Tensor) -> Tensor:
    if not derivative.numel():
        raise RuntimeError("a mutant refuses a derivative without elements")
    ramp = torch.linspace(1, 2, derivative.numel(), dtype=derivative.dtype, device=derivative.device)
    return derivative + ramp.reshape(derivative.shape)


def mutant(
    operator: Callable[..., Any], condition: Condition, signature: Signature, of: Derivative = "gradient"
) -> Callable[..., Any]:
    """Return an operator with the same values, and with a derivative that is wrong where a condition holds."""

    def wrong_at(item: Any) -> Any:
        is_smooth = isinstance(item, Tensor) and (item.is_floating_point() or item.is_complex())
        return _Wrong.apply(item, of) if is_smooth and item.layout is torch.strided else item  # type: ignore[no-untyped-call]

    @functools.wraps(operator)
    def wrong(*args: Any, **kwargs: Any) -> Any:
        if condition.holds(Call(args, kwargs, signature, ())):
            args, kwargs = mapped(wrong_at, args), mapped(wrong_at, kwargs)
        return operator(*args, **kwargs)

    return wrong


@dataclass(frozen=True)
class Proof:
    """What the checks say of one mutant."""

    operator: str
    condition: Condition
    is_met: bool
    """Whether a sample meets its condition, as measured."""
    is_noticed: bool
    """Whether a check fails."""

    @property
    def agrees(self) -> bool:
        """Whether it is noticed exactly if its condition is met."""
        return self.is_met == self.is_noticed


def prove(measured: Sequence[Measured], count: int, session: RunSession) -> Iterator[Proof]:
    """Run some mutants, drawn by the seed of the project, by the checks that look at gradients.

    Left out are modules, which are no functions that can be wrapped, and operators that do not pass as they are.
    """
    draw = Random(session.settings.seed)
    pool = [
        (one, answer)
        for one in measured
        for answer in one.answers
        if one.operator.spec.module is None and answer.state != "unreachable" and not answer.condition.checks
    ]
    passing: dict[str, bool] = {}
    for one, answer in draw.sample(pool, len(pool)):
        if count <= 0:
            break
        name = one.operator.id
        if name not in passing:
            passing[name] = not is_noticed(one, None, session)
        if passing[name]:
            count -= 1
            yield Proof(name, answer.condition, answer.state == "met", is_noticed(one, answer.condition, session))


def is_noticed(one: Measured, condition: Condition | None, session: RunSession) -> bool:
    """Tell whether a check of gradients fails for a mutant; without a condition, for the operator as it is."""
    for case in one.cases:
        context = replace(session.context(case, samples_to_run(case)), cache=Cache())
        if condition is not None:
            path = case.variant.path
            wrong = mutant(context.operator, condition, Signature.of(context.operator, path), one.of)
            context = replace(context, cache=Cache(), callables={path: wrong})
        if not all(verdict.passed for verdict in implementation(case.kind)(context)):
            return True
    return False
