"""The inputs listed under `[[operator.errors]]` raise the exception and message stated."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opcheck.checks.base import Context
from opcheck.checks.verdict import Verdict, cannot, fails, one_line
from opcheck.spec.claims import ErrorClaim
from opcheck.spec.library import Sample
from opcheck.text import message_of


def check(context: Context) -> Iterator[Verdict]:
    """Call the operator with each listed input."""
    for index, claim in enumerate(context.case.operator.spec.errors):
        yield _tried(context, claim, index)


def _tried(context: Context, claim: ErrorClaim, index: int) -> Verdict:
    operator = context.case.operator
    path = ("operator", operator.index, "errors", index)
    sample = Sample(f"errors.{index}", tuple(claim.args), claim.kwargs, None, None, operator.document, path)
    try:
        inputs = context.realize(sample)
    except Exception as error:
        return _with_sample(cannot(f"errors: the input cannot be made: {one_line(error)}"), sample)
    args, kwargs = inputs.detached().fill()
    try:
        context.operator_at(sample)(*args, **kwargs)
    except Exception as error:
        # The name of the class torch.linalg.LinAlgError is _LinAlgError.
        if claim.raises not in {base.__name__.lstrip("_") for base in type(error).__mro__}:
            return _with_sample(fails(f"errors: expected {claim.raises}, got {one_line(error)}"), sample)
        if not re.search(claim.match, message_of(error)):
            return _with_sample(fails(f'errors: the message does not match "{claim.match}"', one_line(error)), sample)
        return Verdict(True, sample=sample.name)
    return _with_sample(fails(f"errors: the input is accepted; expected {claim.raises}"), sample)


def _with_sample(verdict: Verdict, sample: Sample) -> Verdict:
    return Verdict(False, verdict.title, verdict.detail, sample.name, verdict.is_error, sample.where, sample.toml())
