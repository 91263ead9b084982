"""Operators registered with torch.library pass `torch.library.opcheck`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from opcheck.checks.looks import is_alike
from opcheck.checks.subject import Subject
from opcheck.checks.varied import OfValues
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.planning.planner import most_precise
from opcheck.samples.arguments import REGISTERED
from opcheck.samples.function import with_own_first

FAST = ("test_schema", "test_autograd_registration", "test_faketensor")
"""The tests that take milliseconds. AOT dispatch takes a third of a second."""


def judge(subject: Subject, tests: Sequence[str] = FAST) -> Verdict:
    """Run tests of `torch.library.opcheck`. Default: schema, autograd registration, fake tensors."""
    operator, path = subject.context.operator, subject.case.variant.path
    if not isinstance(operator, REGISTERED):
        hint = 'name the operator itself, such as "torch.ops.mylib.scale", not a function that calls it'
        return fails(f"registration: torch.library does not register {path}", f"{hint}, or write registered = false")
    overloads: list[str] = getattr(operator, "overloads", list)()
    if len(overloads) > 1:  # the operator is an overload packet, and not one of its overloads
        hint = f'name one of them, such as "{path}.{overloads[0]}", or write registered = false'
        return fails(f"registration: {path} has several overloads, which are tested one by one", hint)
    # Without a formula for backward, AOT dispatch fails for inputs that require grad.
    has_backward = subject.supports.backward and subject.case.dtype in subject.case.claims.backward
    inputs = subject.inputs if has_backward else subject.inputs.detached()
    args, kwargs = inputs.fill()
    if subject.function.inplace:  # autograd rejects in-place writes to a leaf
        args, kwargs = with_own_first(args, kwargs)
    results = torch.library.opcheck(operator, args, kwargs, test_utils=tests, raise_exception=False)
    failed = {name: result for name, result in results.items() if result != "SUCCESS"}
    if not failed:
        return HOLDS
    detail = "\n".join(f"{name}: {result}" for name, result in failed.items())
    return fails(f"registration: {', '.join(failed)} failed", detail)


def _judge(subject: Subject) -> Verdict:
    """Run the tests at a written sample, AOT dispatch only in the most precise dtypes."""
    claimed = subject.case.claims.forward
    precise = most_precise(claimed) or claimed[:1]
    return judge(subject, (*FAST, "test_aot_dispatch_dynamic") if subject.case.dtype in precise else FAST)


check = OfValues(_judge, at_derived=judge, covers=is_alike)
