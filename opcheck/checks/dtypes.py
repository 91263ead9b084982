"""Forward and backward work for exactly the dtypes claimed: the others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial

import torch

from opcheck.checks.context import Context, Subject
from opcheck.checks.per_sample import each, too_much
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, told, untested
from opcheck.derivatives import NO_REFUSAL
from opcheck.samples.results import WHAT_IS_TESTED, Untestable
from opcheck.spec.dtypes import is_differentiable
from opcheck.spec.library import Sample


def check(context: Context) -> Iterator[Verdict]:
    """Test the claim about the dtype of the case, whichever way it goes."""
    claims, dtype = context.case.claims, context.case.dtype
    if dtype not in claims.forward:
        yield _refused(context, "forward")
        return
    plain = context if dtype in claims.backward else _without_derivatives(context)
    yield from each(plain, _forward, False, refusal=partial(_broken, dtype))
    if claims.supports.backward and is_differentiable(dtype):
        if dtype in claims.backward:
            yield from each(context, _backward, True)
        else:
            yield _refused(context, "backward")


class _WithoutDerivatives(Context):
    def subject(self, sample: Sample) -> Subject:
        inputs = self.inputs(sample).detached()
        return Subject(self, sample, inputs, self.function(sample, inputs))


def _without_derivatives(context: Context) -> Context:
    """Return the context with inputs that do not require grad: some operators refuse others in the forward pass."""
    return _WithoutDerivatives(**{item.name: getattr(context, item.name) for item in fields(Context)})


def _broken(dtype: str, refusal: str) -> Verdict:
    """A refusal is no accident here: that the dtype is accepted is the very claim."""
    return fails(f"dtypes: forward is claimed for {dtype}, but {refusal}")


def _forward(subject: Subject) -> Verdict:
    return HOLDS  # that the operator accepts the sample is seen before a judgement is asked for


def _backward(subject: Subject) -> Verdict:
    dtype = subject.context.case.dtype
    if not subject.seen.requires_grad:
        return untested("no output requires grad: there is no backward pass")
    try:
        _run_backward(subject)
    except Exception as error:
        return fails(f"dtypes: backward is claimed for {dtype}, and refused: {told(error)}")
    return HOLDS


def _run_backward(subject: Subject) -> None:
    outputs = subject.differentiable_outputs
    if outputs:
        cotangents = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, subject.leaves, cotangents, allow_unused=True)


def _refused(context: Context, what: str) -> Verdict:
    """One sample at least must be refused; an empty tensor, say, may slip through."""
    dtype, tried = context.case.dtype, 0
    for sample in context.samples:
        try:
            subject = context.subject(sample)
        except Exception:
            continue  # the sample has no meaning in this dtype
        tried += 1
        try:
            if what == "backward":
                _run_backward(subject)
                if not any(output.requires_grad for output in subject.outputs):
                    return HOLDS
            else:
                subject.function.result(*(leaf.detach() for leaf in subject.leaves))
        except Untestable as error:
            return cannot(str(error), WHAT_IS_TESTED)
        except NO_REFUSAL as error:
            return too_much(error)
        except Exception:
            return HOLDS
    if not tried:
        return cannot(f"dtypes: no sample can be made in {dtype}, so that nothing shows whether it is refused")
    return fails(
        f"dtypes: {what} is not claimed for {dtype}, but works on all samples",
        f'add "{dtype}" to dtypes.{what}',
    )
