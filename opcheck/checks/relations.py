"""Compares two calls that must give the same: for checks that vary one thing about a call.

A relation yields what was varied, what the varied call gave, and what it should have given. The arithmetic is the same,
perhaps in another order: see `compared`. Where it is that of another implementation, see `agree`; in another dtype or
on another device, see truth.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from opcheck.checks.calls import Result, ordinary, result
from opcheck.checks.per_sample import PerSample
from opcheck.checks.plain_torch import GRADIENTS, VALUES, asserted
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, blocked, fails
from opcheck.derivatives import tried
from opcheck.derivatives.coordinates import largest_difference
from opcheck.derivatives.disagreement import output_label
from opcheck.derivatives.rounding import rounding_unit
from opcheck.samples.layouts import equal

ROUNDING = 2e4
"""How many rounding units two calls may differ by that do the same in another order."""
LEAST, COARSE = 16, 0.01
"""The bound in coarse dtypes, where so many units are all of a number: how many of them, or which share of it."""
REPEATS = 3
"""How many ordinary calls must agree before another call is accused of giving something else."""


class Row(NamedTuple):
    """Two calls that must give the same."""

    what: str
    """What was varied, as in "the gradients under torch.no_grad()"."""
    got: Tensor
    expected: Tensor
    code: str = ""
    """The same in plain torch: defines `actual` and `expected`. Empty: it has no such form."""


def relation(rows: Callable[[Subject, Result], Iterable[Row | Verdict]]) -> PerSample:
    """Make a check of a function that yields rows for a sample, given what an ordinary call gives.

    The first row that does not hold counts. Verdicts may stand among rows.
    """

    def judge(subject: Subject) -> Iterator[Verdict]:
        for row in rows(subject, ordinary(subject)):
            yield row if isinstance(row, Verdict) else compared(subject, row)

    return PerSample(judge)


def both(where: str, got: Result, expected: Result, code: str = "") -> tuple[Row, Row]:
    """Return the rows about the values and the gradients of a call.

    code: the same in plain torch. `{call}` is a call, of which values or gradients are compared, and `{of_outputs}`
    what is compared of `outputs`.
    """
    of_values = code.format(call=VALUES, of_outputs="outputs")
    of_gradients = code.format(call=GRADIENTS, of_outputs="pulled(outputs, inputs, cotangents)")
    return (
        Row(f"the values {where}", got.values, expected.values, of_values),
        Row(f"the gradients {where}", got.gradient, expected.gradient, of_gradients),
    )


def at_once(
    subject: Subject, together: Callable[[], Iterable[Row]], each: Callable[[], Iterable[Row]]
) -> Iterator[Row | Verdict]:
    """Yield one verdict if several variations hold together, as usual; else each of them, and then all together.

    Raises what they raise.
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
    """Return whether a call gave what it should. If not, ordinary calls have to give the same each time."""
    off = off_by(subject, row.got, row.expected)
    if not off:
        return HOLDS
    here = ordinary(subject)
    for _ in range(REPEATS):
        again = result(subject)
        if off_by(subject, again.values, here.values) or off_by(subject, again.gradient, here.gradient):
            return blocked("nondeterminism", f"{subject.check}: ordinary calls do not give the same each time")
    lines = [f"by up to {off:.4g}", *([kind.remedy] if (kind := subject.case.kind).feature else [])]
    title = f"{kind.name}: {row.what} differ from those of an ordinary call"
    return fails(title, "\n".join(lines), code=asserted(row.code))


def off_by(subject: Subject, got: Tensor, expected: Tensor) -> float:
    """Return by how much two vectors differ; 0 if they agree up to rounding, or up to what the spec allows.

    It may allow two calls something (`tolerance.nondeterminism`), or the check (`tolerance.check`).
    NaN agrees with NaN, and an infinity with itself.
    """
    if torch.equal(got, expected):
        return 0.0
    if got.shape != expected.shape:
        return float("inf")
    context = subject.context
    finite = expected[expected.isfinite()].abs()
    dtypes = (subject.output_info.dtype, *(leaf.dtype for leaf in subject.leaves))  # gradients have that of their leaf
    unit = max(map(rounding_unit, dtypes))
    share = min(ROUNDING * unit, max(LEAST * unit, COARSE))
    rounding = share * (1.0 + (float(finite.max()) if finite.numel() else 0.0))
    random = context.case.claims.tolerance("nondeterminism", context.case.dtype).nondeterminism or 0.0
    own = context.value_tolerance()
    if torch.allclose(got, expected, own.rtol or 0.0, max(rounding, random, own.atol or 0.0), equal_nan=True):
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
    check_dtype: bool = True,
    code: str = "",
) -> Verdict:
    """Compare outputs one by one.

    The tolerance is the default of assert_close for the dtype, unless the spec sets one for this check.

    whose: where the expected values come from, as in "output 0 is not that of the loop".
    names: the names of the outputs, as in `.loss`; empty if they have positions instead.
    code: the same in plain torch, as that of a `Row`.
    """
    check, code = subject.check, asserted(code)
    if len(got) != len(expected):
        return fails(f"{check}: {len(got)} outputs, not {len(expected)} as those of {whose}", code=code)
    tolerance = subject.context.value_tolerance()
    for index, (g, e) in enumerate(zip(got, expected, strict=True)):
        if _are_near(g, e, 0.0 if tolerance.atol is not None else NARROWEST):
            continue  # the usual case: assert_close takes 100 microseconds, and imports torch.distributed
        try:
            torch.testing.assert_close(
                g, e, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True, check_dtype=check_dtype
            )
        except AssertionError as error:
            output = output_label(index, names[index] if names else "")
            return fails(f"{check}: {output} is not that of {whose}", str(error), code=code)
    return HOLDS


NARROWEST = 1e-7
"""No default tolerance of assert_close for floating dtypes is narrower."""


def _are_near(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Tell whether two tensors agree so far that assert_close agrees, too."""
    if not (one.layout is other.layout is torch.strided and one.shape == other.shape):
        return False
    if one.dtype != other.dtype or one.device != other.device:
        return False
    is_double = one.dtype in (torch.float64, torch.complex128)
    return equal(one, other) or (is_double and torch.allclose(one, other, tolerance, tolerance, equal_nan=True))
