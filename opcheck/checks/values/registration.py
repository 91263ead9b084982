"""Operators registered with torch.library pass `torch.library.opcheck`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from opcheck.checks.subject import Subject
from opcheck.checks.varied import OfValues
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives import tried
from opcheck.planning.planner import most_precise
from opcheck.samples.arguments import REGISTERED
from opcheck.samples.cache import Cache
from opcheck.samples.derive.alike import is_alike
from opcheck.spec.library import Sample

FAST = ("test_schema", "test_autograd_registration", "test_faketensor")
"""The tests that take milliseconds."""
AOT = "test_aot_dispatch_dynamic"
"""The test of compiled code, which takes a third of a second."""


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
    args, kwargs = subject.function.with_own(args, kwargs)  # autograd rejects in-place writes to a leaf
    results = torch.library.opcheck(operator, args, kwargs, test_utils=tests, raise_exception=False)
    failed = {name: result for name, result in results.items() if result != "SUCCESS"}
    if not failed:
        return HOLDS
    detail = "\n".join(f"{name}: {result}" for name, result in failed.items())
    return fails(f"registration: {', '.join(failed)} failed", detail)


def in_each_dtype(subject: Subject) -> Verdict:
    """Run the tests at a written sample, then in each other dtype of forward, since fake results may be right in one.

    AOT dispatch runs in the most precise dtypes. A dtype that the operator refuses is left to the check `dtypes`.
    """
    verdict, claims, context = judge(subject, (*FAST, AOT)), subject.case.claims, subject.context
    for dtype in claims.forward if verdict.passed else ():
        if dtype == subject.case.dtype:
            continue
        case, has_backward = replace(subject.case, dtype=dtype), context.requires_grad and dtype in claims.backward
        own = replace(context, case=case, cache=Cache(), requires_grad=has_backward).at(subject.sample)
        if isinstance(tried(partial(getattr, own, "result")), Exception):
            continue
        other = judge(own, (*FAST, AOT) if dtype in most_precise(claims.forward) else FAST)
        if not other.passed:
            return replace(other, title=f"registration: in {dtype}: {other.title.removeprefix('registration: ')}")
    return verdict


def covers(written: Sample, other: Sample) -> bool:
    """Return whether no broadcasting explains that an operator accepts a derived sample.

    If the first tensor alone has further leading dims, as in a batch, it explains nothing unless another tensor had as
    many dims.
    """
    if len(other.tensors) < 2 or is_alike(written, other):
        return True
    (before, *others), (after, *same) = written.tensors, other.tensors
    is_batch = after.sizes[-len(before.sizes) :] == before.sizes and same == others
    return is_batch and all(len(one.sizes) < len(before.sizes) for one in others)


check = OfValues(in_each_dtype, judge_derived=judge, covers=covers)
