"""Operators registered with torch.library pass `torch.library.opcheck`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from opcheck.checks.looks import is_alike
from opcheck.checks.subject import Subject
from opcheck.checks.varied import OfValues
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.samples.arguments import REGISTERED
from opcheck.samples.function import with_own_first

FAST = ("test_schema", "test_autograd_registration", "test_faketensor")
"""The tests that take milliseconds, for derived samples. AOT dispatch takes a third of a second."""


def judge(subject: Subject, tests: Sequence[str] = (*FAST, "test_aot_dispatch_dynamic")) -> Verdict:
    """Run torch's own tests: schema, autograd registration, fake tensors, AOT dispatch."""
    operator, path = subject.context.operator, subject.case.variant.path
    if not isinstance(operator, REGISTERED):
        hint = 'name the operator itself, such as "torch.ops.mylib.scale", not a function that calls it'
        return fails(f"registration: torch.library does not register {path}", f"{hint}, or write registered = false")
    overloads: list[str] = getattr(operator, "overloads", list)()
    if len(overloads) > 1:  # the operator is an overload packet, and not one of its overloads
        hint = f'name one of them, such as "{path}.{overloads[0]}", or write registered = false'
        return fails(f"registration: {path} has several overloads, which are tested one by one", hint)
    # Without a formula for backward, the tests of compiled code fail for inputs that require grad.
    inputs = subject.inputs if subject.supports.backward else subject.inputs.detached()
    args, kwargs = inputs.fill()
    if subject.function.inplace:  # autograd rejects in-place writes to a leaf
        args, kwargs = with_own_first(args, kwargs)
    results = torch.library.opcheck(operator, args, kwargs, test_utils=tests, raise_exception=False)
    failed = {name: result for name, result in results.items() if result != "SUCCESS"}
    if not failed:
        return HOLDS
    detail = "\n".join(f"{name}: {result}" for name, result in failed.items())
    return fails(f"registration: {', '.join(failed)} failed", detail)


check = OfValues(judge, at_derived=partial(judge, tests=FAST), covers=is_alike)
