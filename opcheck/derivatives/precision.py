"""What finite differences can tell: errors below `atol` that are wrong all the same, and derivatives that lost digits.

A tolerance fits functions of order one. Differences of a small function are better than that, and say by how much:
those at several steps differ by their error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.coordinates import directions, largest_difference, modulus
from opcheck.derivatives.differences import Slopes, error_estimate, kinks
from opcheck.derivatives.disagreement import Disagreement, Names, Pair
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.question import BY_PRECISION, NO_REFUSAL, Numbers, Request
from opcheck.derivatives.rule import allowed, excess

CERTAIN = 20
"""How many times the error of the differences an error must be to be taken for one of the derivative."""
NEAR = (2, 8, 32)
"""Multiples of the step that show how accurate differences are."""
FAR = 1e-3
"""A step at which a function still moves if larger numbers inside it keep it from moving at smaller ones, since they
are rounded to a coarser grid than its own values."""
ROUNDED = 1e4
"""How many units of rounding a derivative may be off by, relative to the largest one."""
FULL = 1e-9
"""The largest relative error of a derivative in full double precision. Single precision leaves one of 6e-8."""

At = Callable[[float], Slopes]


def is_loosened(numbers: Numbers, unit: float) -> bool:
    """Tell whether atol is larger than the default: then it was chosen for the function, and excuses what is below."""
    return numbers.atol > BY_PRECISION[torch.float64 if unit < 1e-12 else torch.float32].atol


def resolved(
    analytical: Tensor, at: At, step: float, steps: Sequence[float], admitted: Tensor, unit: float,
    size: Callable[[Tensor], Tensor] = torch.abs,
) -> Tensor:  # fmt: skip
    """Return the entries whose error exceeds what is admitted and `CERTAIN` times that of the differences, as a mask.

    analytical, admitted: of shape (M, K); at: the differences at a step; steps: larger ones; size: the moduli of
    entries. Entries that are not finite, or that have a kink, are left out, and so is everything if the function raises
    at one of the steps.
    """
    fine = at(step)
    off = size(analytical - fine.jacobian)
    found = off > admitted + CERTAIN * fine.rounding(unit)
    if not bool(found.any()):
        return found  # as almost always
    try:
        coarser = [at(other) for other in steps]
    except NO_REFUSAL:
        raise
    except Exception:  # the function is not defined as far from the point as that
        return torch.zeros_like(found)
    error = CERTAIN * size(error_estimate(fine, coarser, unit))
    bent = size(kinks(fine, coarser[0], error).to(error.dtype)) > 0
    return found & (off > admitted + error) & ~bent


def explained_by_rounding(
    analytical: Tensor, at: At, evidence: Evidence, numbers: Numbers, leaves: Sequence[Tensor] | None = None
) -> Tensor:
    """Return the entries beyond the tolerance that are so by the rounding of the function alone, as a mask.

    Rounding makes differences at the step as wrong as the entries are, and at a larger step, where differences are
    certain to be within the tolerance, so are the entries. Values of 1e5 are rounded to 1e-11: at a step of 1e-6, a
    derivative of zero looks like 1e-5.

    analytical: the whole Jacobian, or one of the same form as `at`; leaves: what its columns are of, if not of all
    leaves.
    """
    own = evidence.leaves if leaves is None else leaves
    size, fine = partial(modulus, leaves=own), at(numbers.eps)
    wrong = excess(analytical, fine.jacobian, own, numbers) > 0
    noisy = wrong & (size(analytical - fine.jacobian) <= CERTAIN * size(fine.rounding(evidence.unit)))
    held = torch.zeros_like(noisy)
    for coarse, coarser in _further(at, numbers) if bool(noisy.any()) else ():
        error = size(error_estimate(coarse, [coarser], evidence.unit))
        certain = error <= allowed(coarse.jacobian, own, numbers)
        held |= certain & (excess(analytical, coarse.jacobian, own, numbers) == 0)
    return noisy & held


def kinks_beyond_rounding(at: At, numbers: Numbers, bound: Tensor, unit: float) -> Tensor:
    """Return where the function has a kink or a jump, as a mask: see `differences.kinks`.

    Where one-sided differences disagree by no more than rounding explains, a larger step must show the kink as well.

    bound: by how much they may disagree.
    """
    found = kinks(at(numbers.eps), at(2 * numbers.eps), bound)
    noisy = found & _bent_by_rounding(at(numbers.eps), bound, unit)
    for coarse, coarser in _further(at, numbers) if bool(noisy.any()) else ():
        found &= ~noisy | kinks(coarse, coarser, bound)
        noisy &= found & _bent_by_rounding(coarse, bound, unit)
        if not bool(noisy.any()):
            break
    return found


def _bent_by_rounding(slopes: Slopes, bound: Tensor, unit: float) -> Tensor:
    """Tell where one-sided differences disagree by more than a bound, and by no more than rounding explains."""
    bend = slopes.bend.abs()
    return (bend > bound) & (bend <= CERTAIN * slopes.rounding(unit))


def _further(at: At, numbers: Numbers) -> Iterator[tuple[Slopes, Slopes]]:
    """Yield the differences at larger steps, and at twice each of them, as long as the function is defined there."""
    for step in _far(numbers)[1:]:
        try:
            found = at(step), at(2 * step)
        except NO_REFUSAL:
            raise
        except Exception:
            return
        yield found


def wrong_below_atol(
    analytical: Tensor, at: At, evidence: Evidence, numbers: Numbers, leaves: Sequence[Tensor] | None = None
) -> Tensor:
    """Return the entries that are off by more than rtol |n| and than differences can be, however small, as a mask.

    analytical: the whole Jacobian, or one of the same form as `at`; leaves: what its columns are of, if not of all
    leaves.
    """
    if is_loosened(numbers, evidence.unit):
        return torch.zeros_like(analytical, dtype=torch.bool)
    size = partial(modulus, leaves=evidence.leaves if leaves is None else leaves)
    numerical = at(numbers.eps).jacobian
    least = ROUNDED * evidence.unit * _largest(numerical) + least_below_atol(numbers)
    admitted = size(numerical) * numbers.rtol + least
    return resolved(analytical, at, numbers.eps, _far(numbers), admitted, evidence.unit, size)


def wrong_projections_below_atol(
    analytical: Tensor, evidence: Evidence, numbers: Numbers, *, looped: bool = False
) -> Tensor:
    """Return the same for projections V J U of a Jacobian, of shape (k, k).

    Of a sum of many entries, rtol is that of the largest projection: a small one is the difference of large entries.
    """
    if is_loosened(numbers, evidence.unit):
        return torch.zeros_like(analytical, dtype=torch.bool)
    at, unit = _projected(evidence, looped), evidence.unit
    largest = _largest(at(numbers.eps).jacobian)
    steps = _far(numbers)
    least = (numbers.rtol + ROUNDED * unit) * largest + least_below_atol(numbers)
    return resolved(analytical, at, numbers.eps, steps, torch.full_like(analytical, least), unit)


def least_below_atol(numbers: Numbers) -> float:
    """Return the least error that counts below atol.

    Of the rounding inside a function, atol covers so much at the smallest step, and this is left of it at the largest.
    """
    return numbers.atol * numbers.eps / _far(numbers)[-1]


def _far(numbers: Numbers) -> tuple[float, ...]:
    return 2 * numbers.eps, 8 * numbers.eps, max(16 * numbers.eps, FAR)


def lost_digits(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Return that a Jacobian within the tolerance has lost digits, if differences can tell; else None."""
    for looped in (False, True):  # what the batch objects to is confirmed one by one
        analytical, at, size = _matrices(evidence, mode, looped)
        numbers = request.numbers
        numerical = at(numbers.eps).jacobian
        if 2 * largest_difference(analytical, numerical) <= CERTAIN * evidence.unit / numbers.eps:
            return None  # as almost always: moduli, which are at most sqrt(2) times as large, are admitted too
        largest = _largest(numerical)
        # The points themselves are rounded too, which no other step would show.
        grid = CERTAIN * evidence.unit * _largest(evidence.point) / numbers.eps
        least = _relative(evidence, numbers) * largest + _grid(evidence, numbers.eps)
        admitted = size(numerical) * grid + least
        if not bool((size(analytical - numerical) > admitted).any()):
            return None  # no other step is needed
        # Rounding inside a function may happen to be the same at all steps for one entry, but hardly for all of them.
        noise = CERTAIN * _largest(numerical - at(2 * numbers.eps).jacobian) if evidence.extent != "projected" else 0.0
        least, admitted = least + noise, admitted + noise
        steps = [multiple * numbers.eps for multiple in NEAR]
        found = resolved(analytical, at, numbers.eps, steps, admitted, evidence.unit, size)
        if not bool(found.any()):
            return None
    off = (analytical - numerical).abs() * found
    row, column = divmod(int(off.argmax()), off.shape[1])
    worst = float(off[row, column])
    share, where, pair = worst / largest if largest else inf, "", None
    if evidence.projections is None:
        named = Names.of(evidence.function, request)
        pair = Pair(numerical, analytical, off, evidence.outputs, evidence.leaves, named)
        where = f"\n{pair.entry(row, column).describe()}"
    return Disagreement(
        f"low accuracy: off by {worst:.2g}, {share:.1g} of the largest entry; differences show errors "
        f"from {least:.1g} on{where}\nthat looks like single precision, or a coarse approximation, in its formula",
        "low accuracy",
        pair=pair,
    )


