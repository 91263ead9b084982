"""Compares a varied call with an ordinary one, for checks that vary one thing about a call.

A relation yields rows: the thing that was varied, the results of the varied call, and the expected results. Both calls
do the same arithmetic, perhaps in another order: see `compared`. `agree` compares with another implementation, truth.py
with another dtype or device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from opcheck.checks.calls import Result, ordinary, required, result
from opcheck.checks.per_sample import PerSample, blame
from opcheck.checks.plain_torch import GRADIENTS, VALUES, asserted
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives import tried
from opcheck.derivatives.coordinates import largest_difference, vector
from opcheck.derivatives.disagreement import output_label
from opcheck.derivatives.rounding import rounding_unit
from opcheck.derivatives.uncertainty import largest
from opcheck.samples.layouts import equal
from opcheck.samples.results import has_derivative

T = TypeVar("T")
ROUNDING = 2e4
"""The number of rounding units by which two calls may differ that do the same arithmetic in another order."""
LEAST, COARSE = 16, 0.01
"""The bound in coarse dtypes, where `ROUNDING` units exceed the number itself: the larger of `LEAST` rounding units and
the share `COARSE` of the number.
"""
REPEATS = 3
"""The number of ordinary calls that must agree before the varied call is reported as different."""
WHAT_DIFFERS_BY_ITSELF = ("purity", "backward")
"""The checks that explain why equal calls differ: an argument changes, or the function is random."""
MEMORY_OF_CALLS = "the operator may remember earlier calls, as a cache by the address of a tensor does"


class Row(NamedTuple):
    """Two results that must be equal up to rounding."""

    what: str
    """The result and the variation, as in "the gradients under torch.no_grad()"."""
    got: Tensor
    """The result of the varied call, as real coordinates."""
    expected: Tensor
    """The expected result, as real coordinates."""
    code: str = ""
    """Code in plain torch that defines `actual` and `expected`; empty if there is none."""


def relation(rows: Callable[[Subject, Result], Iterable[Row | Verdict]]) -> PerSample:
    """Turn a function that yields rows for a sample into a check. The first row that differs is the failure.

    rows: takes the subject and the result of an ordinary call. It may also yield verdicts.
    """

    def judge(subject: Subject) -> Iterator[Verdict]:
        for row in rows(subject, ordinary(subject)):
            yield row if isinstance(row, Verdict) else compared(subject, row)

    return PerSample(judge)


def both(where: str, call: Callable[[], Result], expected: Result, code: str = "") -> tuple[Row, Row]:
    """Return a row for the values and a row for the gradients of a call.

    where: the variation, as in "under torch.no_grad()".
    call: computes both, as `results` does.
    code: the comparison in plain torch. `{call}` stands for the values or gradients of a new call, `{of_outputs}` for
    the values or gradients of existing `outputs`.
    """
    got = results(where, call, expected, code)
    return (
        Row(f"the values {where}", got.values, expected.values, _of_values(code)),
        Row(f"the gradients {where}", got.gradient, expected.gradient, _of_gradients(code)),
    )


def results(where: str, call: Callable[[], T], expected: Result, code: str = "") -> T:
    """Return the values and gradients that a call computes, see `computed`. Other parameters are those of `both`."""
    own = _of_gradients(code) if expected.gradient.numel() else _of_values(code)
    return computed(f"the results {where}", call, own)


def row(what: str, call: Callable[[], Tensor], expected: Tensor, code: str = "") -> Row:
    """Return the row of what a call computes, see `computed`."""
    return Row(what, computed(what, call, code), expected, code)


def computed(what: str, call: Callable[[], T], code: str = "") -> T:
    """Return what a call returns. If it raises, the message says which results it computes.

    what: the results and the variation, as in a `Row`.
    code: code in plain torch that computes them, and so raises, too.

    Raises Raised in place of an exception of the operator.
    """
    return required(f"computing {what}", call, asserted(code))


def _of_values(code: str) -> str:
    return code.format(call=VALUES, of_outputs="outputs")


def _of_gradients(code: str) -> str:
    return code.format(call=GRADIENTS, of_outputs="pulled(outputs, inputs, cotangents)")


def at_once(
    subject: Subject, together: Callable[[], Iterable[Row]], each: Callable[[], Iterable[Row]]
) -> Iterator[Row | Verdict]:
    """Yield a pass if all variations hold in one call (fast path); else the rows of each one, then those of that call.

    together: returns the rows of a call with all variations.
    each: yields the rows of calls with one variation each.

    Passes on the exceptions of `each`, and then those of `together`.
    """
    rows = tried(lambda: list(together()))
    if not isinstance(rows, Exception) and not any(off_by(subject, row.got, row.expected) for row in rows):
        yield HOLDS
        return
    yield from each()
    if isinstance(rows, Exception):
        raise rows
    yield from rows


def compared(subject: Subject, row: Row) -> Verdict:
    """Return the verdict on a row. If ordinary calls also differ from each other, the message says that instead."""
    off = off_by(subject, row.got, row.expected)
    if not off:
        return HOLDS
    here = ordinary(subject)
    for _ in range(REPEATS):
        again = result(subject)
        title = f"{subject.check}: repeated calls with equal inputs give different"
        if off_by(subject, again.values, here.values):
            return blame(subject, fails(f"{title} results", MEMORY_OF_CALLS), WHAT_DIFFERS_BY_ITSELF)
        if off_by(subject, again.gradient, here.gradient):
            return fails(f"{title} gradients", MEMORY_OF_CALLS)
    lines = [f"by up to {off:.4g}", *([kind.remedy] if (kind := subject.case.kind).feature else [])]
    title = f"{kind.name}: {row.what} differ from those of an ordinary call"
    return fails(title, "\n".join(lines), code=asserted(row.code))


def off_by(subject: Subject, got: Tensor, expected: Tensor) -> float:
    """Return the largest difference of two vectors; 0 if they agree up to rounding or up to a tolerance of the spec.

    These tolerances are `tolerance.nondeterminism`, which is for any two calls, and `tolerance.check` for this check.
    NaN equals NaN, and an infinity equals itself. Returns infinity if shapes differ, or if vectors differ and are not
    finite everywhere.
    """
    if torch.equal(got, expected):
        return 0.0
    if got.shape != expected.shape:
        return float("inf")
    context, unit = subject.context, rounding_unit(subject.output_info.dtype)
    rounding = min(ROUNDING * unit, max(LEAST * unit, COARSE)) * (1.0 + largest(expected))
    random = context.case.claims.tolerance("nondeterminism", context.case.dtype).nondeterminism or 0.0
    atol, rtol = context.value_tolerance() or (0.0, 0.0)
    if torch.allclose(got, expected, rtol, max(rounding, random, atol), equal_nan=True):
        return 0.0
    difference = largest_difference(got, expected)
    return difference if difference == difference else float("inf")


def agree(
    subject: Subject,
    got: Sequence[Tensor],
    expected: Sequence[Tensor],
    whose: str,
    *,
    names: Sequence[str] = (),
    same_arithmetic: bool = True,
    code: str = "",
) -> Verdict:
    """Compare outputs one by one and return the verdict.

    The tolerance is the default of `torch.testing.assert_close` for the dtype, unless the spec sets one for this check.
    Unless it does, the same arithmetic in another order may be off by `LEAST` rounding units of the largest number, as
    where terms cancel.

    whose: the source of the expected values, as in "output 0 is not that of the loop".
    names: the names of the outputs, as in `.loss`; empty if they have positions instead.
    same_arithmetic: whether both do the same arithmetic, perhaps in another order. Then dtypes must be equal, too.
    code: the comparison in plain torch, as in a `Row`.
    """
    check, code = subject.check, asserted(code)
    if len(got) != len(expected):
        return fails(f"{check}: {len(got)} outputs, not {len(expected)} as those of {whose}", code=code)
    atol, rtol = subject.context.value_tolerance() or (None, None)
    for index, (g, e) in enumerate(zip(got, expected, strict=True)):
        if _are_near(g, e, NARROWEST if atol is None else 0.0):
            continue  # fast path: assert_close takes 100 microseconds, and imports torch.distributed
        try:
            torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True, check_dtype=same_arithmetic)
        except AssertionError as error:
            if same_arithmetic and atol is None and _differ_by_rounding(g, e):
                continue
            return fails(f"{check}: {output_label(index, names)} is not that of {whose}", str(error), code=code)
    return HOLDS


NARROWEST = 1e-7
"""The smallest default tolerance of `torch.testing.assert_close` for floating and complex dtypes."""


def _are_alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are strided, of the same shape, dtype and device."""
    if not (one.layout is other.layout is torch.strided and one.shape == other.shape):
        return False
    return one.dtype == other.dtype and one.device == other.device


def _differ_by_rounding(one: Tensor, other: Tensor) -> bool:
    """Return whether two floating or complex tensors differ by a few rounding units of the largest number."""
    if not (_are_alike(one, other) and has_derivative(other)):
        return False
    got, expected = vector([one]), vector([other])
    return largest_difference(got, expected) <= LEAST * rounding_unit(other.dtype) * largest(expected)


def _are_near(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Return whether two tensors are so close that assert_close is certain to pass."""
    if not _are_alike(one, other):
        return False
    is_double = one.dtype in (torch.float64, torch.complex128)
    return equal(one, other) or (is_double and torch.allclose(one, other, tolerance, tolerance, equal_nan=True))
