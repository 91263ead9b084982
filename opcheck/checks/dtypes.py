"""Forward and backward work for exactly the dtypes claimed: the others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import torch

from opcheck.checks.context import Context, Subject, judged, refused
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, told
from opcheck.derivatives import NO_REFUSAL
from opcheck.samples.outputs import differentiable, flatten
from opcheck.spec.dtypes import is_differentiable
from opcheck.spec.library import Sample


def check(context: Context) -> Iterator[Verdict]:
    """Test the claim about the dtype of the case, whichever way it goes."""
    claims, dtype = context.case.claims, context.case.dtype
    if not context.samples:
        return
    if dtype not in claims.forward:
        yield _refused(context, "forward")
        return
    plain = context if dtype in claims.backward else _without_derivatives(context)
    yield from (_claim_broken(context, judged(plain, s, _forward, False)) for s in context.samples)
    if claims.supports.backward and is_differentiable(dtype):
        if dtype in claims.backward:
            yield from (v for v in (judged(context, s, _backward, True) for s in context.samples) if v is not None)
        else:
            yield _refused(context, "backward")


class _WithoutDerivatives(Context):
    def subject(self, sample: Sample) -> Subject:
        inputs = self.inputs(sample).detached()
        return Subject(self, sample, inputs, self.function(sample, inputs))


def _without_derivatives(context: Context) -> Context:
    """Return the context with inputs that do not require grad: some operators refuse others in the forward pass."""
    return _WithoutDerivatives(**{item.name: getattr(context, item.name) for item in fields(Context)})


def _claim_broken(context: Context, verdict: Verdict | None) -> Verdict:
    """A refusal is no accident here: that the dtype is accepted is the very claim."""
    if verdict is None or verdict.passed:
        return HOLDS
    title = f"dtypes: forward is claimed for {context.case.dtype}, but {verdict.title}"
    return replace(verdict, title=title, is_error=False)


def _forward(subject: Subject) -> Verdict:
    return HOLDS  # that the operator accepts the sample is seen before a judgement is asked for


def _backward(subject: Subject) -> Verdict:
    dtype = subject.context.case.dtype
    try:
        _run_backward(subject)
    except Exception as error:
        return fails(f"dtypes: backward is claimed for {dtype}, and refused: {told(error)}")
    return HOLDS


def _run_backward(subject: Subject) -> None:
    outputs = [output for output in differentiable(subject.outputs) if output.requires_grad]
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
                flatten(subject.function.result(*(leaf.detach() for leaf in subject.leaves)))
        except NO_REFUSAL as error:
            return refused(error)
        except Exception:
            return HOLDS
    if not tried:
        return cannot(f"dtypes: no sample can be made in {dtype}, so that nothing shows whether it is refused")
    return fails(
        f"dtypes: {what} is not claimed for {dtype}, but works on all samples",
        f'add "{dtype}" to dtypes.{what}',
    )