def _relative(evidence: Evidence, numbers: Numbers) -> float:
    return max(FULL, 1e3 * evidence.unit, numbers.accuracy)


def _matrices(evidence: Evidence, mode: Mode, looped: bool) -> tuple[Tensor, At, Callable[[Tensor], Tensor]]:
    """Return a Jacobian, or its projections, with the differences at a step, and the moduli of entries."""
    if evidence.compressed is not None:
        sides = evidence.compressed.sides(mode, looped=looped)
        return sides.analytical, sides.at, partial(modulus, leaves=sides.leaves)
    jacobian = evidence.analytical(mode, looped=looped).jacobian
    if evidence.projections is None:
        return jacobian, partial(evidence.numerical, looped=looped), partial(modulus, leaves=evidence.leaves)
    return projections(jacobian, evidence, mode), _projected(evidence, looped), torch.abs


def projections(jacobian: Tensor, evidence: Evidence, mode: Mode) -> Tensor:
    """Return V J U of shape (k, k), from V J by reverse and from J U by forward mode."""
    if mode == "reverse":
        return jacobian @ directions(evidence.size[1], evidence.projections, "inputs").T
    return directions(evidence.size[0], evidence.projections, "outputs") @ jacobian


def _projected(evidence: Evidence, looped: bool) -> At:
    cotangents = directions(evidence.size[0], evidence.projections, "outputs")
    return lambda step: evidence.numerical(step, looped=looped).along(cotangents)


def _grid(evidence: Evidence, step: float) -> float:
    """Return what the rounding of numbers as large as the inputs, or as 1, makes of differences with a step."""
    return CERTAIN * evidence.unit * max(1.0, _largest(evidence.point)) / step


def _largest(entries: Tensor) -> float:
    """Return the largest finite modulus; 0 if there is none."""
    return float(entries.abs().nan_to_num(0.0, 0.0, 0.0).max()) if entries.numel() else 0.0
