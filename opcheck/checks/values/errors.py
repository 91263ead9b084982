"""The inputs listed under `[[operator.errors]]` raise the exception and message stated."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opcheck.checks.per_sample import with_sample
from opcheck.checks.subject import Context
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, inapplicable
from opcheck.spec.claims import ErrorClaim
from opcheck.spec.library import Sample
from opcheck.text import message_of, one_line


def check(context: Context) -> Iterator[Verdict]:
    """Call the operator with each listed input that must raise on the device of the case."""
    operator, device = context.case.operator, context.case.device.name
    listed = enumerate(operator.spec.errors)
    claims = [(index, claim) for index, claim in listed if claim.devices is None or device in claim.devices]
    if not claims:
        yield inapplicable(f"no listed input is refused on {device}")
    for index, claim in claims:
        path = ("operator", operator.index, "errors", index)
        sample = Sample(f"errors.{index}", tuple(claim.args), claim.kwargs, operator.document, path)
        yield with_sample(_verdict(context, claim, sample), sample)


def _verdict(context: Context, claim: ErrorClaim, sample: Sample) -> Verdict:
    try:
        inputs = context.realize(sample)
    except Exception as error:
        return cannot(f"errors: the input cannot be made: {one_line(error)}")
    args, kwargs = inputs.detached().fill()
    try:
        context.operator_at(sample)(*args, **kwargs)
    except Exception as error:
        # The name of the class torch.linalg.LinAlgError is _LinAlgError.
        if claim.raises not in {base.__name__.lstrip("_") for base in type(error).__mro__}:
            return fails(f"errors: expected {claim.raises}, got {one_line(error)}")
        if not re.search(claim.match, message_of(error)):
            return fails(f'errors: the message does not match "{claim.match}"', one_line(error))
        return HOLDS
    return fails(f"errors: the input is accepted; expected {claim.raises}")
