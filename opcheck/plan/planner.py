"""Plans the cases of operators: claims x devices x variants x dtypes x checks, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from opcheck.plan.case import Case
from opcheck.plan.expectations import applying
from opcheck.plan.kind import CheckKind
from opcheck.plan.kinds import check_kinds
from opcheck.plan.selection import Selection, names_operator
from opcheck.spec.device import DeviceProfile
from opcheck.spec.dtypes import STANDARD, expand
from opcheck.spec.library import DeviceClaims, Library, Operator, Variant


def plan(
    library: Library, devices: Iterable[DeviceProfile], selection: Selection | None = None, seed: int = 0
) -> list[Case]:
    """Return the cases of a library on some devices, ordered by operator, device, variant, dtype and check."""
    known = list(devices)
    wanted = selection or Selection()
    return [
        case
        for operator in library
        if wanted.takes_operator(operator)
        for device in known
        for case in cases_of(operator, device, wanted, seed)
    ]


def cases_of(operator: Operator, device: DeviceProfile, wanted: Selection, seed: int = 0) -> Iterator[Case]:
    """Yield the selected cases of an operator on a device."""
    claims = operator.on(device)
    expects = (*operator.spec.expect, *device.expect)
    for variant, dtype, kind in combinations(operator, device):
        if wanted.takes(kind.name, dtype):
            matching = applying(expects, kind.name, variant.kind, device.name, dtype) if expects else ()
            yield Case(operator, variant, kind, device, dtype, claims, matching, seed)


def combinations(operator: Operator, device: DeviceProfile) -> Iterator[tuple[Variant, str, CheckKind]]:
    """Yield the variant, dtype and check of each case of an operator on a device.

    The checks of one variant in one dtype follow one another: they share samples.
    """
    if not _runs_on(operator, device):
        return
    claims = operator.on(device)
    for variant in operator.variants:
        checks: dict[str, list[CheckKind]] = {}
        for kind in check_kinds().values():
            if kind.runs_on(device) and _tested(operator, variant, kind, claims):
                for dtype in _dtypes(kind, claims, device):
                    checks.setdefault(dtype, []).append(kind)
        yield from ((variant, dtype, kind) for dtype, kinds in checks.items() for kind in kinds)


def _runs_on(operator: Operator, device: DeviceProfile) -> bool:
    spec = operator.spec
    if spec.devices is not None and device.name not in spec.devices:
        return False
    if device.allow is not None and not any(names_operator(pattern, operator) for pattern in device.allow):
        return False
    return not any(names_operator(pattern, operator) for pattern in device.deny)


def _tested(operator: Operator, variant: Variant, kind: CheckKind, claims: DeviceClaims) -> bool:
    if variant.kind != "function" and not kind.every_variant:
        return False
    if variant.kind == "method" and not kind.methods:
        return False
    if variant.kind == "inplace" and not claims.supports.inplace_backward and kind.name != "unsupported":
        return False
    return kind.claimed(operator, claims.supports)


def _dtypes(kind: CheckKind, claims: DeviceClaims, device: DeviceProfile) -> tuple[str, ...]:
    if kind.dtypes == "every":
        if not claims.exact:
            return claims.forward
        absent = expand(device.lacks)
        extra = tuple(name for name in claims.forward if name not in STANDARD)
        return tuple(name for name in (*STANDARD, *extra) if name not in absent)
    if kind.dtypes == "derivative":
        return _best(claims.backward) or (() if "backward" in kind.needs else _best(claims.forward))
    values = _best(claims.forward) + tuple(name for name in ("int64",) if name in claims.forward)
    values = values or claims.forward[:1]
    return values[:1] if kind.dtypes == "one" else values


REAL_BY_PRECISION = ("float64", "float32", "bfloat16", "float16")
COMPLEX_BY_PRECISION = ("complex128", "complex64", "complex32")


@lru_cache(maxsize=256)
def _best(claimed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the most precise real dtype and the most precise complex dtype among those claimed."""
    kinds = (REAL_BY_PRECISION, COMPLEX_BY_PRECISION)
    return tuple(next(name for name in kind if name in claimed) for kind in kinds if set(kind) & set(claimed))
