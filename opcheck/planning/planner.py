"""Plans the cases of operators: claims x devices x variants x dtypes x checks, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from opcheck.planning.case import Case
from opcheck.planning.expectations import expectations_of
from opcheck.planning.selection import Selection, is_named
from opcheck.spec.checks import CheckKind
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.dtypes import COARSE, COMPLEX, FLOATING, HALF, STANDARD, double_of, expand
from opcheck.spec.library import DeviceClaims, Library, Operator


def plan(
    library: Library, devices: Iterable[DeviceProfile], selection: Selection | None = None, seed: int = 0
) -> list[Case]:
    """Return the cases of a library on some devices, ordered by operator, device, variant, dtype and check."""
    several = list(devices)
    wanted = selection or Selection()
    return [
        case
        for operator in library
        if wanted.takes_operator(operator)
        for device in several
        if not rule_against(operator, device)
        for case in cases_on(operator, device, wanted, seed)
    ]


def cases_on(operator: Operator, device: DeviceProfile, wanted: Selection, seed: int = 0) -> Iterator[Case]:
    """Yield the selected cases of an operator on a device, regardless of `rule_against`.

    The checks of a variant in a dtype are consecutive, since they share samples.
    """
    claims, known = operator.on(device), expectations_of(operator, device, wanted)
    tested = [
        (kind, _dtypes(kind, claims, device, operator))
        for kind in wanted.kinds()
        if kind.claimed(operator, device, claims.supports)
    ]
    for variant in operator.variants:
        checks: dict[str, list[CheckKind]] = {}
        for kind, dtypes in tested:
            if kind.tests(variant.kind, claims.supports):
                for dtype in dtypes:
                    checks.setdefault(dtype, []).append(kind)
        for dtype, kinds in checks.items():
            if wanted.takes_dtype(dtype):
                yield from (Case(operator, variant, kind, device, dtype, claims, known, seed) for kind in kinds)


def rule_against(operator: Operator, device: DeviceProfile) -> str:
    """Return the rule that excludes an operator from a device; an empty string if there is none.

    The rule is `torch` or `devices` of the spec, or `allow` or `deny` of the profile.
    """
    spec = operator.spec
    if not operator.is_in_this_torch:
        return "torch"
    if spec.devices is not None and device.name not in spec.devices:
        return "devices"
    if device.allow is not None and not is_named(operator, device.allow):
        return "allow"
    return "deny" if is_named(operator, device.deny) else ""


def _dtypes(kind: CheckKind, claims: DeviceClaims, device: DeviceProfile, operator: Operator) -> tuple[str, ...]:
    """Return the dtypes in which a check runs, by its `DtypeRule`."""
    if kind.dtypes == "coarse":
        return tuple(name for name in claims.backward if name in COARSE and _has_exact_gradients(name, operator))
    if kind.dtypes == "every":
        if not claims.exact:
            return claims.forward
        absent = expand(device.lacks)
        extra = tuple(name for name in claims.forward if name not in STANDARD)
        return tuple(name for name in (*STANDARD, *extra) if name not in absent)
    if kind.dtypes == "derivative":
        best = most_precise(claims.backward) or (() if "backward" in kind.needs else most_precise(claims.forward))
        # Half precision is too coarse for finite differences. low_precision_grad tests it without them.
        return tuple(name for name in best if name not in HALF)
    values = most_precise(claims.forward) + tuple(name for name in ("int64",) if name in claims.forward)
    values = values or claims.forward[:1]
    return values[:1] if kind.dtypes == "one" else values


def _has_exact_gradients(dtype: str, operator: Operator) -> bool:
    """Return whether low_precision_grad runs in a dtype: in half precision, and where exact gradients are available.

    In single precision without exact gradients, the checks by finite differences suffice.
    """
    if dtype in HALF or operator.has_differentiable_reference:
        return True
    return double_of(dtype) in operator.spec.dtypes.backward_names()


@lru_cache(maxsize=256)
def most_precise(claimed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the most precise real dtype and the most precise complex dtype among those claimed."""
    kinds = (FLOATING[::-1], ("complex32", *COMPLEX)[::-1])
    return tuple(next(name for name in kind if name in claimed) for kind in kinds if set(kind) & set(claimed))
