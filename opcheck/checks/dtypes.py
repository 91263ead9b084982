"""Forward and backward work for exactly the dtypes claimed; all others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from opcheck.checks.context import Context
from opcheck.checks.per_sample import each, too_much
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, told, untested
from opcheck.derivatives import NO_REFUSAL
from opcheck.samples.results import WHAT_IS_TESTED, Untestable
from opcheck.spec.dtypes import is_differentiable


def check(context: Context) -> Iterator[Verdict]:
    """Test what the spec claims about the dtype of the case: that it works, or that it is refused."""
    claims, dtype = context.case.claims, context.case.dtype
    if dtype not in claims.forward:
        yield _refused(context, "forward")
        return
    # Without a backward pass, some operators refuse inputs that require grad.
    forward = context if dtype in claims.backward else replace(context, requires_grad=False)
    yield from each(forward, _forward, False, refusal=partial(_broken, dtype))
    if claims.supports.backward and is_differentiable(dtype):
        if dtype in claims.backward:
            yield from each(context, _backward, True)
        else:
            yield _refused(context, "backward")


def _broken(dtype: str, refusal: str) -> Verdict:
    # Elsewhere a refused sample is an error. Here, that the operator accepts the dtype is the claim.
    return fails(f"dtypes: forward is claimed for {dtype}, but {refusal}", remedy=_remedy("forward", f"-{dtype}"))


def _forward(subject: Subject) -> Verdict:
    return HOLDS  # before a sample is judged, the operator has been called


def _backward(subject: Subject) -> Verdict:
    dtype = subject.context.case.dtype
    if not subject.output_info.requires_grad:
        return untested("no output requires grad: there is no backward pass")
    try:
        _run_backward(subject)
    except Exception as error:
        title = f"dtypes: backward is claimed for {dtype}, but is refused: {told(error)}"
        return fails(title, remedy=_remedy("backward", f"-{dtype}"))
    return HOLDS


def _run_backward(subject: Subject) -> None:
    outputs = subject.differentiable_outputs
    if outputs:
        cotangents = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, subject.leaves, cotangents, allow_unused=True)


def _refused(context: Context, what: str) -> Verdict:
    """Return the verdict on a dtype that is not claimed: at least one sample must be refused. Some may slip through."""
    dtype, tried = context.case.dtype, 0
    for sample in context.samples:
        try:
            subject = Subject.of(context, sample)
        except Exception:
            continue  # the sample does not exist in this dtype
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
        return cannot(f"dtypes: no sample can be made in {dtype}, so it is unknown whether {dtype} is refused")
    return fails(
        f"dtypes: {what} is not claimed for {dtype}, but works on all samples",
        f'add "{dtype}" to dtypes.{what}',
        remedy=_remedy(what, dtype),
    )


def _remedy(what: str, entry: str) -> dict[str, str]:
    """Return the claim to add (a dtype) or to take back (with a leading -), as data."""
    return {"key": f"dtypes.{what}", "write": entry}
